// What is done to repair a service: its episodes, and one of them as a timeline.

import { useEffect, useState } from 'preact/hooks';
import { HealStatus, type Episode, type ServiceStatus } from '../../js/src/gen/tend/v1/service_pb.js';
import { repeat, services, words } from './api.js';
import { used, useEpisode, type Seen } from './episode.js';
import { age, millis, visible } from './format.js';
import { Held } from './held.js';
import { Notice, State, type Health } from './parts.js';
import { amend, paths, usePlace } from './router.js';
import { Backed, RollBack } from './rollback.js';
import { readOnly } from './session.js';
import { useStore } from './store.js';
import { Timeline } from './timeline.js';

const states: Record<HealStatus, [Health, string]> = {
  [HealStatus.UNSPECIFIED]: ['done', 'no healer'],
  [HealStatus.RUNNING]: ['ok', 'nothing is wrong'],
  [HealStatus.SUSPECTED]: ['warn', 'looking'],
  [HealStatus.HEALING]: ['warn', 'healing'],
  [HealStatus.VERIFYING]: ['warn', 'verifying'],
  [HealStatus.READY]: ['ok', 'repaired'],
  [HealStatus.BROKEN]: ['broken', 'broken'],
};

function stateOf(e: Episode): [Health, string] {
  if (e.takesBack) return !e.ended ? ['warn', 'taking back'] : e.status === HealStatus.READY ? ['done', 'took back'] : ['broken', 'not taken back'];
  if (e.takenBack) return ['done', 'taken back'];
  return e.dryRun && e.ended ? ['done', 'only looked'] : (states[e.status] ?? ['warn', 'unknown']);
}

/** The episodes of a service, anew when the overview sees another or another state, or the one that is shown has ended. */
function useEpisodes(s: ServiceStatus, shown: string): { all: Episode[] | undefined; error: string } {
  const [all, set] = useState<Episode[]>();
  const [error, say] = useState('');
  useEffect(() => {
    const scope = new AbortController();
    repeat(() => services.listEpisodes({ service: s.name }, { signal: scope.signal }), scope.signal).then(
      (r) => (set(r.episodes), say('')),
      (err) => !scope.signal.aborted && say(words(err)),
    );
    return () => scope.abort();
  }, [s.name, s.episode, s.healing, shown]);
  return { all, error };
}

export function Healing({ s }: { s: ServiceStatus }) {
  const { query } = usePlace();
  const chosen = query.get('episode') ?? '';
  const [over, end] = useState('');
  const { all, error } = useEpisodes(s, `${chosen} ${over}`);
  const [said, say] = useState('');
  const [busy, work] = useState('');
  const id = chosen || (all?.[0]?.id ?? '');
  const seen = useEpisode(id);
  const latest = s.episode && !chosen && all && all[0]?.id !== s.episode;
  const open = !!seen?.episode && !seen.episode.ended;
  const ended = seen?.episode?.ended ? id : '';
  useEffect(() => end(ended), [ended]);
  const underWay = open || [HealStatus.SUSPECTED, HealStatus.HEALING, HealStatus.VERIFYING].includes(s.healing);

  const act = async (what: string, call: () => Promise<unknown>) => {
    say('');
    work(what);
    try {
      await call();
    } catch (err) {
      say(words(err));
    }
    work('');
  };
  const heal = (dryRun: boolean) =>
    act(dryRun ? 'look' : 'heal', async () => {
      const { episode } = await services.heal({ service: s.name, dryRun });
      amend({ episode: dryRun ? episode : '' });
    });

  return (
    <section class="healing" aria-label="Healing">
      <div class="healbar">
        <State health={states[s.healing]?.[0] ?? 'warn'} word={states[s.healing]?.[1] ?? 'unknown'} />
        <span class="grow" />
        <span class="said" role="status">
          {said}
        </span>
        {readOnly() ? null : underWay && open && !seen.episode!.takesBack ? (
          <button class="danger" disabled={!!busy} onClick={() => void act('stop', () => services.cancelHeal({ id }))} title="What it has changed is taken back">
            {busy === 'stop' ? 'Stopping\u2026' : 'Stop, and take back'}
          </button>
        ) : (
          <>
            <button disabled={!!busy || underWay} onClick={() => void heal(true)} title="Says what would be tried, and does nothing">
              What would be tried?
            </button>
            <button class="primary" disabled={!!busy || underWay} onClick={() => void heal(false)}>
              Heal now
            </button>
          </>
        )}
      </div>
      {error && <p class="error">{visible(error)}</p>}
      {all && all.length > 1 && <Choice all={all} id={id} />}
      {latest || (id && !seen) || (!all && !error) ? (
        <div class="timeline ghost" aria-busy="true" />
      ) : !id ? (
        <Notice title="Nothing was repaired yet">
          <p>When a restart does not help, the healer tries what it knows, and what it does is shown here while it happens.</p>
        </Notice>
      ) : seen!.gone ? (
        <Notice title="This repair is not kept any more">
          <p>The newest 50 are.</p>
          <button onClick={() => amend({ episode: '' })}>Show the newest</button>
        </Notice>
      ) : (
        <One seen={seen!} s={s} />
      )}
    </section>
  );
}

