// One file: its text in an editor, its picture, or what it is.

import { useEffect, useRef, useState } from 'preact/hooks';
import { hasCode } from '../../js/src/errors.js';
import { FileType, type FileBeforeResponse, type FileEntry } from '../../js/src/gen/tend/v1/sandbox_pb.js';
import { notFound, place, repeat, words } from './api.js';
import { Conflict, fetchAll, keep, read, versionOf, write, type At, type Part } from './content.js';
import type { Editor } from './editor.js';
import { age, millis, size, visible } from './format.js';
import { DownloadButton, Notice } from './parts.js';
import { amend, paths } from './router.js';
import { store } from './store.js';

/** Text up to this size is edited, in bytes; of what is larger, this much is shown. */
const editable = 2 << 20;
/** Pictures up to this size are shown. */
const pictured = 32 << 20;

const pictures: Record<string, string> = {
  png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp', avif: 'image/avif', bmp: 'image/bmp', ico: 'image/x-icon', svg: 'image/svg+xml',
};

export const pictureKind = (path: string) => pictures[/\.([a-z]+)$/i.exec(path)?.[1]?.toLowerCase() ?? ''];

/** What was typed and not saved, by place and path: it is there again when one comes back. */
const drafts = new Map<string, { text: string; version: string }>();
addEventListener('beforeunload', (e) => drafts.size > 0 && e.preventDefault());
const keyOf = (at: At) => `${at.box}\0${at.path}`;

/** Somebody else has written the file. */
const lostTo = (err: unknown) => err instanceof Conflict || hasCode(err, 'exists');

/** The text, or why it is none. */
function textOf({ data, size: all }: Part): { text?: string; why?: string } {
  if (data.subarray(0, 8192).includes(0)) return { why: 'It is not text: it has NUL bytes.' };
  try {
    return { text: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data, { stream: data.length < all }) };
  } catch {
    return { why: 'It is not text in UTF-8.' };
  }
}

export function FileView({ at, entry, line }: { at: At; entry: FileEntry; line: number }) {
  const kind = pictureKind(at.path);
  const [source, setSource] = useState(false);
  if (entry.type === FileType.OTHER)
    return (
      <Notice title="This is no regular file">
        <p>{entry.target ? 'It is a link that leads nowhere.' : 'It is a device, a socket or a pipe: there is nothing to show.'}</p>
      </Notice>
    );
  if (kind && !source && entry.size <= pictured) return <Picture at={at} kind={kind} entry={entry} toSource={kind === 'image/svg+xml' ? () => setSource(true) : undefined} />;
  return <Text at={at} line={line} toPicture={kind && entry.size <= pictured ? () => setSource(false) : undefined} />;
}

function Picture({ at, kind, entry, toSource }: { at: At; kind: string; entry: FileEntry; toSource: (() => void) | undefined }) {
  const [got, set] = useState<{ url?: string; error?: string; dimensions?: string }>({});
  useEffect(() => {
    const scope = new AbortController();
    let url = '';
    repeat(() => read(at, pictured, scope.signal), scope.signal).then(
      // As a picture nothing in it runs, and as this kind nothing else is made of it.
      ({ data }) => !scope.signal.aborted && set({ url: (url = URL.createObjectURL(new Blob([data], { type: kind }))) }),
      (err) => !scope.signal.aborted && set({ error: words(err) }),
    );
    return () => {
      scope.abort();
      if (url) URL.revokeObjectURL(url);
    };
  }, [at.box, at.path]);
  return (
    <div class="filebody">
      <Bar at={at} size={Number(entry.size)}>
        {got.dimensions && <span class="faint">{got.dimensions}</span>}
        {toSource && <button onClick={toSource}>Source</button>}
      </Bar>
      {got.error ? (
        <p class="error" role="alert">
          {visible(got.error)}
        </p>
      ) : (
        <div class="picture">
          {got.url && (
            <img
              src={got.url}
              alt={visible(entry.name)}
              onLoad={(e) => set({ ...got, dimensions: `${e.currentTarget.naturalWidth}\u00d7${e.currentTarget.naturalHeight}` })}
              onError={() => set({ error: 'It cannot be shown as a picture; download it to see what it is.' })}
            />
          )}
        </div>
      )}
    </div>
  );
}

