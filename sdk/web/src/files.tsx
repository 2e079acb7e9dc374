// Files of the machine or of a sandbox: a tree, and what is chosen in it. Directory,
// file and line are in the address.

import { useEffect, useRef, useState } from 'preact/hooks';
import { FileType, type FileEntry } from '../../js/src/gen/tend/v1/sandbox_pb.js';
import { notFound, place, repeat, words } from './api.js';
import { write } from './content.js';
import { Download, FileView } from './fileview.js';
import { millis, size, visible } from './format.js';
import { Dialog, Notice } from './parts.js';
import { amend, go, paths, usePlace } from './router.js';
import { readOnly } from './session.js';
import { useStore } from './store.js';
import { Tree } from './tree.js';
import { dropped, UploadList, Uploads } from './upload.js';

const rowHeight = 30;
const parentOf = (path: string) => path.slice(0, path.lastIndexOf('/')) || '/';
const join = (dir: string, name: string) => `${dir === '/' ? '' : dir}/${name}`;

/** What the address names: undefined while it is asked. */
function useEntry(box: string, path: string, turn: number): { entry?: FileEntry; error?: string; gone?: boolean } {
  const [got, set] = useState<{ of?: string; entry?: FileEntry; error?: string; gone?: boolean }>({});
  useEffect(() => {
    const scope = new AbortController();
    // Without a path: where programs of the place begin.
    repeat(() => place(box).files.statFile({ path: path || (box ? '.' : '~') }, { signal: scope.signal }), scope.signal).then(
      ({ entry }) => set({ of: path, entry: entry! }),
      (err) => !scope.signal.aborted && set({ of: path, error: words(err), gone: notFound(err) }),
    );
    return () => scope.abort();
  }, [box, path, turn]);
  return got.of === path ? got : {};
}

export function FilesPage({ box }: { box: string }) {
  if (readOnly())
    return (
      <main>
        <Notice title="Files are not for this login">
          <p>It only reads, and files may hold what gives more rights than that. Log in with the token, or by a link of tend ui, to see them.</p>
          <a href={paths.home}>Go to the overview</a>
        </Notice>
      </main>
    );
  return <Files box={box} />;
}

function Files({ box }: { box: string }) {
  const { query } = usePlace();
  const path = query.get('path') ?? '';
  const [turn, setTurn] = useState(0);
  const { entry, error, gone } = useEntry(box, path, turn);
  const [root, setRoot] = useState('');
  useEffect(() => {
    document.title = `${visible(path.split('/').pop() || 'Files')} \u2013 tend`;
  }, [path]);
  // The tree stays where it is while what is chosen is in it.
  useEffect(() => {
    if (!entry) return;
    const above = root === '/' || entry.path === root || entry.path.startsWith(`${root}/`);
    if (!root || !above) setRoot(entry.type === FileType.DIR ? entry.path : parentOf(entry.path));
  }, [entry?.path]);
  const uploads = useUploads(() => setTurn((n) => n + 1));
  if (error && !root)
    return (
      <main>
        <Crumbs box={box} path={path} choose={() => undefined} />
        <Notice kind="bad" title={gone ? 'There is no such file' : 'This cannot be shown'}>
          <p>{visible(error)}</p>
          <button onClick={() => setTurn(turn + 1)}>Try again</button>
        </Notice>
      </main>
    );
  const chosen = entry?.path ?? path;
  return (
    <main class="files">
      <Crumbs box={box} path={chosen || root} choose={setRoot} />
      <div class={`split ${entry && entry.type !== FileType.DIR ? 'onfile' : ''}`}>
        {root ? <TreeView key={root} box={box} root={root} chosen={chosen} turn={turn} refresh={() => setTurn(turn + 1)} /> : <div class="tree ghost" aria-busy="true" />}
        <section class="chosen" aria-label="Chosen file">
          {error ? (
            <Notice kind="bad" title={gone ? 'There is no such file' : 'This cannot be shown'}>
              <p>{visible(error)}</p>
            </Notice>
          ) : !entry ? (
            <div class="filebody ghost" aria-busy="true" />
          ) : entry.type === FileType.DIR ? (
            <Directory key={entry.path} box={box} entry={entry} uploads={uploads} changed={() => setTurn(turn + 1)} />
          ) : (
            <>
              <FileHead box={box} entry={entry} changed={() => setTurn(turn + 1)} />
              <FileView key={entry.path} at={{ box, path: entry.path }} entry={entry} line={Number(query.get('line') ?? 0) || 0} />
            </>
          )}
        </section>
      </div>
      <UploadList uploads={uploads} />
    </main>
  );
}

