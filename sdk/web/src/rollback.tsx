// Taking a repair, or what a turn of a chat has changed, back: what goes is shown, and asked about, before anything is done.

import { useState } from 'preact/hooks';
import { HealStatus, type Episode, type ServiceStatus } from '../../js/src/gen/tend/v1/service_pb.js';
import { repeat, services, words } from './api.js';
import type { Seen } from './episode.js';
import { visible } from './format.js';
import { Dialog, Notice } from './parts.js';
import { amend, paths } from './router.js';
import { readOnly } from './session.js';
import { Diff } from './timeline.js';

/** What a repair has changed for good: that of its last try. */
function lasting(seen: Seen): string {
  const all = [...seen.diffs.entries()].filter(([, d]) => !d.undone).sort(([a], [b]) => a - b);
  return all.at(-1)?.[1].text ?? '';
}

/** The button at a repair that has something to go back to. */
export function RollBack({ seen, e }: { seen: Seen; e: Episode }) {
  const [asking, ask] = useState(false);
  if (!e.ended || !e.canRollBack || e.takenBack || readOnly()) return null;
  return (
    <div class="healbar">
      <span class="faint">
        {e.commit ? (
          <>
            What helped is an ordinary commit, <code>{visible(e.commit.slice(0, 10))}</code>.
          </>
        ) : (
          'What helped is in no commit; the files as they were are kept.'
        )}
      </span>
      <span class="grow" />
      <button class="danger" onClick={() => ask(true)}>
        Take it back{'\u2026'}
      </button>
      {asking && <Sure id={e.id} what="repair" diffs={[lasting(seen)]} commit={!!e.commit} close={() => ask(false)} />}
    </div>
  );
}

/** The button at a turn of a chat that has something to go back to. */
export function RollBackTurn({ chat, turn, diffs }: { chat: string; turn: bigint; diffs: string[] }) {
  const [asking, ask] = useState(false);
  if (readOnly()) return null;
  return (
    <div class="healbar">
      <span class="faint">What this turn has changed is in no commit; the files as they were are kept.</span>
      <span class="grow" />
      <button class="danger" onClick={() => ask(true)}>
        Take it back{'\u2026'}
      </button>
      {asking && <Sure id={`${chat}/${turn}`} what="turn" diffs={diffs} commit={false} close={() => ask(false)} />}
    </div>
  );
}

interface Asked {
  id: string;
  what: 'repair' | 'turn';
  diffs: string[];
  commit: boolean;
  close: () => void;
}

function Sure({ id, what, diffs, commit, close }: Asked) {
  const [busy, work] = useState(false);
  const [refused, refuse] = useState('');
  const back = async () => {
    work(true);
    refuse('');
    try {
      const { episode } = await repeat(() => services.rollBackEpisode({ id })); // it is safe to repeat
      close();
      amend({ tab: 'healing', episode }, true);
    } catch (err) {
      refuse(words(err));
    }
    work(false);
  };
  return (
    <Dialog title={what === 'repair' ? 'Take this repair back?' : 'Take back what this turn has changed?'} close={close}>
      <div class="sure">
        <p>
          {commit ? 'The files that the repair committed become what they were before it, by a new commit' : `The files that the ${what} changed become what they were before it; nothing is committed`}. The service is restarted. If one of
          the files has changed since, nothing is done.
        </p>
        <p>
          Not undone is what the {what} did besides: {commit && 'files that it changed and did not commit, '}packages that it installed, and what its commands did outside of the project.
        </p>
        {diffs.some(Boolean) ? (
          diffs.map((diff, n) => diff && <Diff key={n} text={diff} title={what === 'repair' ? 'What the repair changed' : diffs.length === 1 ? 'What the turn changed' : `What the turn changed, ${n + 1} of ${diffs.length}`} />)
        ) : (
          <p class="faint">What it changed cannot be shown.</p>
        )}
        {refused && (
          <p class="error written" role="alert">
            {refused.split('\n').map(visible).join('\n')}
          </p>
        )}
        <div class="actions">
          <span class="grow" />
          <button onClick={close}>Keep it</button>
          <button class="danger" disabled={busy} onClick={() => void back()}>
            {busy ? 'Taking it back\u2026' : 'Take it back'}
          </button>
        </div>
      </div>
    </Dialog>
  );
}

/** Says of a repair that it was taken back, and of what took it back what that did. */
export function Backed({ e, s }: { e: Episode; s: ServiceStatus }) {
  const to = (id: string) => `${paths.service(s.name)}?tab=healing&episode=${encodeURIComponent(id)}`;
  if (e.takenBack)
    return (
      <div class="backed">
        <Notice title="This repair was taken back">
          <p>
            <a href={to(e.takenBack)}>See what was done</a>. It is not made again by itself for a day, unless something changes.
          </p>
        </Notice>
      </div>
    );
  if (!e.takesBack || !e.ended) return null;
  const done = e.status === HealStatus.READY;
  const turn = e.takesBack.includes('/');
  return (
    <div class="backed">
      <Notice kind={done ? '' : 'bad'} title={done ? (turn ? 'What a turn of the chat had changed was taken back' : 'The repair was taken back') : 'Nothing was taken back'}>
        <p class="written">{e.why.split('\n').map(visible).join('\n')}</p>
        <p>
          {turn ? <a href={`${paths.service(s.name)}?tab=chat`}>See the chat</a> : <a href={to(e.takesBack)}>See the repair</a>}
        </p>
      </Notice>
    </div>
  );
}