function Bar({ at, size: bytes, children }: { at: At; size: number | undefined; children?: preact.ComponentChildren }) {
  const [error, fail] = useState('');
  return (
    <>
      <div class="toolbar">
        <span class="faint num">{bytes === undefined ? '' : size(bytes)}</span>
        {children}
        <span class="grow" />
        <Download at={at} what="Content" fail={fail} />
      </div>
      {error && (
        <p class="error" role="alert">
          {visible(error)}
        </p>
      )}
    </>
  );
}

export function Download({ at, what, fail, label }: { at: At; what: 'Content' | 'Archive'; fail: (why: string) => void; label?: string }) {
  const name = at.path.split('/').pop() || 'root';
  return (
    <DownloadButton
      {...(label ? { label } : {})}
      run={async (came, scope) => {
        fail('');
        keep(await fetchAll(at, what, came, scope), what === 'Archive' ? `${name}.tar` : name);
      }}
      fail={(err) => fail(what === 'Archive' ? `the archive is not whole: ${words(err)}` : words(err))}
    />
  );
}

interface Loaded {
  part?: Part;
  text?: string;
  why?: string;
  error?: string;
  gone?: boolean;
}

function Text({ at, line, toPicture }: { at: At; line: number; toPicture: (() => void) | undefined }) {
  const [got, set] = useState<Loaded>({});
  const [turn, again] = useState(0);
  useEffect(() => {
    const scope = new AbortController();
    set({});
    repeat(() => read(at, editable, scope.signal), scope.signal).then(
      (part) => !scope.signal.aborted && set({ part, ...textOf(part) }),
      (err) => !scope.signal.aborted && set({ error: words(err), gone: notFound(err) }),
    );
    return () => scope.abort();
  }, [at.box, at.path, turn]);
  if (got.error)
    return (
      <Notice kind="bad" title={got.gone ? 'It is not there any more' : 'This cannot be shown'}>
        <p>{visible(got.error)}</p>
        <button onClick={() => again(turn + 1)}>Try again</button>
      </Notice>
    );
  if (!got.part) return <div class="filebody ghost" aria-busy="true" />;
  if (got.text === undefined)
    return (
      <div class="filebody">
        <Bar at={at} size={got.part.size} />
        <Notice title="There is nothing to read here">
          <p>{got.why} Download it to open it with a program of its own.</p>
        </Notice>
      </div>
    );
  return <TextEditor key={turn} at={at} part={got.part} text={got.text} line={line} reload={() => again(turn + 1)} toPicture={toPicture} />;
}