function useUploads(done: () => void): Uploads {
  const [, draw] = useState({});
  const later = useRef(done);
  later.current = done;
  const all = useRef<Uploads | undefined>(undefined);
  all.current ??= new Uploads(
    () => draw({}),
    () => later.current(),
  );
  useEffect(() => () => all.current!.clear(), []);
  return all.current;
}

function Crumbs({ box, path, choose }: { box: string; path: string; choose: (root: string) => void }) {
  const store = useStore();
  const parts = path.split('/').filter(Boolean);
  const nav = useRef<HTMLElement>(null);
  // The end of a long path is what one wants to see.
  useEffect(() => {
    if (nav.current) nav.current.scrollLeft = nav.current.scrollWidth;
  }, [path]);
  return (
    <div class="filecrumbs">
      <select aria-label="Place" value={box} onChange={(e) => go(paths.files('', e.currentTarget.value))}>
        <option value="">this machine</option>
        {[...store.sandboxes.values()].map(({ sandbox: b }) => b && (
          <option value={b.id} key={b.id}>
            {visible(b.name || b.id)}
          </option>
        ))}
        {box && !store.sandboxes.has(box) && <option value={box}>{visible(box)}</option>}
      </select>
      <nav aria-label="Path" class="mono" ref={nav}>
        <a href={paths.files('/', box)} onClick={() => choose('/')}>
          /
        </a>
        {parts.map((p, n) => {
          const to = `/${parts.slice(0, n + 1).join('/')}`;
          return (
            <span key={to}>
              {n > 0 && <i>/</i>}
              <a href={paths.files(to, box)} onClick={() => n < parts.length - 1 && choose(to)}>
                <bdi>{visible(p)}</bdi>
              </a>
            </span>
          );
        })}
      </nav>
    </div>
  );
}

