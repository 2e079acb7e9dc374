// A repair as it goes on: one stream, which goes on where it broke off.

import { useEffect, useState } from 'preact/hooks';
import type { Episode, HealStep, HealWords, WatchEpisodeResponse } from '../../js/src/gen/tend/v1/service_pb.js';
import { follow, notFound, services, words } from './api.js';
import { perFrame } from './frame.js';

/** A line of what was said to a model and by it, and of what it did. */
export interface Said {
  attempt: number;
  kind: string;
  step: number;
  text?: string;
  tool?: string;
  call?: string;
  input?: unknown;
  error?: boolean;
  usage?: { input: number; output: number; cache_read?: number; cache_write?: number };
  cost?: number;
}

export interface Seen {
  episode?: Episode;
  steps: HealStep[];
  diffs: Map<number, { text: string; undone: boolean }>;
  said: Said[];
  /** Older lines of what was said are not shown. */
  cut: boolean;
  words?: HealWords;
  trouble?: string;
  gone?: boolean;
}

/** Lines of a conversation that are kept. */
const mostSaid = 2000;

/** What a watcher knows of an episode. */
export class Watching {
  readonly seen: Seen = { steps: [], diffs: new Map(), said: [], cut: false };
  #to = 0;
  readonly #utf8 = new TextDecoder();

  constructor(
    readonly id: string,
    readonly changed: () => void,
  ) {}

  take(m: WatchEpisodeResponse): boolean | 'again' {
    if (m.goingAway) return 'again';
    if (m.heartbeat) return true;
    const s = this.seen;
    if (m.episode) {
      s.episode = m.episode;
      s.steps = m.steps;
    }
    for (const d of m.diffs) s.diffs.set(d.try, { text: this.#utf8.decode(d.text), undone: d.undone });
    if (m.transcript.length > 0) {
      const at = Number(m.transcriptAt);
      if (at < this.#to) s.said = []; // it begins anew
      if (at > this.#to) s.cut = true;
      for (const line of this.#utf8.decode(m.transcript).split('\n')) {
        if (!line) continue;
        try {
          s.said.push(JSON.parse(line) as Said);
        } catch {
          // A worker died while it wrote.
        }
      }
      if (s.said.length > mostSaid) {
        s.said = s.said.slice(-mostSaid);
        s.cut = true;
      }
    }
    this.#to = Number(m.transcriptTo);
    if (m.words) s.words = m.words;
    this.changed();
    return true;
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      await follow((signal) => services.watchEpisode({ id: this.id, transcriptFrom: BigInt(this.#to) }, { signal }), (m) => this.take(m), signal);
    } catch (err) {
      if (notFound(err)) this.seen.gone = true;
      else this.seen.trouble = words(err);
      this.changed();
    }
  }
}

export function useEpisode(id: string): Seen | undefined {
  const [seen, set] = useState<{ id: string; seen: Seen }>();
  useEffect(() => {
    if (!id) return;
    const scope = new AbortController();
    const draw = perFrame(() => {
      if (!scope.signal.aborted) set({ id, seen: { ...w.seen } });
    });
    const w = new Watching(id, draw);
    void w.run(scope.signal);
    return () => scope.abort();
  }, [id]);
  return seen?.id === id ? seen.seen : undefined;
}

/** What a model has used: of the tries that are over, or as far as it has come. */
export function used(s: Seen): { read: number; written: number; cost: number } {
  let [read, written, cost] = [0, 0, 0];
  const costs = new Map<number, number>();
  for (const one of s.said) {
    if (!one.usage) continue;
    read += one.usage.input + (one.usage.cache_read ?? 0) + (one.usage.cache_write ?? 0);
    written += one.usage.output;
    if (one.cost) costs.set(one.attempt, one.cost);
  }
  for (const c of costs.values()) cost += c;
  const over = s.episode?.tries.reduce((n, t) => n + t.cost, 0) ?? 0;
  return { read, written, cost: Math.max(cost, over) };
}
