// A chat as it goes on: one stream, which goes on where it broke off.

import { useEffect, useState } from 'preact/hooks';
import type { Chat, ChatEntry, ChatWords, FollowChatResponse } from '../../js/src/gen/tend/v1/chat_pb.js';
import { chats, follow, words } from './api.js';
import { perFrame } from './frame.js';

export interface Talk {
  /** Undefined: it is not known yet. With an empty ID there is none. */
  chat?: Chat;
  entries: ChatEntry[];
  words?: ChatWords;
  trouble?: string;
}

/** What a viewer knows of the chat of a service. */
class Following {
  readonly talk: Talk = { entries: [] };

  constructor(
    readonly service: string,
    readonly changed: () => void,
  ) {}

  take(m: FollowChatResponse): boolean | 'again' {
    if (m.goingAway) return 'again';
    if (m.heartbeat) return true;
    const t = this.talk;
    if (m.chat) {
      if (m.chat.id !== t.chat?.id) {
        t.entries = [];
        delete t.words;
      }
      t.chat = m.chat;
    }
    const known = t.entries.at(-1)?.seq ?? 0n;
    if (m.entries.length > 0) t.entries = [...t.entries, ...m.entries.filter((e) => e.seq > known)];
    if (m.words) t.words = m.words;
    this.changed();
    return true;
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      await follow((signal) => chats.follow({ service: this.service, chat: this.talk.chat?.id ?? '', after: this.talk.entries.at(-1)?.seq ?? 0n }, { signal }), (m) => this.take(m), signal);
    } catch (err) {
      this.talk.trouble = words(err);
      this.changed();
    }
  }
}

export function useChat(service: string): Talk {
  const [talk, set] = useState<Talk>({ entries: [] });
  useEffect(() => {
    const scope = new AbortController();
    const draw = perFrame(() => {
      if (!scope.signal.aborted) set({ ...f.talk });
    });
    const f = new Following(service, draw);
    void f.run(scope.signal);
    return () => scope.abort();
  }, [service]);
  return talk;
}