function Choice({ all, id }: { all: Episode[]; id: string }) {
  const store = useStore(true);
  return (
    <nav class="episodes" aria-label="Repairs">
      {all.slice(0, 30).map((e) => (
        <button key={e.id} aria-pressed={e.id === id} onClick={() => amend({ episode: e.id }, true)} title={e.id}>
          <State health={stateOf(e)[0]} word={stateOf(e)[1]} />
          <small>{age(store.now() - millis(e.opened))} ago</small>
        </button>
      ))}
    </nav>
  );
}

function One({ seen, s }: { seen: Seen; s: ServiceStatus }) {
  const store = useStore(true);
  const e = seen.episode;
  if (seen.trouble) return <Notice kind="bad" title="This cannot be shown">{visible(seen.trouble)}</Notice>;
  if (!e) return <div class="timeline ghost" aria-busy="true" />;
  const [health, word] = stateOf(e);
  const u = used(seen);
  const tokens = e.tries.reduce((n, t) => n + Number(t.tokens), 0);
  return (
    <>
      {e.status === HealStatus.BROKEN && e.ended && !e.dryRun && !e.takesBack && <Broken e={e} s={s} />}
      <dl class="facts">
        <div>
          <dt>{e.takesBack ? 'Taking back' : 'This repair'}</dt>
          <dd>
            <State health={health} word={e.ended ? word : `${word}\u2026`} />
          </dd>
        </div>
        <div>
          <dt>Began</dt>
          <dd>
            <time dateTime={new Date(millis(e.opened)).toISOString()} title={new Date(millis(e.opened)).toLocaleString()}>
              {age(store.now() - millis(e.opened))} ago
            </time>
          </dd>
        </div>
        <div>
          <dt>{e.ended ? 'Took' : 'So far'}</dt>
          <dd>{age((e.ended ? millis(e.ended) : store.now()) - millis(e.opened))}</dd>
        </div>
        {(u.read > 0 || tokens > 0) && (
          <div>
            <dt>Tokens</dt>
            <dd>{u.read > 0 ? `${u.read.toLocaleString()} read, ${u.written.toLocaleString()} written` : tokens.toLocaleString()}</dd>
          </div>
        )}
        {u.cost > 0 && (
          <div>
            <dt>Cost</dt>
            <dd title="By the prices of healer.llm.prices">{u.cost < 0.01 ? '< 0.01' : u.cost.toFixed(2)}</dd>
          </div>
        )}
        {e.commit && (
          <div>
            <dt>Commit</dt>
            <dd class="mono" title={e.commit}>
              {visible(e.commit.slice(0, 10))}
            </dd>
          </div>
        )}
        <div>
          <dt>{e.takesBack.includes('/') ? 'Turn of the chat' : 'Repair'}</dt>
          <dd class="mono">{e.takesBack || e.id}</dd>
        </div>
      </dl>
      <Backed e={e} s={s} />
      <Timeline seen={seen} e={e} />
      <Held key={`held ${e.id}`} e={e} />
      <RollBack key={e.id} seen={seen} e={e} />
    </>
  );
}

const sentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;

/** What broken means, and what a person does then. */
function Broken({ e, s }: { e: Episode; s: ServiceStatus }) {
  const [said, say] = useState('');
  if (s.healing !== HealStatus.BROKEN || s.episode !== e.id) return null; // it is not so any more
  const restart = async () => {
    say('');
    try {
      await services.restart({ names: [s.name] });
      say('It is being restarted.');
    } catch (err) {
      say(words(err));
    }
  };
  return (
    <section class="notice bad broken-help" role="alert">
      <h2>Broken: the healer has given up</h2>
      <p>
        {sentence(visible(e.why) || 'Nothing that it tried has helped')} {e.dirty ? '' : 'What it tried was taken back.'} It does nothing more by itself until a file of the project changes, the service recovers, or you ask.
      </p>
      {e.dirty && (
        <p class="error">
          Not all could be taken back. The last attempt below says which files, and where they are as they were.
        </p>
      )}
      <ol>
        <li>
          <a href={`${paths.service(s.name)}?tab=output`}>Look at the logs</a>, and below at the last attempts and what they tried.
        </li>
        <li>
          Fix the file. {e.proposal ? <span>The healer proposes: {visible(e.proposal)}</span> : 'A change that is saved has it started and, if need be, repaired anew.'}
        </li>
        <li>
          {readOnly() ? 'Restart' : <button onClick={() => void restart()}>Restart</button>} it and see whether it is well.{' '}
          <span class="said" role="status">
            {visible(said)}
          </span>
        </li>
        <li>
          Or <a href={`${paths.service(s.name)}?tab=chat`}>chat</a>: the model works on it with you, without a bound of attempts, and asks before it does more than the healer may. An agent of your own gets the service, its logs and a shell by{' '}
          <code>tend mcp</code>.
        </li>
      </ol>
    </section>
  );
}
