// A small notebook of a sandbox that has kernels: the cells of a context, whoever gave them, with their output and plots.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { CodeContext } from '../../js/src/gen/tend/v1/code_pb.js';
import { follow, place, repeat, words } from './api.js';
import { visible } from './format.js';
import { boxName } from './items.js';
import { Notice, Tabs } from './parts.js';
import { amend, paths, usePlace } from './router.js';
import { readOnly } from './session.js';
import { useStore } from './store.js';

/** Cells that are shown; letters of text and pictures of one. */
const mostCells = 100;
const mostText = 64 << 10;
const mostPictures = 8;
/** How often it is looked for a kernel that there is not yet. */
const every = 2000;

interface Event {
  type: string;
  cell?: string;
  code?: string;
  execution_count?: number;
  text?: string;
  png?: string;
  jpeg?: string;
  svg?: string;
  markdown?: string;
  html?: string;
  name?: string;
  value?: string;
  traceback?: string;
}

type Piece = { kind: 'stdout' | 'stderr' | 'result' | 'error'; text: string } | { kind: 'picture'; source: string };

export interface Cell {
  name: string;
  code: string;
  count: number;
  over: boolean;
  pieces: Piece[];
}

function picture(e: Event): string | undefined {
  if (e.png) return `data:image/png;base64,${e.png}`;
  if (e.jpeg) return `data:image/jpeg;base64,${e.jpeg}`;
  if (e.svg) return `data:image/svg+xml,${encodeURIComponent(e.svg)}`; // as an image: no script runs in it
  return undefined;
}

/** Adds an event to the cells of a context. */
export function add(cells: Cell[], name: string, e: Event): void {
  const of = name === '-' ? e.cell : name;
  if (!of || (name === '-' && e.type !== 'code')) return;
  let cell = cells.find((c) => c.name === of);
  if (!cell) {
    cells.push((cell = { name: of, code: '', count: 0, over: false, pieces: [] }));
    if (cells.length > mostCells) cells.shift();
  }
  const say = (kind: 'stdout' | 'stderr' | 'result' | 'error', text: string) => {
    const last = cell.pieces.at(-1);
    if (last?.kind === kind && (kind === 'stdout' || kind === 'stderr')) last.text = (last.text + text).slice(-mostText);
    else cell.pieces.push({ kind, text: text.slice(-mostText) });
    if (cell.pieces.length > 500) cell.pieces.shift();
  };
  if (e.type === 'code') cell.code = e.code ?? '';
  else if (e.type === 'number_of_executions') cell.count = e.execution_count ?? 0;
  else if (e.type === 'stdout' || e.type === 'stderr') say(e.type, e.text ?? '');
  else if (e.type === 'error') say('error', e.traceback || `${e.name}: ${e.value}`);
  else if (e.type === 'end_of_execution') cell.over = true;
  else if (e.type === 'result') {
    const source = picture(e);
    if (source && cell.pieces.filter((p) => p.kind === 'picture').length < mostPictures) cell.pieces.push({ kind: 'picture', source });
    else say('result', e.text ?? e.markdown ?? e.html ?? '(a value without text)');
  }
}

export function CodePage({ box }: { box: string }) {
  const store = useStore();
  const { query } = usePlace();
  const [contexts, setContexts] = useState<CodeContext[]>();
  const [failed, fail] = useState('');
  const [language, setLanguage] = useState('');
  const [asked, ask] = useState(0);
  useEffect(() => {
    const scope = new AbortController();
    repeat(() => place(box).code.listContexts({}, { signal: scope.signal }), scope.signal).then(
      (m) => setContexts(m.contexts),
      (err: unknown) => !scope.signal.aborted && fail(words(err)),
    );
    return () => scope.abort();
  }, [box, asked]);
  const chosen = contexts?.find((c) => c.id === query.get('context')) ?? contexts?.[0];
  const act = (work: () => Promise<unknown>) => {
    fail('');
    work()
      .then(() => ask((n) => n + 1))
      .catch((err: unknown) => fail(words(err)));
  };
  return (
    <main class="code">
      <header class="head">
        <div class="crumbs">
          <a class="back" href={paths.sandbox(box)}>
            {boxName(store, box)}
          </a>
        </div>
        <div class="title">
          <h1>Code</h1>
          <span class="grow" />
          {chosen && !readOnly() && (
            <>
              <form
                onSubmit={(e) => {
                  e.preventDefault();
                  act(async () => {
                    const { context } = await place(box).code.createContext({ language: language || chosen.language });
                    amend({ context: context!.id });
                  });
                }}
              >
                <input
                  aria-label="Language of a new context"
                  list="languages"
                  placeholder={chosen.language}
                  size={12}
                  spellcheck={false}
                  value={language}
                  onInput={(e) => setLanguage(e.currentTarget.value.trim())}
                />
                <datalist id="languages">
                  {['python', 'javascript', 'typescript', 'bash', 'r', 'java'].map((l) => (
                    <option key={l} value={l} />
                  ))}
                </datalist>
                <button type="submit">New context</button>
              </form>
              <button onClick={() => act(() => place(box).code.restartContext({ context: chosen.id }))}>Restart</button>
            </>
          )}
        </div>
      </header>
      {failed && (
        <p class="error" role="alert">
          {visible(failed)}
        </p>
      )}
      {contexts && (
        <Tabs label="Contexts">
          {contexts.map((c, n) => (
            <button key={c.id} aria-pressed={c === chosen} onClick={() => amend({ context: c.id })} title={`in ${visible(c.dir)}`}>
              {visible(c.language)} {n + 1}
            </button>
          ))}
        </Tabs>
      )}
      {chosen && <Cells key={chosen.id} box={box} context={chosen.id} />}
    </main>
  );
}

