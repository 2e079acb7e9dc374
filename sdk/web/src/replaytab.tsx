// The frame of a replay; what plays it is loaded when one is opened.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Info } from '../../js/src/gen/tend/v1/spec_pb.js';
import { place, words } from './api.js';
import { DownloadButton } from './parts.js';
import type { Replay, ReplayState } from './replay.js';
import { drawable, type Size } from './sizes.js';

const speeds = [0.5, 1, 2, 4, 16];

/** A length of time as players show it. */
function duration(ms: number): string {
  const s = Math.floor(ms / 1000);
  const rest = `${String(s % 60).padStart(2, '0')}.${Math.floor((ms % 1000) / 100)}`;
  return s < 3600 ? `${Math.floor(s / 60)}:${rest}` : `${Math.floor(s / 3600)}:${String(Math.floor(s / 60) % 60).padStart(2, '0')}:${rest}`;
}

export function ReplayTab({ info, box }: { info: Info; box: string }) {
  const at = useRef<HTMLDivElement>(null);
  const replay = useRef<Replay | undefined>(undefined);
  const [state, set] = useState<ReplayState>();
  const [error, fail] = useState('');
  const [first, setFirst] = useState(drawable(info.spec?.pty));
  useEffect(() => {
    let closed = false;
    import('./replay.js').then(
      ({ Replay }) => {
        if (!closed) replay.current = new Replay(at.current!, place(box), info, set);
      },
      () => fail('The player could not be loaded; tend may have been upgraded. Load the page anew.'),
    );
    return () => {
      closed = true;
      replay.current?.close();
    };
  }, [info.id, box]);
  const resize = (some: Partial<Size>) => {
    const wanted = { ...first, ...some };
    if (![wanted.cols, wanted.rows].every((n) => Number.isInteger(n) && n >= 1)) return;
    const size = drawable(wanted);
    setFirst(size);
    replay.current?.resize(size);
  };
  const empty = state?.loaded && info.streams.every((s) => s.end === 0n);
  return (
    <section class="tty" aria-label="Replay">
      {(error || state?.error) && (
        <p class="error" role="alert">
          {error || state?.error}
        </p>
      )}
      <div class="film" ref={at} />
      <div class="toolbar player">
        <button class="primary" disabled={!state?.loaded || state.length === 0} onClick={() => replay.current?.play(!state?.playing)}>
          {state?.playing ? 'Pause' : 'Play'}
        </button>
        <input
          type="range"
          aria-label="Time"
          min={0}
          max={state?.length || 1}
          step="any"
          value={state?.at ?? 0}
          disabled={!state?.loaded}
          aria-valuetext={`${duration(state?.at ?? 0)} of ${duration(state?.length ?? 0)}`}
          onInput={(e) => replay.current?.seek(Number(e.currentTarget.value))}
        />
        <span class="clock">
          {duration(state?.at ?? 0)} / {duration(state?.length ?? 0)}
        </span>
        <select aria-label="Speed" defaultValue="1" onChange={(e) => replay.current?.speed(Number(e.currentTarget.value))}>
          {speeds.map((n) => (
            <option key={n} value={n} selected={n === 1}>
              {n}{'\u00d7'}
            </option>
          ))}
        </select>
        {state?.loaded && !state.sized && (
          <>
            <label>
              Columns <input type="number" min={1} max={1000} value={first.cols} onChange={(e) => resize({ cols: Number(e.currentTarget.value) })} />
            </label>
            <label>
              Rows <input type="number" min={1} max={1000} value={first.rows} onChange={(e) => resize({ rows: Number(e.currentTarget.value) })} />
            </label>
          </>
        )}
        <DownloadButton label="Export as asciinema" run={async (came, scope) => (await import('./replay.js')).exportCast(place(box), info, first, came, scope)} fail={(err) => fail(words(err))} />
      </div>
      <footer class="statusline">
        {state?.loaded && (
          <span title="Columns and rows of the terminal at this moment">
            {state.size.cols}{'\u00d7'}{state.size.rows}
          </span>
        )}
        {state?.loaded && !state.sized && !empty && <span class="faint">an older tend started it, and recorded no changes of its size: set it here</span>}
        <span class="grow" />
        <span role="status">{!state?.loaded ? 'loading\u2026' : empty ? 'it has written nothing' : ''}</span>
        {info.streams.some((s) => s.base > 0n || s.end > 16n << 20n) && <span>only the newest part</span>}
      </footer>
    </section>
  );
}
