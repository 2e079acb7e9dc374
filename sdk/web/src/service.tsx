// One service: its newest run, what heals it, and how it is started and stopped.

import { useEffect, useState } from 'preact/hooks';
import { HealStatus, type ServiceStatus } from '../../js/src/gen/tend/v1/service_pb.js';
import { services, words } from './api.js';
import { ChatPanel } from './chat.js';
import { age, percent, size, visible } from './format.js';
import { Healing } from './healing.js';
import { serviceState } from './items.js';
import { Head, Notice, Plot, Tabs } from './parts.js';
import { Ports } from './ports.js';
import { Body, Fact, useInfo, Waiting } from './process.js';
import { amend, paths, usePlace } from './router.js';
import { readOnly } from './session.js';
import { OpenTerminal } from './shell.js';
import { useStore } from './store.js';
import { Used } from './used.js';

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
          <Tabs label="Views">
            <button aria-pressed={false} onClick={() => amend({ tab: '', episode: '' })}>
              Output
            </button>
            <button aria-pressed={false} onClick={() => amend({ tab: 'environment', episode: '' })}>
              Environment
            </button>
            <HealingTab />
          </Tabs>
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
    <Head
      way={<a href={`${paths.home}?kind=service`}>Services</a>}
      name={s.name}
      state={[health, word]}
      actions={
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
      }
    >
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
      <Used name={s.name} />
      {s.pid > 0 && s.process && <Ports key={s.process} box={p?.sandbox ?? ''} process={s.process} open={store.sandboxes.get(p?.sandbox ?? '')?.sandbox?.network?.public !== false} />}
    </Head>
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
