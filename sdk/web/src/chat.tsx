// The chat about a service: what a person and the model say, and what the model does.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ChatState, type ChatEntry, type ChatWords } from '../../js/src/gen/tend/v1/chat_pb.js';
import type { ServiceStatus } from '../../js/src/gen/tend/v1/service_pb.js';
import { randomHex } from '../../js/src/random.js';
import { chats, repeat, words } from './api.js';
import { useChat } from './talk.js';
import { Call, lines, Writing } from './conversation.js';
import type { Said } from './episode.js';
import { visible } from './format.js';
import { Notice, State, type Health } from './parts.js';
import { RollBackTurn } from './rollback.js';
import { paths } from './router.js';
import { readOnly } from './session.js';
import { Diff } from './timeline.js';

const states: Record<ChatState, [Health, string]> = {
  [ChatState.UNSPECIFIED]: ['done', 'nothing was said yet'],
  [ChatState.IDLE]: ['done', 'your turn'],
  [ChatState.WORKING]: ['warn', 'working'],
  [ChatState.ASKING]: ['warn', 'asks you'],
  [ChatState.STOPPING]: ['warn', 'stopping'],
};

const text = new TextDecoder();

/** A call as the parts of a repair know it. */
function call(e: ChatEntry): Said {
  let input: unknown;
  try {
    input = JSON.parse(text.decode(e.input));
  } catch {
    input = text.decode(e.input);
  }
  return { attempt: 1, kind: 'call', step: 0, tool: e.tool, call: e.call, input };
}

export function ChatPanel({ s }: { s: ServiceStatus }) {
  const talk = useChat(s.name);
  const [said, say] = useState('');
  const [busy, work] = useState(false);
  const state = talk.chat?.state ?? ChatState.UNSPECIFIED;
  const idle = state === ChatState.IDLE || state === ChatState.UNSPECIFIED;
  const end = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  useEffect(() => {
    const look = () => (follows.current = innerHeight + scrollY > document.documentElement.scrollHeight - 120);
    addEventListener('scroll', look, { passive: true });
    return () => removeEventListener('scroll', look);
  }, []);
  useEffect(() => {
    if (follows.current && talk.entries.length > 0) end.current?.scrollIntoView({ block: 'end' });
  }, [talk]);

  const act = async (what: () => Promise<unknown>): Promise<boolean> => {
    say('');
    work(true);
    try {
      await repeat(what);
      return true;
    } catch (err) {
      say(words(err));
      return false;
    } finally {
      work(false);
    }
  };
  const chat = talk.chat?.id ?? '';
  const of = { service: s.name, chat };
  if (talk.trouble) return <Notice kind="bad" title="This cannot be shown">{visible(talk.trouble)}</Notice>;
  const [health, word] = states[state] ?? ['warn', 'unknown'];
  return (
    <section class="chat" aria-label="Chat">
      <div class="healbar">
        <State health={health} word={word} />
        {talk.chat && talk.chat.tokensRead > 0n && (
          <small class="faint" title="By the prices of healer.llm.prices">
            {talk.chat.tokensRead.toLocaleString()} tokens read, {talk.chat.tokensWritten.toLocaleString()} written
            {talk.chat.cost > 0 && `, cost ${talk.chat.cost < 0.01 ? '< 0.01' : talk.chat.cost.toFixed(2)}`}
          </small>
        )}
        <span class="grow" />
        {!readOnly() && !idle && (
          <button class="danger" disabled={busy || state === ChatState.STOPPING} onClick={() => void act(() => chats.stop(of))} title="What it has changed stays">
            Stop
          </button>
        )}
        {!readOnly() && idle && talk.entries.length > 0 && (
          <button disabled={busy} onClick={() => void act(() => chats.clear(of))} title="Forgets what was said, and what files were before its turns: what was changed stays, and can no longer be taken back">
            Clear
          </button>
        )}
      </div>
      {!talk.chat ? (
        <div class="timeline ghost" aria-busy="true" />
      ) : talk.entries.length === 0 ? (
        <Notice title="Talk with the model about this service">
          <p>It reads the log and the files, runs commands that change nothing outside of the project, and shows you each change. It asks before it does anything else. Nothing is committed, and what a turn has changed can be taken back.</p>
        </Notice>
      ) : (
        <Entries service={s.name} chat={chat} entries={talk.entries} question={talk.chat.question} answer={(yes) => void act(() => chats.answer({ ...of, question: talk.chat!.question, yes }))} busy={busy} words={talk.words} live={state === ChatState.WORKING} />
      )}
      <p class="error" role="alert">
        {visible(said)}
      </p>
      {!readOnly() && <Say service={s.name} idle={idle && !busy && !!talk.chat} act={act} />}
      <div ref={end} />
    </section>
  );
}

