// The output of a process: bar, window, map of the whole, search.

import { useEffect, useRef, useState } from 'preact/hooks';
import { Stream, type Info } from '../../js/src/gen/tend/v1/spec_pb.js';
import { repeat, words, type Place } from './api.js';
import { download } from './download.js';
import { grouped, size, visible } from './format.js';
import { OutputView, type Status } from './output.js';
import { DownloadButton } from './parts.js';
import { amend, usePlace } from './router.js';

const names: Record<string, Stream[]> = { stdout: [Stream.STDOUT], stderr: [Stream.STDERR], terminal: [Stream.PTY], both: [Stream.STDOUT, Stream.STDERR] };

interface Hit {
  stream: Stream;
  from: number;
  to: number;
}

/** Hits that are looked for at most. */
const mostHits = 1000;

export function Output({ info, at }: { info: Info; at: Place }) {
  const { query } = usePlace();
  const pty = !!info.spec?.pty;
  const chosen = pty ? 'terminal' : names[query.get('s') ?? ''] && query.get('s') !== 'terminal' ? query.get('s')! : 'both';
  const streams = names[chosen]!;
  const box = useRef<HTMLDivElement>(null);
  const view = useRef<OutputView | undefined>(undefined);
  const [status, setStatus] = useState<Status>();
  const [wrap, setWrap] = useState(true);
  const [times, setTimes] = useState(false);
  const [error, setError] = useState('');
  const offset = query.get('at');
  const asked = useRef(offset);

  useEffect(() => {
    const v = new OutputView(box.current!, at, info, streams, setStatus);
    view.current = v;
    const start = asked.current;
    asked.current = null;
    v.open(start && /^\d{1,15}$/.test(start) ? Number(start) : undefined).catch((err) => setError(words(err)));
    return () => v.close();
  }, [info.id, chosen]);

  const { search, hits, hit, jump, trouble } = useSearch(info, at, streams, (h) => {
    if (view.current?.reveal(h.stream, h.from)) return;
    if (streams.length > 1) {
      asked.current = String(h.from);
      amend({ s: h.stream === Stream.STDERR ? 'stderr' : 'stdout', at: String(h.from) });
    } else void view.current?.toOffset(h.from, true);
  });

  useEffect(() => {
    const begin = () => void view.current?.toStart();
    const press = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey || (e.target as Element).closest('input, textarea, select, .xterm, dialog')) return;
      if (e.key === 'f') view.current?.setFollowing(true);
      else if (e.key === 'G') void view.current?.toEnd();
      else if (e.key === 'w') setWrap((w) => !w);
      else if (e.key === 't') setTimes((t) => !t);
      else if (e.key === 'n') jump(1);
      else if (e.key === 'N') jump(-1);
      else return;
      e.preventDefault();
    };
    addEventListener('keydown', press);
    addEventListener('tend-begin', begin);
    return () => {
      removeEventListener('keydown', press);
      removeEventListener('tend-begin', begin);
    };
  }, [jump]);

  const bounds = status?.bounds ?? { base: 0, end: 0 };
  const empty = bounds.end === 0;
  const link = (e: MouseEvent) => {
    const row = (e.target as Element).closest<HTMLElement>('.at')?.parentElement;
    if (!row) return;
    const s = Number(row.dataset['stream']);
    const name = s === Stream.STDERR ? 'stderr' : s === Stream.STDOUT ? 'stdout' : '';
    if (!view.current?.reveal(s, Number(row.dataset['from']))) return;
    amend({ at: row.dataset['from']!, s: name === chosen || !name ? (query.get('s') ?? '') : query.get('s') === 'both' || !query.get('s') ? '' : name });
    const url = new URL(location.href);
    if (name) url.searchParams.set('s', name);
    url.searchParams.set('at', row.dataset['from']!);
    void navigator.clipboard?.writeText(url.href).catch(() => undefined);
  };

  return (
    <section class={`output ${wrap ? 'wrap' : ''} ${times ? 'times' : ''}`} aria-label="Output">
      <div class="toolbar">
        {!pty && (
          <select aria-label="Stream" value={chosen} onChange={(e) => amend({ s: e.currentTarget.value === 'both' ? '' : e.currentTarget.value, at: '' })}>
            <option value="both">stdout and stderr</option>
            <option value="stdout">stdout</option>
            <option value="stderr">stderr</option>
          </select>
        )}
        <form
          class="search"
          role="search"
          onSubmit={(e) => {
            e.preventDefault();
            const q = e.currentTarget.querySelector('input')!.value;
            if (q === (query.get('q') ?? '') && hits) jump(1);
            else amend({ q });
          }}
        >
          <input id="search" type="search" placeholder="Search (RE2)" aria-label="Search the output by a regular expression" defaultValue={query.get('q') ?? ''} spellcheck={false} />
          {query.get('q') && (
            <span class="hits" role="status">
              {trouble ? '' : !hits ? 'searching…' : hits.length === 0 ? 'no hits' : `${hit < 0 ? '' : `${hit + 1} of `}${hits.length}${hits.length === mostHits ? '+' : ''}${hit < 0 ? (hits.length === 1 ? ' hit' : ' hits') : ''}${search ? '…' : ''}`}
            </span>
          )}
          <button type="button" aria-label="Previous hit" disabled={!hits?.length} onClick={() => jump(-1)}>
            {'\u2191'}
          </button>
          <button type="button" aria-label="Next hit" disabled={!hits?.length} onClick={() => jump(1)}>
            {'\u2193'}
          </button>
        </form>
        <span class="grow" />
        <button onClick={() => void view.current?.toStart()} disabled={streams.length > 1} title="Beginning (g g)">
          Beginning
        </button>
        <button aria-pressed={!!status?.following} onClick={() => view.current?.setFollowing(!status?.following)} title="Follow (f)">
          Follow
        </button>
        <button aria-pressed={wrap} onClick={() => setWrap(!wrap)} title="Wrap long lines (w)">
          Wrap
        </button>
        <button aria-pressed={times} onClick={() => setTimes(!times)} title="When each line arrived (t)">
          Timestamps
        </button>
        <DownloadButton run={(came, scope) => download(at, info, streams, came, scope)} fail={(err) => setError(words(err))} />
      </div>
      {(error || status?.error || trouble) && (
        <p class="error" role="alert">
          {visible(error || status?.error || trouble || '')}
        </p>
      )}
      <div class="pane">
        <div class="scroll" ref={box} tabIndex={0} aria-label="Lines of output" onClick={link} />
        {streams.length === 1 && status && <Map status={status} hits={hits ?? []} go={(to) => void view.current?.toOffset(to, false)} />}
        {empty && status && !status.loading && (
          <p class="nothing">
            {info.exit ? 'It has written nothing.' : 'Nothing was written yet. What comes appears here.'}
          </p>
        )}
        {status?.loading && <span class="busy" aria-label="Loading" />}
      </div>
      <footer class="statusline">
        <span>{streams.length === 1 ? `byte ${grouped(status?.at ?? 0)} of ${grouped(bounds.end)}` : `${size(bounds.end)} in all`}</span>
        {streams.length === 1 && bounds.base > 0 && <span>the first {size(bounds.base)} are no longer kept</span>}
        {streams.length > 1 && status && !status.atStart && <span>only the newest part; choose stdout or stderr to see all of it</span>}
        <span class="grow" />
        {status?.trouble ? <span class="away">reconnecting…</span> : status?.following && !info.exit ? <span>following</span> : null}
      </footer>
    </section>
  );
}