function TreeView({ box, root, chosen, turn, refresh }: { box: string; root: string; chosen: string; turn: number; refresh: () => void }) {
  const [match, setMatch] = useState('');
  const [, draw] = useState({});
  const [at, setAt] = useState(-1);
  const [top, setTop] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const tree = useRef<Tree | undefined>(undefined);
  useEffect(() => {
    const wait = setTimeout(
      () => {
        tree.current?.close();
        tree.current = new Tree(place(box), root, match, () => draw({}));
        setAt(-1);
        draw({});
      },
      match ? 200 : 0,
    );
    return () => clearTimeout(wait);
  }, [box, root, match]);
  useEffect(() => () => tree.current?.close(), []);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) tree.current?.refresh();
    first.current = false;
  }, [turn]);
  const t = tree.current;
  const length = t?.length ?? 0;
  const seen = Math.ceil((list.current?.clientHeight ?? 600) / rowHeight) + 10;
  const from = Math.max(0, Math.floor(top / rowHeight) - 5);
  const rows = t ? Array.from({ length: Math.max(0, Math.min(length, from + seen) - from) }, (_, n) => ({ n: from + n, ...t.row(from + n) })) : [];
  const choose = (n: number, unfold?: boolean) => {
    const row = t?.row(n);
    setAt(n);
    if (!row?.entry) return;
    if (row.entry.type === FileType.DIR && unfold !== undefined) t!.toggle(n, unfold);
    else amend({ path: row.entry.path, line: '' }, true);
  };
  const press = (e: KeyboardEvent) => {
    if (!t) return;
    const row = at >= 0 ? t.row(at) : undefined;
    const to = (n: number) => {
      n = Math.max(0, Math.min(t.length - 1, n));
      setAt(n);
      const b = list.current!;
      if (n * rowHeight < b.scrollTop) b.scrollTop = n * rowHeight;
      else if ((n + 1) * rowHeight > b.scrollTop + b.clientHeight) b.scrollTop = (n + 1) * rowHeight - b.clientHeight;
    };
    const lines = Math.floor((list.current?.clientHeight ?? 300) / rowHeight) - 1;
    if (e.key === 'ArrowDown' || e.key === 'j') to(at + 1);
    else if (e.key === 'ArrowUp' || e.key === 'k') to(at - 1);
    else if (e.key === 'PageDown') to(at + lines);
    else if (e.key === 'PageUp') to(at - lines);
    else if (e.key === 'Home') to(0);
    else if (e.key === 'End') to(t.length - 1);
    else if (e.key === 'ArrowRight' && row?.entry?.type === FileType.DIR) t.toggle(at, true);
    else if (e.key === 'ArrowLeft' && row) {
      if (row.open) t.toggle(at, false);
      else for (let n = at - 1; n >= 0; n--) {
        if (t.row(n).depth >= row.depth) continue;
        to(n);
        break;
      }
    } else if (e.key === 'Enter' && at >= 0) choose(at);
    else return;
    e.preventDefault();
    e.stopPropagation();
  };
  return (
    <section class="tree" aria-label="Directory">
      <div class="toolbar">
        <input id="search" type="search" placeholder="Filter names" aria-label="Filter the names of this directory" value={match} onInput={(e) => setMatch(e.currentTarget.value)} spellcheck={false} />
        <button onClick={refresh} title="Read the directory anew" aria-label="Refresh">
          {'\u21bb'}
        </button>
      </div>
      <div
        class="treerows"
        ref={list}
        role="tree"
        tabIndex={0}
        aria-label="Files"
        aria-activedescendant={at >= 0 ? `row-${at}` : undefined}
        onKeyDown={press}
        onScroll={(e) => setTop(e.currentTarget.scrollTop)}
      >
        <div style={{ height: `${length * rowHeight}px` }}>
          {rows.map((r) => {
            const e = r.entry;
            const style = { top: `${r.n * rowHeight}px`, paddingLeft: `${10 + 16 * r.depth}px` };
            if (!e)
              return (
                <div class="treerow faint" role="treeitem" key={`n${r.n}`} style={style} aria-level={r.depth + 1}>
                  <i />
                  {visible(r.note ?? '\u2026')}
                </div>
              );
            const dir = e.type === FileType.DIR;
            return (
              <div
                class={`treerow ${e.path === chosen ? 'is' : ''} ${r.n === at ? 'at' : ''}`}
                id={`row-${r.n}`}
                key={e.path}
                role="treeitem"
                aria-level={r.depth + 1}
                aria-posinset={r.place![0]}
                aria-setsize={r.place![1]}
                aria-selected={e.path === chosen}
                {...(dir ? { 'aria-expanded': !!r.open } : {})}
                style={style}
                title={`${visible(e.path)}${e.target ? ` \u2192 ${visible(e.target)}` : ''}`}
                onClick={(ev) => choose(r.n, dir && (ev.target as Element).closest('i') ? !r.open : undefined)}
                onDblClick={() => dir && t!.toggle(r.n)}
              >
                <i aria-hidden="true">{dir ? (r.open ? '\u25be' : '\u25b8') : ''}</i>
                <span class={dir ? 'name dir' : 'name'}>
                  <bdi>{visible(e.name)}</bdi>
                  {e.target && <span class="faint"> {'\u2192'}</span>}
                </span>
                <span class="faint num">{dir || e.type === FileType.OTHER ? '' : size(e.size)}</span>
              </div>
            );
          })}
        </div>
      </div>
      <footer class="statusline">{t?.total === undefined ? '' : `${t.total.toLocaleString('en')} ${t.total === 1 ? 'entry' : 'entries'}${match ? ' found' : ''}`}</footer>
    </section>
  );
}

const octal = (mode: number) => mode.toString(8).padStart(3, '0');

function Facts({ entry }: { entry: FileEntry }) {
  return (
    <p class="faint filefacts">
      {visible(entry.owner)}:{visible(entry.group)} <span class="mono">{octal(entry.mode)}</span>
      {entry.modified && <time dateTime={new Date(millis(entry.modified)).toISOString()}>{new Date(millis(entry.modified)).toLocaleString()}</time>}
      {entry.target && (
        <span class="mono">
          {'\u2192'} {visible(entry.target)}
        </span>
      )}
    </p>
  );
}

type Ask = 'file' | 'dir' | 'move' | 'remove' | undefined;

function FileHead({ box, entry, changed }: { box: string; entry: FileEntry; changed: () => void }) {
  const [ask, setAsk] = useState<Ask>();
  return (
    <header class="filehead">
      <a class="back tolist" href={paths.files(parentOf(entry.path), box)}>
        {'\u2190'} {visible(parentOf(entry.path).split('/').pop() || '/')}
      </a>
      <h1>
        <bdi>{visible(entry.name)}</bdi>
      </h1>
      <Facts entry={entry} />
      <div class="actions">
        <button onClick={() => setAsk('move')}>Move</button>
        <button class="danger" onClick={() => setAsk('remove')}>
          Remove
        </button>
      </div>
      {ask && <Change what={ask} box={box} entry={entry} close={() => setAsk(undefined)} changed={changed} />}
    </header>
  );
}

