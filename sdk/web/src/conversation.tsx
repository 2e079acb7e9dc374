// What is said to a model and by it, and what it does: commands, edits, results.

import type { HealWords } from '../../js/src/gen/tend/v1/service_pb.js';
import type { Said } from './episode.js';
import { visible } from './format.js';
import { Diff, Text } from './timeline.js';

/** Text that stands as it is, with its lines. */
export const lines = (text: string) => text.split('\n').map(visible).join('\n');

export function Conversation({ said, words, live }: { said: Said[]; words?: HealWords | undefined; live: boolean }) {
  const results = new Map<string, Said>();
  for (const l of said) if (l.kind === 'result' && l.call) results.set(l.call, l);
  return (
    <div class="talk" aria-live={live ? 'polite' : undefined}>
      {said.map((l, n) => {
        switch (l.kind) {
          case 'prompt':
            return (
              <details key={n}>
                <summary>What the model was told</summary>
                <pre class="block">{lines(l.text ?? '')}</pre>
              </details>
            );
          case 'reply':
            return l.text ? (
              <p key={n} class="words">
                {lines(l.text)}
              </p>
            ) : null;
          case 'call':
            return <Call key={n} call={l} result={results.get(l.call ?? '')} />;
          case 'note':
            return (
              <p key={n} class={l.error ? 'error' : 'faint'}>
                {visible(l.text ?? '')}
              </p>
            );
          case 'end':
            return l.text && !['finished', 'end_turn'].includes(l.text) ? (
              <p key={n} class="faint">
                The attempt has ended: {visible(l.text)}
              </p>
            ) : null;
        }
        return null;
      })}
      <Writing words={words} live={live} runs={said.at(-1)?.kind === 'call'} />
    </div>
  );
}

/** What the model is writing; while it writes nothing, that a call runs or the model is asked. */
export function Writing({ words, live, runs }: { words: { text: string; tool: string } | undefined; live: boolean; runs: boolean }) {
  if (words && (words.text || words.tool))
    return (
      <p class="words live">
        {lines(words.text)}
        {words.tool && <small class="faint"> {visible(words.tool)}{'\u2026'}</small>}
      </p>
    );
  return live ? <p class="words live faint">{runs ? 'It runs\u2026' : 'The model is thinking\u2026'}</p> : null;
}

const text = (v: unknown) => (typeof v === 'string' ? v : v === undefined ? '' : JSON.stringify(v));

/** A call of a tool, as what it does. */
export function Call({ call, result }: { call: Said; result: Said | undefined }) {
  const input = (typeof call.input === 'object' && call.input ? call.input : {}) as Record<string, unknown>;
  const tool = call.tool ?? '';
  const head: Record<string, string> = {
    exec: `${input['outside'] === true ? '(outside) ' : ''}$ ${text(input['command'])}`,
    read: `read ${text(input['path'])}`,
    list: `list ${text(input['path']) || '.'}`,
    search: `search ${text(input['pattern'])}`,
    edit: `edit ${text(input['path'])}`,
    restart: 'restart the service',
    wait: `wait ${text(input['seconds'])} s`,
    set_env: `set ${text(input['name'])}`,
    log: 'read the log',
    finish: 'finish',
  };
  const old = text(input['old']);
  const now = text(input['new'] ?? input['content']);
  return (
    <div class={`call ${result?.error ? 'bad' : ''}`}>
      <pre class="command-line">{lines(head[tool] ?? `${tool} ${text(call.input)}`)}</pre>
      {tool === 'edit' && (old || now) && <Diff title="Change" text={[...(old ? old.trimEnd().split('\n').map((l) => `-${l}`) : []), ...(now ? now.trimEnd().split('\n').map((l) => `+${l}`) : [])].join('\n')} />}
      {tool === 'finish' && <p class="words">{lines(text(input['summary']))}</p>}
      {result && tool !== 'finish' && <Text text={bare(result.text ?? '')} />}
    </div>
  );
}

/** A result without the marks that tell a model that it is data. */
const bare = (text: string) => text.replace(/^<data [^>\n]*>\n?/gm, '').replace(/^<\/data[^>\n]*>\n?/gm, '');