/** Where in the whole the window is, and where the hits are. */
function Map({ status, hits, go }: { status: Status; hits: Hit[]; go: (offset: number) => void }) {
  const { base, end } = status.bounds;
  const length = Math.max(1, end - base);
  const percent = (at: number) => `${(100 * (at - base)) / length}%`;
  const jump = (e: PointerEvent) => {
    if (e.type === 'pointermove' && !(e.buttons & 1)) return;
    const r = (e.currentTarget as Element).getBoundingClientRect();
    if (e.type === 'pointerdown') (e.currentTarget as Element).setPointerCapture(e.pointerId);
    go(Math.round(base + (length * Math.max(0, Math.min(r.height, e.clientY - r.top))) / r.height));
  };
  const step = (e: KeyboardEvent) => {
    const by = { ArrowDown: 0.01, ArrowUp: -0.01, PageDown: 0.1, PageUp: -0.1 }[e.key];
    if (by === undefined) return;
    e.preventDefault();
    go(Math.round(Math.max(base, Math.min(end, status.at + by * length))));
  };
  return (
    <div
      class="map"
      role="slider"
      tabIndex={0}
      aria-orientation="vertical"
      aria-label="Place in the output"
      aria-valuemin={base}
      aria-valuemax={end}
      aria-valuenow={status.at}
      aria-valuetext={`byte ${status.at} of ${end}`}
      onPointerDown={jump}
      onPointerMove={jump}
      onKeyDown={step}
    >
      {hits.map((h) => (
        <i key={`${h.stream}-${h.from}`} style={{ top: percent(h.from) }} />
      ))}
      <b style={{ top: percent(status.following ? end : status.at) }} />
    </div>
  );
}

/** Looks for the pattern of the address, on the server. */
function useSearch(info: Info, at: Place, streams: Stream[], show: (h: Hit) => void) {
  const { query } = usePlace();
  const pattern = query.get('q') ?? '';
  const [hits, setHits] = useState<Hit[]>();
  const [search, setSearch] = useState(false);
  const [trouble, setTrouble] = useState('');
  const [hit, setHit] = useState(-1);
  const key = streams.join();
  const last = useRef('');
  useEffect(() => {
    setTrouble('');
    const known = last.current === pattern;
    last.current = pattern;
    if (!known) setHit(-1);
    setHits(undefined);
    if (!pattern) return;
    const scope = new AbortController();
    setSearch(true);
    void (async () => {
      const found: Hit[] = [];
      let drawn = 0;
      try {
        // The server may die meanwhile: the next one searches from the beginning.
        await repeat(async () => {
          found.length = 0;
          for await (const { found: f } of at.views.grep({ process: { by: { case: 'id', value: info.id } }, pattern, streams, limit: BigInt(mostHits), stripAnsi: true, maxLine: 64 }, { signal: scope.signal })) {
            if (f.case !== 'match' || f.value.context) continue;
            found.push({ stream: f.value.stream, from: Number(f.value.from), to: Number(f.value.to) });
            if (performance.now() - drawn > 200) {
              drawn = performance.now();
              setHits([...found]);
            }
          }
        }, scope.signal);
      } catch (err) {
        if (!scope.signal.aborted) setTrouble(words(err));
      }
      if (scope.signal.aborted) return;
      setHits(found);
      setSearch(false);
    })();
    return () => scope.abort();
  }, [pattern, key, info.id]);
  const jump = (by: number) => {
    if (!hits?.length) return;
    const n = (hit + by + hits.length + (hit < 0 && by < 0 ? 1 : 0)) % hits.length;
    setHit(n);
    show(hits[n]!);
  };
  return { search, hits, hit, jump, trouble };
}
