// One repair from its signal to its end: steps, commands, diffs, probes, and what a
// model says meanwhile.

import type { ComponentChildren } from 'preact';
import type { Episode, HealRemedy, HealStep, HealTry } from '../../js/src/gen/tend/v1/service_pb.js';
import { HealStatus } from '../../js/src/gen/tend/v1/service_pb.js';
import { Conversation } from './conversation.js';
import type { Seen } from './episode.js';
import { millis, visible } from './format.js';

type Mark = 'ok' | 'bad' | 'now' | 'note' | 'undone';

const marks: Record<Mark, string> = { ok: '\u2713', bad: '\u2715', now: '\u25d0', note: '\u2022', undone: '\u21b6' };

const kinds: Record<string, string> = { wait: 'Wait', restart: 'Restart', playbook: 'Playbook', model: 'Model', undo: 'Take back' };

export const remedyName = (r: HealRemedy | undefined) => (r ? `${kinds[r.kind] ?? r.kind}${r.name && r.kind !== 'model' ? ` ${r.name}` : ''}` : 'Remedy');

/** What is being done, in the words of the one who waits. */
const doing: Record<string, string> = {
  look: 'Finding out what is wrong',
  checkpoint: 'Keeping a checkpoint of the project',
  act: 'Trying it',
  verify: 'Asking the probes, and whether it holds',
  review: 'Looking at the change: does it only hide the symptom?',
  commit: 'Committing what was changed',
  rollback: 'Taking back what was tried',
};

const done: Record<string, [string, string]> = {
  look: ['Found out what there is to try', 'Could not find out what is wrong'],
  checkpoint: ['Checkpoint of the project', 'No checkpoint'],
  act: ['Done', 'Did not succeed'],
  verify: ['Probes', 'Probes'],
  review: ['The change was looked at', 'The change was refused'],
  commit: ['Committed', 'Not committed'],
  rollback: ['Taken back', 'Could not be taken back'],
};

/** Of the taking back of a repair. */
const looked = ['Looked whether it has changed since', 'Could not find out whether it has changed since'];

const signals: Record<string, string> = {
  exit: 'It ended',
  exited: 'It ended',
  flapping: 'It does not stay up',
  failed: 'It was given up',
  unhealthy: 'Its health check failed',
  flap: 'It does not stay up',
  health: 'Its health check failed',
  stuck: 'Its log is stuck',
  pressure: 'It is short of something',
  asked: 'Somebody asked for it',
  apply: 'Somebody applies a change that waited',
  rollback: 'Somebody wants a repair taken back',
};

