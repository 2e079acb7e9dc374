// One process, or the newest run of a service: what it is, its output, its terminal,
// and how it is ended.

import { useEffect, useRef, useState } from 'preact/hooks';
import { Inherit, type Info, type Limits } from '../../client/src/gen/tend/v1/spec_pb.js';
import type { KillResponse } from '../../client/src/gen/tend/v1/process_pb.js';
import { HealStatus, type ServiceStatus } from '../../client/src/gen/tend/v1/service_pb.js';
import { notFound, place, repeat, services, words, type Place } from './api.js';
import { age, instant, millis, percent, signalName, size, visible } from './format.js';
import { ChatPanel } from './chat.js';
import { Healing } from './healing.js';
import { boxName, nameOf, processState, serviceState } from './items.js';
import { Output } from './log.js';
import { Dialog, Notice, Plot, State } from './parts.js';
import { Ports } from './ports.js';
import { amend, paths, usePlace } from './router.js';
import { useStore } from './store.js';
import { Labels } from './sandbox.js';
import { readOnly } from './session.js';
import { OpenTerminal } from './shell.js';
import { ReplayTab } from './replaytab.js';
import { TerminalTab } from './terminal.js';

export function ProcessPage({ id, box }: { id: string; box: string }) {
  const { info, error, gone } = useInfo(id, box);
  useEffect(() => {
    document.title = `${visible(info?.spec?.name || id)} \u2013 tend`;
  }, [info, id]);
  if (gone)
    return (
      <main>
        <Notice title="There is no such process">
          <p>It was removed, or has ended too long ago to be kept, or the address is wrong.</p>
          <a href={paths.home}>Go to the overview</a>
        </Notice>
      </main>
    );
  if (!info) return <Waiting error={error} />;
  return (
    <main class="process">
      <Head info={info} box={box} />
      <Body info={info} box={box} />
    </main>
  );
}

function Waiting({ error }: { error: string | undefined }) {
  return (
    <main class="process" aria-busy={!error}>
      {error ? <Notice kind="bad" title="This cannot be shown">{error}</Notice> : <div class="head ghost" />}
      <div class="output ghost" />
    </main>
  );
}

/** What is known of a process, anew when the overview sees a change. */
function useInfo(id: string, box: string): { info: Info | undefined; error: string | undefined; gone: boolean } {
  const store = useStore();
  const [got, set] = useState<{ info?: Info; error?: string; gone?: boolean }>({});
  const exited = !!store.processes.get(id)?.exit;
  useEffect(() => {
    const scope = new AbortController();
    repeat(() => place(box).processes.get({ process: { by: { case: 'id', value: id } } }, { signal: scope.signal }), scope.signal).then(
      (r) => set({ info: r.info! }),
      (err) => !scope.signal.aborted && set(notFound(err) ? { gone: true } : { error: words(err) }),
    );
    return () => scope.abort();
  }, [id, box, exited]);
  return { info: got.info, error: got.error, gone: !!got.gone };
}

function Head({ info, box }: { info: Info; box: string }) {
  const store = useStore(true);
  const live = store.processes.get(info.id);
  const exit = live?.exit ?? info.exit;
  const [health, word] = processState({ exit } as Parameters<typeof processState>[0]);
  const spec = info.spec!;
  const command = spec.shell || spec.argv.join(' ');
  return (
    <header class="head">
      <div class="crumbs">
        <a class="back" href={paths.home}>
          Overview
        </a>
        {box && (
          <a href={paths.sandbox(box)}>
            <bdi>{visible(boxName(store, box))}</bdi>
          </a>
        )}
      </div>
      <div class="title">
        <h1>
          <bdi>{visible(nameOf({ id: info.id, name: spec.name, tag: spec.tag }))}</bdi>
        </h1>
        <State health={health} word={word} />
        <span class="grow" />
        <div class="actions">
          <OpenTerminal box={box} of={info.id} />
        </div>
        <Actions info={info} box={box} over={!!exit} />
      </div>
      <p class="command mono" title={visible(command)}>
        <bdi>{visible(command.slice(0, 2000))}</bdi>
      </p>
      <dl class="facts">
        <Fact name="Started">
          <time dateTime={new Date(millis(info.started)).toISOString()} title={instant(millis(info.started))}>
            {age(store.now() - millis(info.started))} ago
          </time>
        </Fact>
        {exit ? (
          <>
            <Fact name="Ran for">{age(millis(exit.time) - millis(info.started))}</Fact>
            {exit.maxRss > 0 && <Fact name="Memory at most">{size(exit.maxRss)}</Fact>}
          </>
        ) : (
          <>
            <Fact name="PID">{info.pid}</Fact>
            {live?.cpu !== undefined && (
              <Fact name="CPU">
                <Plot values={store.plots.get(info.id)} /> {percent(live.cpu)}
              </Fact>
            )}
            {live?.memory !== undefined && <Fact name="Memory">{size(live.memory)}</Fact>}
          </>
        )}
        <Fact name="Output">{size(live?.written ?? info.streams.reduce((n, s) => n + s.end, 0n))}</Fact>
        {spec.dir && (
          <Fact name="Directory">
            <a class="mono" href={readOnly() ? undefined : paths.files(spec.dir, box)} title={readOnly() ? undefined : 'Show its files'}>
              <bdi>{visible(spec.dir)}</bdi>
            </a>
          </Fact>
        )}
        {spec.user && <Fact name="User">{visible(spec.user)}</Fact>}
        {spec.limits && <LimitFacts limits={spec.limits} />}
      </dl>
      <Labels all={spec.labels} />
      {!exit && <Ports box={box} process={info.id} open={store.sandboxes.get(box)?.sandbox?.network?.public !== false} />}
      {info.damaged && <p class="error">What is kept of it is damaged: {visible(info.damaged)}</p>}
    </header>
  );
}

