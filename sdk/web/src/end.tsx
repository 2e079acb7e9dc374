// How a process is ended or signalled by hand.

import { useState } from 'preact/hooks';
import type { KillResponse } from '../../js/src/gen/tend/v1/process_pb.js';
import type { Info } from '../../js/src/gen/tend/v1/spec_pb.js';
import { place, repeat, words, type Place } from './api.js';
import { signalName, visible } from './format.js';
import { Dialog } from './parts.js';
import { readOnly } from './session.js';

/** Signals to choose from. */
const asked = [15, 2, 1, 10, 12, 9];

export function Actions({ info, box, over }: { info: Info; box: string; over: boolean }) {
  const [killing, setKilling] = useState(false);
  const [said, say] = useState('');
  const at: Place = place(box);
  const process = { by: { case: 'id' as const, value: info.id } };
  const gone = over && info.treeGone;
  if ((gone && !killing) || readOnly()) return null; // what was killed may be told as gone before the answer is here
  const send = async (signal: number) => {
    try {
      await at.processes.signal({ process, signal });
      say(`${signalName(signal)} was sent`);
    } catch (err) {
      say(words(err));
    }
  };
  return (
    <div class="actions">
      <span class="said" role="status">
        {said}
      </span>
      {!over && (
        <select
          aria-label="Send a signal"
          value=""
          onChange={(e) => {
            const n = Number(e.currentTarget.value);
            e.currentTarget.value = '';
            if (n) void send(n);
          }}
        >
          <option value="">Signal…</option>
          {asked.map((n) => (
            <option value={n} key={n}>
              {signalName(n)}
            </option>
          ))}
        </select>
      )}
      {!gone && (
        <button class="danger" onClick={() => setKilling(true)}>
          Kill
        </button>
      )}
      {killing && <Kill at={at} info={info} close={() => setKilling(false)} />}
    </div>
  );
}

function Kill({ at, info, close }: { at: Place; info: Info; close: () => void }) {
  const [state, set] = useState<{ busy?: boolean; done?: KillResponse; error?: string }>({});
  const kill = async () => {
    set({ busy: true });
    try {
      set({ done: await repeat(() => at.processes.kill({ process: { by: { case: 'id', value: info.id } } })) });
    } catch (err) {
      set({ error: words(err) });
    }
  };
  const { done } = state;
  const names = (pids: number[]) => pids.map((p) => `${p}${done?.names[p] ? ` (${visible(done.names[p])})` : ''}`).join(', ');
  return (
    <Dialog title={done ? 'Killed' : 'Kill it, and all its descendants?'} close={close}>
      {!done && <p>SIGKILL ends it at once: it can save nothing. Its output stays.</p>}
      {state.error && (
        <p class="error" role="alert">
          {state.error}
        </p>
      )}
      {done && done.verified && <p>The kernel says that nothing of it is left.</p>}
      {done && !done.verified && done.survivors.length === 0 && <p>It has ended. This machine cannot tell whether something has left its tree and runs on.</p>}
      {done && done.survivors.length > 0 && <p class="error">These did not die: {names(done.survivors)}</p>}
      {done && done.strays.length > 0 && <p>These may belong to it, and run on: {names(done.strays)}</p>}
      <footer>
        <button onClick={close}>{done ? 'Close' : 'Cancel'}</button>
        {!done && (
          <button class="danger" disabled={!!state.busy} onClick={() => void kill()}>
            {state.busy ? 'Killing…' : 'Kill'}
          </button>
        )}
      </footer>
    </Dialog>
  );
}