function clock(t: HealStep['at']) {
  if (!t) return null;
  const d = new Date(millis(t));
  return (
    <time dateTime={d.toISOString()} title={d.toLocaleString()}>
      {d.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' })}
    </time>
  );
}

function Item({ mark, title, at, children }: { mark: Mark; title: ComponentChildren; at?: HealStep['at']; children?: ComponentChildren }) {
  return (
    <li class={`step ${mark}`}>
      <i aria-hidden="true">{marks[mark]}</i>
      <div>
        <p class="step-title">
          <span>{title}</span>
          {clock(at)}
        </p>
        {children}
      </div>
    </li>
  );
}

/** A text of some lines; many of them are folded. */
export function Text({ text, open = false }: { text: string; open?: boolean }) {
  if (!text.trim()) return null;
  const lines = text.trimEnd().split('\n');
  const shown = <pre class="block">{lines.map(visible).join('\n')}</pre>;
  if (open || lines.length <= 12) return shown;
  return (
    <details>
      <summary>{visible(lines[0]!.slice(0, 120))} <small class="faint">{lines.length} lines</small></summary>
      {shown}
    </details>
  );
}

/** A unified diff. */
export function Diff({ text, title, open = true }: { text: string; title: string; open?: boolean }) {
  const lines = text.trimEnd().split('\n');
  const count = (c: string) => lines.filter((l) => l.startsWith(c) && !l.startsWith(c.repeat(3))).length;
  return (
    <details class="diff" open={open && lines.length <= 80}>
      <summary>
        {title} <small class="added">+{count('+')}</small> <small class="removed">{'\u2212'}{count('-')}</small>
      </summary>
      <pre class="block">
        {lines.slice(0, 4000).map((l, n) => (
          <span key={n} class={/^(\+\+\+|---|diff |index )/.test(l) ? 'file' : l.startsWith('+') ? 'added' : l.startsWith('-') ? 'removed' : l.startsWith('@@') ? 'at' : ''}>
            {visible(l)}
            {'\n'}
          </span>
        ))}
      </pre>
    </details>
  );
}

function signalOf(text: string): [string, string] {
  const [, kind = '', rest = ''] = /^([a-z]+): ?([^]*)$/.exec(text) ?? [];
  return kind ? [signals[kind] ?? kind, kind === 'asked' || kind === 'rollback' ? '' : rest] : ['Signal', text];
}

export function Timeline({ seen, e }: { seen: Seen; e: Episode }) {
  const nodes: ComponentChildren[] = [];
  const tries = new Map<number, HealStep[]>();
  let workers = 0;
  const later = seen.steps.filter((s) => s.kind === 'signal');
  seen.steps.forEach((step, n) => {
    if (step.try > 0) {
      const before = tries.get(step.try);
      if (before) return void before.push(step);
      const mine = [step];
      tries.set(step.try, mine);
      nodes.push(<Try key={`try ${step.try}`} n={step.try} steps={mine} seen={seen} e={e} />);
      return;
    }
    const key = `step ${n}`;
    switch (step.kind) {
      case 'opened': {
        const [title, text] = signalOf(step.text);
        return void nodes.push(
          <Item key={key} mark={e.takesBack ? 'note' : 'bad'} title={e.takesBack.includes('/') ? 'Somebody wants a turn of the chat taken back' : title} at={step.at}>
            <Text text={text} />
          </Item>,
        );
      }
      case 'signal':
        if (step === later[0]) nodes.push(<Meanwhile key={key} steps={later} />);
        return;
      case 'began':
        if (workers++ > 0) nodes.push(<Item key={key} mark="note" title="The worker before has ended; another goes on" at={step.at} />);
        return;
      case 'answered':
        return void nodes.push(
          <Item key={key} mark={step.ok ? 'ok' : 'bad'} title={(e.takesBack ? looked : (done[step.did] ?? [step.did, step.did]))[step.ok ? 0 : 1]} at={step.at}>
            <Text text={step.text} />
            {step.did === 'look' && !e.takesBack && <Remedies all={e.remedies} />}
          </Item>,
        );
      case 'cancelled':
        return void nodes.push(<Item key={key} mark="bad" title="Somebody stopped it" at={step.at} />);
      case 'expired':
        return void nodes.push(<Item key={key} mark="bad" title="Its time was over" at={step.at} />);
      default:
        nodes.push(
          <Item key={key} mark="note" title="Note" at={step.at}>
            <Text text={step.text} />
          </Item>,
        );
    }
  });
  const last = e.tries.length;
  if (!e.ended && last > 0 && !tries.has(last)) nodes.push(<Try key={`try ${last}`} n={last} steps={[]} seen={seen} e={e} />);
  else if (!e.ended && e.doing === 'look') nodes.push(<Item key="now" mark="now" title={doing['look']} />);
  if (e.ended) {
    const ready = e.status === HealStatus.READY;
    nodes.push(
      <Item key="end" mark={ready ? 'ok' : e.dryRun ? 'note' : 'bad'} title={e.takesBack ? (ready ? 'It was taken back' : 'Nothing was taken back') : ready ? 'It is well again' : e.dryRun ? 'Nothing was done' : 'It is broken'} at={e.ended}>
        <Text text={e.dryRun ? '' : e.why} />
        {e.left.length > 0 && (
          <>
            <p class="faint">{e.takesBack ? 'Not taken back:' : 'Not in the commit:'}</p>
            <Text text={e.left.join('\n')} />
          </>
        )}
        {e.proposal && (
          <>
            <p class="faint">A rule proposes, to a person:</p>
            <Text text={e.proposal} />
          </>
        )}
      </Item>,
    );
  }
  return <ol class="timeline">{nodes}</ol>;
}

/** What else was seen of the service while it was being repaired. */
function Meanwhile({ steps }: { steps: HealStep[] }) {
  const counts = new Map<string, number>();
  for (const s of steps) {
    const [title] = signalOf(s.text);
    counts.set(title, (counts.get(title) ?? 0) + 1);
  }
  return (
    <Item mark="note" title={`Seen meanwhile: ${[...counts].map(([title, n]) => (n > 1 ? `${title} (${n} times)` : title)).join(', ')}`} at={steps[0]?.at}>
      <details>
        <summary>{steps.length === 1 ? 'What it was' : `All ${steps.length}`}</summary>
        <Text text={steps.map((s) => signalOf(s.text).filter(Boolean).join(': ')).join('\n')} open />
      </details>
    </Item>
  );
}

function Remedies({ all }: { all: HealRemedy[] }) {
  if (all.length === 0) return <p class="faint">No remedy fits.</p>;
  return (
    <ul class="remedies">
      {all.map((r, n) => (
        <li key={n}>
          <b>{visible(remedyName(r))}</b> <span class="faint">{visible(r.why)}</span>
        </li>
      ))}
    </ul>
  );
}

/** Whether a model has made the attempt. One that it never answered counts as none, here and in the transcript. */
const attempted = (t: HealTry) => t.remedy?.kind === 'model' && !t.unreached;

/** One remedy that was tried. */
function Try({ n, steps, seen, e }: { n: number; steps: HealStep[]; seen: Seen; e: Episode }) {
  const t = e.tries[n - 1];
  const now = !e.ended && n === e.tries.length;
  const diff = seen.diffs.get(n);
  const attempt = t?.remedy?.kind === 'model' ? 1 + e.tries.slice(0, n - 1).filter(attempted).length : 0;
  const said = attempt > 0 ? seen.said.filter((l) => l.attempt === attempt) : [];
  const failed = t?.failed ?? '';
  const acted = steps.some((s) => s.did === 'act');
  const talk = attempt > 0 && (said.length > 0 || (now && e.doing === 'act')) && <Conversation said={said} words={now && !acted ? seen.words : undefined} live={now && !acted && e.doing === 'act'} />;
  return (
    <Item
      mark={failed ? 'bad' : now ? 'now' : 'ok'}
      title={
        <>
          {n}. {visible(remedyName(t?.remedy))} {t?.unreached && <small class="faint">not made: the model did not answer</small>} {attempt > 0 && e.tries.filter(attempted).length > 1 && !t?.unreached && <small class="faint">attempt {attempt}</small>}
        </>
      }
      at={t?.begun}
    >
      {t?.remedy?.why && <p class="faint">{visible(t.remedy.why)}</p>}
      <ol class="substeps">
        {steps.map((s, i) => (
          <Sub key={i} s={s} talk={s.did === 'act' && talk} failed={!!failed} />
        ))}
        {now && e.doing !== 'over' && (
          <Item mark="now" title={`${doing[e.doing] ?? e.doing}\u2026`}>
            {e.doing === 'act' && talk}
          </Item>
        )}
        {!acted && !(now && e.doing === 'act') && talk}
      </ol>
      {diff && <Diff text={diff.text} title={diff.undone ? 'What it had changed' : 'What it changed'} />}
      {failed && !steps.some((s) => !s.ok && s.text === failed) && <p class="error">{visible(failed)}</p>}
    </Item>
  );
}

function Sub({ s, talk, failed }: { s: HealStep; talk: ComponentChildren; failed: boolean }) {
  const [good, bad] = done[s.did] ?? [s.did, s.did];
  const title = s.did === 'commit' && s.ok ? (s.commit ? `Committed as ${s.commit.slice(0, 10)}` : 'Nothing was committed') : s.ok ? good : bad;
  return (
    <Item mark={s.did === 'rollback' && s.ok ? 'undone' : s.ok ? 'ok' : 'bad'} title={title} at={s.at}>
      {talk}
      {!(talk && s.ok) && <Text text={s.text} open={s.did !== 'act' || failed} />}
      {s.did === 'act' && s.paths.length > 0 && <p class="faint mono">{s.paths.slice(0, 20).map(visible).join(', ')}</p>}
    </Item>
  );
}
