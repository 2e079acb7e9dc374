// Templates and images, from which sandboxes are made, and the logs of their builds.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Image } from '../../js/src/gen/tend/v1/image_pb.js';
import type { BuildLog, Template, TemplateBuild } from '../../js/src/gen/tend/v1/sandbox_pb.js';
import { follow, images, notFound, repeat, sandboxes, words } from './api.js';
import { age, millis, size, visible } from './format.js';
import { Notice } from './parts.js';
import { amend, paths, usePlace } from './router.js';
import { readOnly } from './session.js';
import { useStore } from './store.js';

export function TemplatesPage() {
  const { query } = usePlace();
  const [there, set] = useState<{ templates: Template[]; images: Image[] }>();
  const [failed, fail] = useState('');
  useEffect(() => {
    document.title = 'Templates \u2013 tend';
    const scope = new AbortController();
    const ask = () => Promise.all([sandboxes.templates({}, { signal: scope.signal }), images.listImages({}, { signal: scope.signal })]);
    void repeat(ask, scope.signal).then(
      ([t, i]) => set({ templates: t.templates, images: i.images }),
      (err) => scope.signal.aborted || fail(words(err)),
    );
    return () => scope.abort();
  }, []);
  if (failed) return <Notice kind="bad" title="Templates cannot be shown">{failed}</Notice>;
  const build = query.get('build') ?? '';
  return (
    <main class="templates">
      <div class="crumbs">
        <a class="back" href={paths.home}>
          Overview
        </a>
      </div>
      <h1>Templates and images</h1>
      {build && <Build key={build} id={build} />}
      <h2>Templates</h2>
      {there?.templates.length === 0 && <p class="faint">There is none: tend template build makes one.</p>}
      <ul class="things">
        {there?.templates.map((t) => {
          const name = t.aliases[0] || t.name || t.id;
          return (
            <Thing key={t.id} name={[name, ...t.tags.map((tag) => `:${tag}`)].join(' ')} id={t.id} facts={[size(t.bytes), t.used > 0n ? `used ${t.used} times` : 'not used yet']} when={millis(t.updated ?? t.created)}>
              {t.build && (
                <button class="quiet" aria-pressed={build === t.build} onClick={() => amend({ build: build === t.build ? '' : t.build })}>
                  Log of its build
                </button>
              )}
              <Make from={`template:${name}`} />
            </Thing>
          );
        })}
      </ul>
      <h2>Images</h2>
      {there?.images.length === 0 && <p class="faint">There is none: tend image pull fetches one.</p>}
      <ul class="things">
        {there?.images.map((i) => (
          <Thing key={i.id} name={i.names.join(' ') || 'without a name'} id={i.id.slice(0, 19)} facts={[size(i.bytes), i.platform]} when={millis(i.added)}>
            {i.names[0] && <Make from={`image:${i.names[0]}`} />}
          </Thing>
        ))}
      </ul>
    </main>
  );
}

function Thing({ name, id, facts, when, children }: { name: string; id: string; facts: string[]; when: number; children: preact.ComponentChildren }) {
  const store = useStore();
  return (
    <li>
      <b>
        <bdi>{visible(name)}</bdi>
      </b>
      <small class="mono faint">{id}</small>
      <span class="faint">{[...facts, when ? `${age(store.now() - when)} ago` : ''].filter(Boolean).join(', ')}</span>
      <span class="grow" />
      {children}
    </li>
  );
}

function Make({ from }: { from: string }) {
  return readOnly() ? null : <a href={`${paths.make('sandbox')}?from=${encodeURIComponent(from)}`}>New sandbox</a>;
}

/** The log of a build, as it comes. */
function Build({ id }: { id: string }) {
  const [lines, set] = useState<BuildLog[]>([]);
  const [end, setEnd] = useState<TemplateBuild>();
  const [failed, fail] = useState('');
  const next = useRef(0);
  useEffect(() => {
    const scope = new AbortController();
    void follow(
      (signal) => sandboxes.followBuild({ build: id, from: next.current }, { signal }),
      (m) => {
        if (m.logs.length) set((old) => [...old, ...m.logs].slice(-5000));
        next.current = m.next || next.current;
        if (m.build) setEnd(m.build);
        return !m.build;
      },
      scope.signal,
    ).catch((err) => fail(notFound(err) ? 'The log is not there any more: a server keeps those of the builds that it has made itself.' : words(err)));
    return () => scope.abort();
  }, [id]);
  return (
    <section class="build" aria-label="Log of the build">
      <header>
        <b>Log of the build</b> <small class="mono faint">{visible(id)}</small> <span role="status">{end ? (end.ready ? 'it is ready' : `it failed: ${visible(end.reason)}`) : failed ? '' : 'it goes on'}</span>
      </header>
      {failed && <p class="error">{failed}</p>}
      {lines.length > 0 && (
        <pre tabIndex={0}>
          {lines.map((l) => `${l.step ? `[${l.step}] ` : ''}${visible(l.message.trimEnd())}\n`).join('')}
        </pre>
      )}
    </section>
  );
}