function Directory({ box, entry, uploads, changed }: { box: string; entry: FileEntry; uploads: Uploads; changed: () => void }) {
  const [ask, setAsk] = useState<Ask>();
  const [error, fail] = useState('');
  const [over, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const take = (files: { file: File; name: string }[]) => uploads.add(box, entry.path, files);
  return (
    <div
      class={`directory ${over ? 'over' : ''}`}
      onDragOver={(e) => {
        if (!e.dataTransfer?.types.includes('Files')) return;
        e.preventDefault();
        setOver(true);
      }}
      onDragLeave={(e) => e.currentTarget === e.target && setOver(false)}
      onDrop={(e) => {
        e.preventDefault();
        setOver(false);
        fail('');
        dropped(e.dataTransfer!).then(take, (err) => fail(words(err)));
      }}
    >
      <header class="filehead">
        <h1>
          <bdi>{visible(entry.name || '/')}</bdi>
        </h1>
        <Facts entry={entry} />
      </header>
      <div class="actions">
        <button class="primary" onClick={() => input.current!.click()}>
          Upload files
        </button>
        <input
          ref={input}
          type="file"
          multiple
          hidden
          aria-label="Files to upload"
          onChange={(e) => {
            take([...(e.currentTarget.files ?? [])].map((file) => ({ file, name: file.name })));
            e.currentTarget.value = '';
          }}
        />
        <button onClick={() => setAsk('file')}>New file</button>
        <button onClick={() => setAsk('dir')}>New directory</button>
        <Download at={{ box, path: entry.path }} what="Archive" label="Download as tar" fail={fail} />
        {entry.path !== '/' && (
          <>
            <button onClick={() => setAsk('move')}>Move</button>
            <button class="danger" onClick={() => setAsk('remove')}>
              Remove
            </button>
          </>
        )}
      </div>
      {error && (
        <p class="error" role="alert">
          {visible(error)}
        </p>
      )}
      <p class="drop faint">Drop files or directories here to upload them. Choose a file to read it, or to change it.</p>
      {ask && <Change what={ask} box={box} entry={entry} close={() => setAsk(undefined)} changed={changed} />}
    </div>
  );
}

/** Asks for a name, or whether it is meant, and does it. */
function Change({ what, box, entry, close, changed }: { what: NonNullable<Ask>; box: string; entry: FileEntry; close: () => void; changed: () => void }) {
  const [error, fail] = useState('');
  const input = useRef<HTMLInputElement>(null);
  const { files } = place(box);
  const dir = entry.type === FileType.DIR && !entry.target;
  const act = async (e: Event) => {
    e.preventDefault();
    const name = input.current?.value ?? '';
    try {
      let to = '';
      if (what === 'remove') {
        await repeat(() => files.removeFile({ path: entry.path }));
        to = parentOf(entry.path);
      } else if (what === 'move') {
        await files.moveFile({ source: entry.path, destination: (to = name) });
      } else if (what === 'dir') {
        await files.makeDir({ path: (to = join(entry.path, name)) });
      } else {
        await write({ box, path: (to = join(entry.path, name)) }, new Blob(), 'new');
      }
      close();
      amend({ path: to, line: '' }, true);
      changed();
    } catch (err) {
      fail(words(err));
    }
  };
  const titles = { file: 'New file', dir: 'New directory', move: 'Move', remove: dir ? 'Remove it, and all that is in it?' : 'Remove it?' };
  return (
    <Dialog title={titles[what]} close={close}>
      <form class="change" onSubmit={(e) => void act(e)}>
        {what === 'remove' ? (
          <p>
            <bdi class="mono">{visible(entry.path)}</bdi> is gone for good then.
          </p>
        ) : (
          <>
            <label for="newname">{what === 'move' ? 'New path' : `Name, in ${visible(entry.path)}`}</label>
            <input id="newname" ref={input} required autofocus spellcheck={false} autocomplete="off" defaultValue={what === 'move' ? entry.path : ''} />
          </>
        )}
        {error && (
          <p class="error" role="alert">
            {visible(error)}
          </p>
        )}
        <footer>
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button class={what === 'remove' ? 'danger' : 'primary'}>{what === 'remove' ? 'Remove' : what === 'move' ? 'Move' : 'Create'}</button>
        </footer>
      </form>
    </Dialog>
  );
}