function TextEditor({ at, part, text, line, reload, toPicture }: { at: At; part: Part; text: string; line: number; reload: () => void; toPicture: (() => void) | undefined }) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | undefined>(undefined);
  const whole = part.data.length >= part.size;
  const key = keyOf(at);
  const version = useRef(drafts.get(key)?.version ?? part.version);
  const saved = useRef(text);
  const [dirty, setDirty] = useState(drafts.has(key));
  const [state, set] = useState<{ busy?: boolean; said?: string; error?: string; uncompared?: string; conflict?: boolean; failed?: boolean }>(
    drafts.has(key) && drafts.get(key)!.version !== part.version ? { conflict: true } : {},
  );
  const busy = useRef(false);
  const [before, setBefore] = useState<FileBeforeResponse>();
  const [asking, ask] = useState(false);
  const [ready, setReady] = useState(false);

  const compare = async () => {
    if (before) return setBefore(undefined);
    ask(true);
    set({});
    try {
      setBefore(await repeat(() => place(at.box).files.fileBefore({ path: at.path })));
    } catch (err) {
      set({ uncompared: words(err) });
    }
    ask(false);
  };

  const save = async (anyway = false) => {
    const e = editor.current;
    if (!e || !whole || busy.current) return;
    busy.current = true;
    set({ busy: true });
    const now = e.text;
    try {
      const was = anyway ? await versionOf(at) : version.current;
      const body = new Blob([now]);
      let first = true;
      version.current = await repeat(async () => {
        try {
          return await write(at, body, was ? { version: was } : 'new');
        } catch (err) {
          // The first try may have come through before the connection was lost.
          if (first || !lostTo(err)) throw err;
          const there = await read(at, editable, new AbortController().signal);
          if (textOf(there).text !== now) throw err;
          return there.version;
        } finally {
          first = false;
        }
      });
      saved.current = now;
      const still = e.text !== now;
      if (!still) drafts.delete(key);
      else drafts.set(key, { text: e.text, version: version.current });
      setDirty(still);
      set({ said: 'Saved' });
    } catch (err) {
      set(lostTo(err) ? { conflict: true } : { error: words(err) });
    }
    busy.current = false;
  };

  useEffect(() => {
    let closed = false;
    import('./editor.js').then(
      ({ Editor }) => {
        if (closed) return;
        editor.current = new Editor(host.current!, {
          name: at.path.split('/').pop()!, text: drafts.get(key)?.text ?? text, writable: whole, line,
          changed: () => {
            const now = editor.current!.text;
            if (now === saved.current) drafts.delete(key);
            else drafts.set(key, { text: now, version: version.current });
            setDirty(now !== saved.current);
          },
          save: () => void save(),
          pick: (n) => {
            amend({ line: String(n) });
            void navigator.clipboard?.writeText(location.href).catch(() => undefined);
          },
        });
        setReady(true);
      },
      () => set({ failed: true }),
    );
    return () => {
      closed = true;
      editor.current?.close();
      editor.current = undefined;
    };
  }, []);
  useEffect(() => editor.current?.show(line), [line]);
  useEffect(() => {
    if (ready) editor.current?.compare(before?.changedBy && !before.why ? new TextDecoder('utf-8', { ignoreBOM: true }).decode(before.content) : undefined).catch(() => set({ failed: true }));
  }, [before, ready]);

  return (
    <div class="filebody">
      <Bar at={at} size={part.size}>
        {toPicture && <button onClick={toPicture}>Picture</button>}
        {whole && (
          <button aria-pressed={!!before} disabled={asking} onClick={() => void compare()} title="What has changed since before the last repair, or turn of a chat, that changed this file">
            Changes
          </button>
        )}
        <span class="said" role="status">
          {dirty ? 'not saved yet' : (state.said ?? '')}
        </span>
        {whole && (
          <button class={dirty ? 'primary' : ''} disabled={!dirty || !!state.busy} onClick={() => void save()} title="Save (Ctrl+S)">
            {state.busy ? 'Saving\u2026' : 'Save'}
          </button>
        )}
      </Bar>
      {state.error && (
        <p class="error" role="alert">
          It was not saved: {visible(state.error)}
        </p>
      )}
      {state.uncompared && (
        <p class="error" role="alert">
          It cannot be compared: {visible(state.uncompared)}
        </p>
      )}
      {before && <Compared before={before} />}
      {state.conflict && (
        <p class="error conflict" role="alert">
          <span>Somebody has changed this file since you opened it. Nothing was written.</span>
          <button
            onClick={() => {
              drafts.delete(key);
              reload();
            }}
          >
            Load what is there
          </button>
          <button class="danger" onClick={() => void save(true)}>
            Write mine over it
          </button>
        </p>
      )}
      {!whole && <p class="hint">It has {size(part.size)}: this is the first {size(part.data.length)}, and cannot be changed here. Download it for the rest.</p>}
      {state.failed && (
        <p class="error" role="alert">
          The editor could not be loaded; tend may have been upgraded. <button onClick={() => location.reload()}>Load the page anew</button>
        </p>
      )}
      <div class="editor" ref={host} />
    </div>
  );
}

/** With what a file is compared. */
function Compared({ before: b }: { before: FileBeforeResponse }) {
  if (!b.changedBy)
    return (
      <p class="hint" role="status">
        There is nothing to compare with: no repair and no turn of a chat has changed this file, as far as is kept.
      </p>
    );
  const turn = b.changedBy.includes('/');
  const to = `${paths.service(b.service)}?${turn ? 'tab=chat' : `tab=healing&episode=${encodeURIComponent(b.changedBy)}`}`;
  const what = (
    <>
      <a href={to}>{turn ? 'a turn of the chat' : 'the repair'}</a> of {visible(b.service)}, {age(store.now() - millis(b.at))} ago
    </>
  );
  return (
    <p class="hint" role="status">
      {b.why ? (
        <>What it was before {what}, cannot be shown: {visible(b.why)}.</>
      ) : b.existed ? (
        <>Compared with the state before {what}.</>
      ) : (
        <>It was made by {what}: before, it was not there.</>
      )}
    </p>
  );
}