/** The kernel's numbers of limits of a process, as Linux has them on most machines. */
const resources: Record<number, [name: string, bytes?: boolean]> = {
  0: ['CPU seconds at most'], 1: ['File at most', true], 2: ['Data at most', true], 3: ['Stack at most', true], 4: ['Core dump at most', true], 7: ['Open files at most'], 8: ['Locked memory at most', true], 9: ['Address space at most', true],
};

function LimitFacts({ limits: l }: { limits: Limits }) {
  return (
    <>
      {l.memoryMax > 0 && <Fact name="Memory limit">{size(l.memoryMax)}</Fact>}
      {l.pidsMax > 0 && <Fact name="Tasks at most">{l.pidsMax.toLocaleString('en')}</Fact>}
      {l.cpuWeight > 0 && <Fact name="CPU weight">{String(l.cpuWeight)}</Fact>}
      {l.nice !== 0 && <Fact name="Nice">{l.nice}</Fact>}
      {l.oomScoreAdj !== 0 && <Fact name="OOM score">{l.oomScoreAdj}</Fact>}
      {l.rlimits.map(({ resource, soft }) => {
        const [name, bytes] = resources[resource] ?? [`Limit ${resource}`];
        return (
          <Fact name={name} key={resource}>
            {soft >= 2n ** 63n ? 'none' : bytes ? size(soft) : soft.toLocaleString('en')}
          </Fact>
        );
      })}
    </>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

const asked = [15, 2, 1, 10, 12, 9];

function Actions({ info, box, over }: { info: Info; box: string; over: boolean }) {
  const [killing, setKilling] = useState(false);
  const [said, say] = useState('');
  const at: Place = place(box);
  const process = { by: { case: 'id' as const, value: info.id } };
  if ((over && info.treeGone) || readOnly()) return null;
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
      <button class="danger" onClick={() => setKilling(true)}>
        Kill
      </button>
      {killing && <Kill at={at} info={info} close={() => setKilling(false)} />}
    </div>
  );
}

function Kill({ at, info, close }: { at: Place; info: Info; close: () => void }) {
  const [state, set] = useState<{ busy?: boolean; done?: KillResponse; error?: string }>({});
  const kill = async () => {
    set({ busy: true });
    try {
      set({ done: await at.processes.kill({ process: { by: { case: 'id', value: info.id } } }) });
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

/** A service's tabs for what is done to repair it, beside those of its newest run. */
function HealingTab() {
  const { query } = usePlace();
  return (
    <>
      <button aria-pressed={query.get('tab') === 'healing'} onClick={() => amend({ tab: 'healing', at: '', s: '' })}>
        Healing
      </button>
      <button aria-pressed={query.get('tab') === 'chat'} onClick={() => amend({ tab: 'chat', at: '', s: '', episode: '' })}>
        Chat
      </button>
    </>
  );
}

function Body({ info, box, more }: { info: Info; box: string; more?: preact.ComponentChildren }) {
  const { query } = usePlace();
  const pty = !!info.spec?.pty;
  const tab = query.get('tab') ?? (pty && !info.exit ? 'terminal' : 'output');
  const show = (t: string) => amend({ tab: t, at: '', s: '' });
  return (
    <>
      <nav class="tabs" aria-label="Views">
        {pty && (
          <button aria-pressed={tab === 'terminal'} onClick={() => show('terminal')}>
            Terminal
          </button>
        )}
        <button aria-pressed={tab === 'output'} onClick={() => show('output')}>
          Output
        </button>
        <button aria-pressed={tab === 'environment'} onClick={() => show('environment')}>
          Environment
        </button>
        {pty && info.exit && (
          <button aria-pressed={tab === 'replay'} onClick={() => show('replay')}>
            Replay
          </button>
        )}
        {more}
      </nav>
      {tab === 'environment' ? <Environment info={info} /> : tab === 'replay' && pty && info.exit ? <ReplayTab key={info.id} info={info} box={box} /> : tab === 'terminal' && pty ? <TerminalTab info={info} box={box} /> : <Output key={info.id} info={info} at={place(box)} />}
    </>
  );
}

/** What a process has without variables of its own. */
const inherited: Record<Inherit, string> = {
  [Inherit.USER]: 'It has PATH of the daemon, and HOME, USER and LOGNAME of its user.',
  [Inherit.DAEMON]: 'It has the environment of the daemon, and HOME, USER and LOGNAME of its user.',
  [Inherit.NONE]: 'Its environment is empty.',
};

function Environment({ info }: { info: Info }) {
  const [shown, show] = useState<Set<string>>(new Set());
  const utf8 = useRef(new TextDecoder());
  const spec = info.spec!;
  const all: [string, string][] = [...Object.entries(spec.env), ...spec.rawEnv.map((v) => [utf8.current.decode(v.name), utf8.current.decode(v.value)] as [string, string])].sort(([a], [b]) => a.localeCompare(b));
  if (all.length === 0)
    return (
      <Notice title="No variables were given to it">
        <p>{inherited[spec.inherit]}</p>
      </Notice>
    );
  return (
    <div class="environment">
      <p class="faint">{readOnly() ? 'What it was started with. A login that only reads is not told the values, since many are secrets.' : 'What it was started with. Values are hidden, since many are secrets.'}</p>
      <dl>
        {all.map(([name, value]) => (
          <div key={name}>
            <dt class="mono">
              <bdi>{visible(name)}</bdi>
            </dt>
            <dd class="mono">
              {shown.has(name) ? <bdi>{visible(value)}</bdi> : <span aria-label="hidden">{'\u2022'.repeat(8)}</span>}
              {!readOnly() && <button class="quiet" onClick={() => show(new Set(shown.has(name) ? [...shown].filter((n) => n !== name) : [...shown, name]))} aria-label={`${shown.has(name) ? 'Hide' : 'Show'} ${visible(name)}`}>
                {shown.has(name) ? 'Hide' : 'Show'}
              </button>}
            </dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

export function ServicePage({ name }: { name: string }) {
  const store = useStore(true);
  const { query } = usePlace();
  const s = store.services.get(name);
  useEffect(() => {
    document.title = `${visible(name)} \u2013 tend`;
  }, [name]);
  if (!store.loaded) return <Waiting error={store.broken} />;
  if (!s)
    return (
      <main>
        <Notice title="There is no such service">
          <p>The tend.yaml that was applied last does not declare it.</p>
          <a href={`${paths.home}?kind=service`}>Go to the services</a>
        </Notice>
      </main>
    );
  const healed = s.healing !== HealStatus.UNSPECIFIED;
  const tab = query.get('tab') ?? '';
  const panel = healed && (tab === 'healing' || tab === 'chat');
  return (
    <main class="process">
      <ServiceHead s={s} since={store.inPhase(name)} />
      {panel ? (
        <>
          <nav class="tabs" aria-label="Views">
            <button aria-pressed={false} onClick={() => amend({ tab: '', episode: '' })}>
              Output
            </button>
            <button aria-pressed={false} onClick={() => amend({ tab: 'environment', episode: '' })}>
              Environment
            </button>
            <HealingTab />
          </nav>
          {tab === 'chat' ? <ChatPanel key={s.name} s={s} /> : <Healing s={s} />}
        </>
      ) : s.process ? (
        <Run key={s.process} id={s.process} box={store.processes.get(s.process)?.sandbox ?? ''} more={healed && <HealingTab />} />
      ) : s.adopted ? (
        <Notice title="tend did not start it, and has no output of it">
          <p>
            It ran already, and was adopted {adoptedBy(s)}. What it writes goes where it went before. {s.pid > 0 ? 'Restart it, and tend starts its own, with output, terminal and environment here.' : 'Its next run is tend\u2019s own.'}
          </p>
        </Notice>
      ) : (
        <Notice title="It has not run yet">
          <p>{visible(s.why) || 'Start it, and its output appears here.'}</p>
        </Notice>
      )}
    </main>
  );
}

/** How a process that tend did not start was found. */
function adoptedBy({ adoptedBy: by }: ServiceStatus): string {
  return by.case === 'adoptedPidFile' ? `by the pid file ${visible(by.value)}` : by.case === 'adoptedPort' ? `by port ${by.value}` : 'by its pid';
}

function Run({ id, box, more }: { id: string; box: string; more?: preact.ComponentChildren }) {
  const { info, error, gone } = useInfo(id, box);
  if (gone) return <Notice title="Its output is not there any more"><p>The newest run was removed. Start the service to see another.</p></Notice>;
  if (error) return <Notice kind="bad" title="This cannot be shown">{error}</Notice>;
  return info ? <Body info={info} box={box} more={more} /> : <div class="output ghost" />;
}

/** What the healer does or has done, with the way to it. */
function HealLine({ s }: { s: ServiceStatus }) {
  const { query } = usePlace();
  const lines: Partial<Record<HealStatus, string>> = {
    [HealStatus.SUSPECTED]: 'Something is wrong; it is being found out what.',
    [HealStatus.HEALING]: 'It is being repaired.',
    [HealStatus.VERIFYING]: 'Something was done; it is being seen whether it holds.',
    [HealStatus.BROKEN]: 'The healer has given up.',
    [HealStatus.READY]: 'It was repaired.',
  };
  const line = lines[s.healing];
  if (!line || query.get('tab') === 'healing') return null;
  return (
    <p class={s.healing === HealStatus.BROKEN ? 'error' : 'command'}>
      {line}{' '}
      <a href={`${paths.service(s.name)}?tab=healing`}>{s.healing === HealStatus.BROKEN ? 'What was tried, and what to do' : s.healing === HealStatus.READY ? 'What was done' : 'Watch'}</a>
    </p>
  );
}

function ServiceHead({ s, since }: { s: ServiceStatus; since: number }) {
  const store = useStore();
  const [said, say] = useState('');
  const [health, word] = serviceState(s);
  const p = store.processes.get(s.process);
  const act = async (what: 'start' | 'stop' | 'restart') => {
    say('');
    try {
      await services[what]({ names: [s.name] });
    } catch (err) {
      say(words(err));
    }
  };
  return (
    <header class="head">
      <div class="crumbs">
        <a class="back" href={paths.home}>
          Overview
        </a>
        <a href={`${paths.home}?kind=service`}>Services</a>
      </div>
      <div class="title">
        <h1>
          <bdi>{visible(s.name)}</bdi>
        </h1>
        <State health={health} word={word} />
        <span class="grow" />
        <div class="actions">
          <span class="said" role="status">
            {said}
          </span>
          {s.process && <OpenTerminal box={p?.sandbox ?? ''} of={s.process} />}
          {readOnly() ? null : s.up ? (
            <>
              <button onClick={() => void act('restart')}>Restart</button>
              <button class="danger" onClick={() => void act('stop')}>
                Stop
              </button>
            </>
          ) : (
            <button class="primary" onClick={() => void act('start')}>
              Start
            </button>
          )}
        </div>
      </div>
      {s.why && <p class={health === 'broken' ? 'error' : 'command'}>{visible(s.why)}</p>}
      <HealLine s={s} />
      <dl class="facts">
        <Fact name="In this state">{age(since)}</Fact>
        {s.pid > 0 && <Fact name="PID">{s.pid}</Fact>}
        {s.adopted && <Fact name="Adopted">{adoptedBy(s)}</Fact>}
        <Fact name="Runs">{String(s.run)}</Fact>
        <Fact name="Restarted by itself">{String(s.restarts)}</Fact>
        {p?.cpu !== undefined && (
          <Fact name="CPU">
            <Plot values={store.plots.get(s.process)} /> {percent(p.cpu)}
          </Fact>
        )}
        {p?.memory !== undefined && <Fact name="Memory">{size(p.memory)}</Fact>}
        {s.sockets.map((k) => (
          <Fact name={k.name} key={k.name}>
            <span class="mono">{visible(k.address)}</span>
          </Fact>
        ))}
        {s.process && (
          <Fact name="Process">
            <a class="mono" href={paths.process(s.process, p?.sandbox ?? '')}>
              {s.process.slice(0, 13)}
            </a>
          </Fact>
        )}
      </dl>
      {s.pid > 0 && s.process && <Ports key={s.process} box={p?.sandbox ?? ''} process={s.process} open={store.sandboxes.get(p?.sandbox ?? '')?.sandbox?.network?.public !== false} />}
    </header>
  );
}