function Cells({ box, context }: { box: string; context: string }) {
  const [cells, set] = useState<Cell[]>([]);
  const [failed, fail] = useState('');
  useEffect(() => {
    const scope = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let frame = 0;
    const watch = async () => {
      let now: Cell[] = [];
      const show = () => {
        frame ||= requestAnimationFrame(() => {
          frame = 0;
          set(now.map((c) => ({ ...c, pieces: [...c.pieces] })));
        });
      };
      const open = (signal: AbortSignal) => {
        now = []; // it tells all again
        return place(box).code.followContext({ context }, { signal });
      };
      try {
        await follow(
          open,
          (m) => {
            if (m.goingAway) return 'again';
            if (m.event.length === 0) return true;
            try {
              add(now, m.cell, JSON.parse(new TextDecoder().decode(m.event)) as Event);
            } catch {
              return true; // of a kernel that somebody has changed
            }
            show();
            return true;
          },
          scope.signal,
        );
      } catch (err) {
        fail(words(err));
        return;
      }
      for (const c of now) c.over = true; // its kernel has ended
      if (now.length > 0) show();
      if (!scope.signal.aborted) timer = setTimeout(() => void watch(), every);
    };
    void watch();
    return () => {
      scope.abort();
      clearTimeout(timer);
      cancelAnimationFrame(frame);
    };
  }, [box, context]);
  const interrupt = (cell: string) =>
    repeat(() => place(box).code.cancelCell({ execution: `${context}.${cell}` })).catch((err: unknown) => fail(words(err)));
  return (
    <>
      {cells.length === 0 && <Notice title="No cell has run here yet" />}
      {cells.map((c) => (
        <section key={c.name} class="cell" aria-label={`Cell ${c.count || ''}`}>
          <div class="source">
            <span class="faint">[{c.over ? c.count : '*'}]</span>
            <pre>
              <bdi>{visible(c.code) || ' '}</bdi>
            </pre>
            {!c.over && !readOnly() && (
              <button class="quiet" onClick={() => void interrupt(c.name)}>
                Interrupt
              </button>
            )}
          </div>
          {c.pieces.map((p, n) => (p.kind === 'picture' ? <img key={n} src={p.source} alt={`Plot of cell ${c.count}`} /> : <Text key={n} kind={p.kind} text={p.text} />))}
        </section>
      ))}
      {failed && (
        <p class="error" role="alert">
          {visible(failed)}
        </p>
      )}
      {!readOnly() && <Next box={box} context={context} />}
    </>
  );
}

function Text({ kind, text }: { kind: string; text: string }) {
  return (
    <pre class={kind}>
      <bdi>{text.split('\n').map(visible).join('\n')}</bdi>
    </pre>
  );
}

/** The field for another cell. */
function Next({ box, context }: { box: string; context: string }) {
  const [code, set] = useState('');
  const [failed, fail] = useState('');
  const scope = useRef(new AbortController());
  useEffect(() => () => scope.current.abort(), []); // the cell runs on
  const run = () => {
    if (!code.trim()) return;
    const cell = [...crypto.getRandomValues(new Uint8Array(13))].map((b) => b.toString(16).padStart(2, '0')).join('');
    let again = false;
    const open = (signal: AbortSignal) => {
      const stream = place(box).code.runCell({ code, context, cell, again }, { signal });
      again = true;
      return stream;
    };
    set('');
    fail('');
    follow(open, (m) => (m.goingAway ? 'again' : true), scope.current.signal).catch((err: unknown) => fail(words(err)));
  };
  return (
    <form
      class="next"
      onSubmit={(e) => {
        e.preventDefault();
        run();
      }}
    >
      <textarea
        aria-label="Code of the next cell"
        placeholder="Code; Shift+Enter runs it"
        rows={Math.min(20, code.split('\n').length + 1)}
        spellcheck={false}
        value={code}
        onInput={(e) => set(e.currentTarget.value)}
        onKeyDown={(e) => {
          if (e.key !== 'Enter' || !e.shiftKey) return;
          e.preventDefault();
          run();
        }}
      />
      <button type="submit">Run</button>
      {failed && (
        <p class="error" role="alert">
          {visible(failed)}
        </p>
      )}
    </form>
  );
}