function Entries({ service, chat, entries, question, answer, busy, words, live }: { service: string; chat: string; entries: ChatEntry[]; question: bigint; answer: (yes: boolean) => void; busy: boolean; words: ChatWords | undefined; live: boolean }) {
  const { results, answers, backed, diffs } = useMemo(() => {
    const results = new Map<string, ChatEntry>();
    const answers = new Map<bigint, boolean>();
    const backed = new Map<bigint, string>();
    const diffs = new Map<bigint, string[]>(); // of each turn
    let turn = 0n;
    for (const e of entries) {
      if (e.kind === 'said') diffs.set((turn = e.seq), []);
      if (e.kind === 'result') {
        results.set(e.call, e);
        if (e.diff.length > 0) diffs.get(turn)?.push(text.decode(e.diff));
      }
      if (e.kind === 'answer') answers.set(e.question, e.yes);
      if (e.kind === 'back') backed.set(e.turn, e.episode);
    }
    return { results, answers, backed, diffs };
  }, [entries]);
  const busyCall = entries.findLast((e) => e.kind === 'call');
  return (
    <div class="timeline chat-entries" aria-live={live ? 'polite' : undefined}>
      {entries.map((e) => {
        const key = String(e.seq);
        switch (e.kind) {
          case 'said':
            return (
              <div key={key} class="mine">
                <p class="words">{lines(e.text)}</p>
              </div>
            );
          case 'reply':
            return e.text ? (
              <p key={key} class="words">
                {lines(e.text)}
              </p>
            ) : null;
          case 'call': {
            const r = results.get(e.call);
            return (
              <div key={key}>
                <Call call={call(e)} result={r && { attempt: 1, kind: 'result', step: 0, text: r.text, error: r.error }} />
                {r && e.tool !== 'edit' && r.diff.length > 0 && <Diff title="Changed" text={text.decode(r.diff)} />}
              </div>
            );
          }
          case 'question': {
            const answered = answers.get(e.seq);
            return (
              <div key={key} class="question" role={e.seq === question ? 'group' : undefined} aria-label={e.seq === question ? 'The model asks' : undefined}>
                <p>The model asks to {visible(e.text)}</p>
                {e.seq === question && !readOnly() ? (
                  <div class="actions">
                    <button class="primary" disabled={busy} onClick={() => answer(true)}>
                      Allow this once
                    </button>
                    <button disabled={busy} onClick={() => answer(false)}>
                      Do not allow
                    </button>
                  </div>
                ) : (
                  <small class="faint">{answered === undefined ? (e.seq === question ? 'It waits for an answer.' : 'It was not answered.') : answered ? 'It was allowed.' : 'It was not allowed.'}</small>
                )}
              </div>
            );
          }
          case 'note':
            return (
              <p key={key} class={e.error ? 'error' : 'faint'}>
                {visible(e.text)}
              </p>
            );
          case 'end':
            return (
              <div key={key} class="turn-end">
                {e.text && <p class={e.error ? 'error' : 'faint'}>{e.text === 'stopped' ? 'You stopped it.' : `It has ended: ${visible(e.text)}`}</p>}
                {backed.has(e.turn) ? (
                  <p class="faint">
                    What this turn had changed was taken back. <a href={`${paths.service(service)}?tab=healing&episode=${encodeURIComponent(backed.get(e.turn)!)}`}>See what was done</a>.
                  </p>
                ) : (
                  e.canRollBack && <RollBackTurn chat={chat} turn={e.turn} diffs={diffs.get(e.turn) ?? []} />
                )}
              </div>
            );
        }
        return null;
      })}
      <Writing words={words} live={live} runs={!!busyCall && !results.has(busyCall.call)} />
    </div>
  );
}

/** Where one says something. A message is sent once, however often it has to be tried. */
function Say({ service, idle, act }: { service: string; idle: boolean; act: (what: () => Promise<unknown>) => Promise<boolean> }) {
  const [draft, set] = useState('');
  const send = async () => {
    const said = draft.trim();
    if (!said || !idle) return;
    const id = randomHex(12);
    if (await act(() => chats.send({ service, text: said, id }))) set('');
  };
  return (
    <form
      class="say"
      onSubmit={(e) => {
        e.preventDefault();
        void send();
      }}
    >
      <textarea
        aria-label="Message to the model"
        rows={3}
        maxLength={30_000}
        placeholder="What is wrong with it? (Enter sends, Shift+Enter begins a line)"
        value={draft}
        onInput={(e) => set(e.currentTarget.value)}
        onKeyDown={(e) => {
          if (e.key !== 'Enter' || e.shiftKey || e.isComposing) return;
          e.preventDefault();
          void send();
        }}
      />
      <button class="primary" disabled={!idle || !draft.trim()}>
        Send
      </button>
    </form>
  );
}
