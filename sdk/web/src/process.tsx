// One process: what it is, its output, its terminal, its environment. The page of a service
// shows its newest run by the same views.

import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Info, Limits } from '../../js/src/gen/tend/v1/spec_pb.js';
import { notFound, place, repeat, words } from './api.js';
import { Actions } from './end.js';
import { Environment } from './environment.js';
import { age, instant, millis, percent, size, visible } from './format.js';
import { boxName, nameOf, processState } from './items.js';
import { Output } from './log.js';
import { Head, Notice, Plot, Tabs } from './parts.js';
import { Ports } from './ports.js';
import { ReplayTab } from './replaytab.js';
import { amend, paths, usePlace } from './router.js';
import { Labels } from './sandbox.js';
import { readOnly } from './session.js';
import { OpenTerminal } from './shell.js';
import { useStore } from './store.js';
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
      <ProcessHead info={info} box={box} />
      <Body info={info} box={box} />
    </main>
  );
}

export function Waiting({ error }: { error: string | undefined }) {
  return (
    <main class="process" aria-busy={!error}>
      {error ? <Notice kind="bad" title="This cannot be shown">{error}</Notice> : <div class="head ghost" />}
      <div class="output ghost" />
    </main>
  );
}

/** What is known of a process, anew when the overview sees a change. */
export function useInfo(id: string, box: string): { info: Info | undefined; error: string | undefined; gone: boolean } {
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

function ProcessHead({ info, box }: { info: Info; box: string }) {
  const store = useStore(true);
  const live = store.processes.get(info.id);
  const exit = live?.exit ?? info.exit;
  const spec = info.spec!;
  const command = spec.shell || spec.argv.join(' ');
  return (
    <Head
      way={
        box && (
          <a href={paths.sandbox(box)}>
            <bdi>{visible(boxName(store, box))}</bdi>
          </a>
        )
      }
      name={nameOf({ id: info.id, name: spec.name, tag: spec.tag })}
      state={processState({ exit } as Parameters<typeof processState>[0])}
      actions={
        <>
          <div class="actions">
            <OpenTerminal box={box} of={info.id} />
          </div>
          <Actions info={info} box={box} over={!!exit} />
        </>
      }
    >
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
    </Head>
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
      {l.cpus > 0 && <Fact name="CPUs at most">{String(l.cpus)}</Fact>}
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

export function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** The views of a process; more: tabs beside theirs. */
export function Body({ info, box, more }: { info: Info; box: string; more?: preact.ComponentChildren }) {
  const { query } = usePlace();
  const pty = !!info.spec?.pty;
  // What ends while somebody looks at it does not change the view before their eyes.
  const first = useMemo(() => (pty && !info.exit ? 'terminal' : 'output'), [info.id]);
  const tab = query.get('tab') ?? first;
  const show = (t: string) => amend({ tab: t, at: '', s: '' });
  return (
    <>
      <Tabs label="Views">
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
      </Tabs>
      {tab === 'environment' ? <Environment info={info} /> : tab === 'replay' && pty && info.exit ? <ReplayTab key={info.id} info={info} box={box} /> : tab === 'terminal' && pty ? <TerminalTab info={info} box={box} /> : <Output key={info.id} info={info} at={place(box)} />}
    </>
  );
}
