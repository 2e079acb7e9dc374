// The frame: bar, keyboard, and which view is shown.

import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { CodePage } from './code.js';
import { FilesPage } from './files.js';
import { NewPage } from './new.js';
import { Overview } from './overview.js';
import { Dialog, Logo, Notice } from './parts.js';
import { ProcessPage } from './process.js';
import { go, paths, takeClicks, usePlace } from './router.js';
import { ServicePage } from './service.js';
import { ask, Login, logout, readOnly, useSession } from './session.js';
import { OpenTerminal } from './shell.js';
import { store, useStore } from './store.js';
import { TemplatesPage } from './templates.js';
import { nextTheme, restoreTheme, useTheme } from './theme.js';

function App() {
  const session = useSession();
  const inside = session === 'in' || session === 'free';
  useEffect(() => {
    if (!inside) return;
    const scope = new AbortController();
    void store.run(scope.signal);
    return () => scope.abort();
  }, [inside]);
  if (session === 'out') return <Login />;
  if (session === 'asking') return <Opening />;
  if (session === 'away')
    return (
      <main class="login">
        <Notice title="tend does not answer">
          <p>This page comes back by itself when the server does. Your processes run on meanwhile.</p>
        </Notice>
      </main>
    );
  return <Frame canLeave={session === 'in'} />;
}

/** What index.html shows until scripts have run, and then until the server has answered. */
function Opening() {
  return (
    <>
      <header class="bar">
        <span class="brand">
          <Logo /> tend
        </span>
      </header>
      <div class="blank" aria-busy="true" />
    </>
  );
}

function Frame({ canLeave }: { canLeave: boolean }) {
  const { path, query } = usePlace();
  const [help, setHelp] = useState(false);
  const theme = useTheme();
  useKeys(() => setHelp(true));
  const view = () => {
    if (path[0] === 'p' && path[1]) return <ProcessPage key={path[1]} id={path[1]} box={query.get('box') ?? ''} />;
    if (path[0] === 's' && path[1]) return <ServicePage key={path[1]} name={path[1]} />;
    if (path[0] === 'files') return <FilesPage key={query.get('box') ?? ''} box={query.get('box') ?? ''} />;
    if (path[0] === 'code') return <CodePage key={query.get('box') ?? ''} box={query.get('box') ?? ''} />;
    if (path[0] === 'new') return <NewPage key={path[1]} kind={path[1] ?? ''} query={query} />;
    if (path[0] === 'templates') return <TemplatesPage />;
    if (path.length === 0) return <Overview />;
    return (
      <main>
        <Notice title="There is no such page">
          <a href={paths.home}>Go to the overview</a>
        </Notice>
      </main>
    );
  };
  return (
    <>
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <header class="bar">
        <a class="brand" href={paths.home}>
          <Logo /> tend
        </a>
        <Connection />
        {readOnly() && (
          <span class="badge" title="This login sees everything but files and values of environments, and changes nothing. Whoever has the token may log in to do more.">
            read-only
          </span>
        )}
        <span class="grow" />
        {!readOnly() && (
          <a class="barlink" href={paths.files('', '')}>
            Files
          </a>
        )}
        <OpenTerminal box="" bar />
        <button class="quiet" onClick={nextTheme} title={`Colours: ${theme}`} aria-label={`Colours: ${theme}. Change`}>
          {theme === 'dark' ? '\u263e' : theme === 'light' ? '\u2600' : '\u25d1'}
        </button>
        <button class="quiet" onClick={() => setHelp(true)} title="Keys (?)" aria-label="Keys">
          ?
        </button>
        {canLeave && (
          <button class="quiet" onClick={() => void logout()}>
            Log out
          </button>
        )}
      </header>
      <div id="content">{view()}</div>
      {help && (
        <Dialog title="Keys" close={() => setHelp(false)}>
          <Keys />
        </Dialog>
      )}
    </>
  );
}

function Connection() {
  const { trouble, loaded, version } = useStore();
  return (
    <span class={`connection ${trouble ? 'away' : ''}`} role="status" title={trouble ?? (version && `tend ${version}`)}>
      {trouble ? 'reconnecting\u2026' : loaded ? 'live' : 'connecting\u2026'}
    </span>
  );
}

const keys: [string, string][] = [
  ['/', 'Filter the list, or search the output'],
  ['g o', 'Overview'],
  ['g s', 'Services'],
  ['g b', 'Sandboxes'],
  ['g p', 'Processes'],
  ['g f', 'Files'],
  ['j  k', 'Next and previous line of the list'],
  ['f', 'Follow the output'],
  ['g g', 'Beginning of the output'],
  ['Shift+G', 'End of the output'],
  ['n  Shift+N', 'Next and previous hit'],
  ['w', 'Wrap long lines'],
  ['t', 'When each line arrived'],
  ['?', 'These keys'],
];

function Keys() {
  return (
    <dl class="keys">
      {keys.map(([k, text]) => (
        <div key={k}>
          <dt>
            {k.split(/\s+/).map((part) => (
              <kbd key={part}>{part}</kbd>
            ))}
          </dt>
          <dd>{text}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Keys of the whole page; those of the output are with it. */
function useKeys(help: () => void): void {
  useEffect(() => {
    let before = '';
    const press = (e: KeyboardEvent) => {
      const at = e.target as HTMLElement;
      if (e.key === 'Escape' && at.id === 'search') at.blur();
      if (e.ctrlKey || e.metaKey || e.altKey || at.closest('input, textarea, select, [contenteditable], .xterm, .editor, dialog')) return;
      const chord = before === 'g' ? `g ${e.key}` : e.key;
      before = e.key === 'g' && before !== 'g' ? 'g' : '';
      const places: Record<string, string> = { 'g o': paths.home, 'g s': `${paths.home}?kind=service`, 'g b': `${paths.home}?kind=sandbox`, 'g p': `${paths.home}?kind=process`, 'g f': paths.files('', '') };
      const to = places[chord];
      if (to) go(to);
      else if (chord === '?') help();
      else if (chord === '/') document.querySelector<HTMLElement>('#search')?.focus();
      else if (chord === 'j' || chord === 'k') {
        const rows = [...document.querySelectorAll<HTMLElement>('.row.item a')];
        const n = rows.indexOf(document.activeElement as HTMLElement);
        const next = rows[n < 0 ? 0 : n + (chord === 'j' ? 1 : -1)];
        if (!next) return;
        next.focus();
        next.scrollIntoView({ block: 'nearest' });
      } else if (chord === 'g g') dispatchEvent(new CustomEvent('tend-begin'));
      else return;
      e.preventDefault();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);
}

restoreTheme();
takeClicks();
render(<App />, document.getElementById('app')!);
void ask();
