// What there is, as one stream tells it.

import { useEffect, useState } from 'preact/hooks';
import type { OverviewProcess, OverviewSandbox, WatchOverviewResponse } from '../../js/src/gen/tend/v1/overview_pb.js';
import type { ServiceStatus } from '../../js/src/gen/tend/v1/service_pb.js';
import { follow, overview, words } from './api.js';
import { perFrame } from './frame.js';
import { millis } from './format.js';

/** Samples of processor use that are kept for a plot. */
const samples = 40;

class Store {
  processes = new Map<string, OverviewProcess>();
  sandboxes = new Map<string, OverviewSandbox>();
  services = new Map<string, ServiceStatus>();
  /** When the phase of a service began, by performance.now(). */
  readonly #since = new Map<string, number>();
  plots = new Map<string, number[]>();
  missing: string[] = [];
  version = '';
  /** The server's clock less performance.now(), which nobody sets: ages hold when the browser's clock is. */
  #ahead = Date.now() - performance.now();
  /** All that there is has come once. */
  loaded = false;
  /** Why there is no stream now. */
  trouble: string | undefined;
  /** Why there is none for good. */
  broken: string | undefined;

  readonly #listeners = new Set<() => void>();

  subscribe(f: () => void): () => void {
    this.#listeners.add(f);
    return () => void this.#listeners.delete(f);
  }

  readonly #changed = perFrame(() => {
    for (const f of this.#listeners) f();
  });

  /** The server's time now. */
  now(): number {
    return performance.now() + this.#ahead;
  }

  /** For how long a service has been in its phase, in milliseconds. */
  inPhase(name: string): number {
    return performance.now() - (this.#since.get(name) ?? performance.now());
  }

  #take(m: WatchOverviewResponse): void {
    if (m.full) {
      this.processes.clear();
      this.sandboxes.clear();
      this.services.clear();
      this.version = m.version;
      this.loaded = true;
    }
    if (m.now) this.#ahead = millis(m.now) - performance.now();
    if (!m.heartbeat && !m.goingAway) this.missing = m.missing;
    for (const p of m.processes) {
      this.processes.set(p.id, p);
    }
    for (const s of m.sandboxes) {
      if (s.sandbox) this.sandboxes.set(s.sandbox.id, s);
    }
    for (const s of m.services) {
      this.services.set(s.name, s);
      this.#since.set(s.name, performance.now() - (s.age ? Number(s.age.seconds) * 1000 : 0));
    }
    for (const id of m.processesGone) this.processes.delete(id), this.plots.delete(id);
    for (const id of m.sandboxesGone) this.sandboxes.delete(id), this.plots.delete(id);
    for (const name of m.servicesGone) this.services.delete(name);
    this.#changed();
  }

  /** Adds to all plots. */
  #sample(): void {
    if (this.trouble || document.hidden) return;
    for (const p of this.processes.values()) if (!p.exit && p.cpu !== undefined) this.#point(p.id, p.cpu);
    for (const s of this.sandboxes.values()) if (s.sandbox && s.cpu !== undefined) this.#point(s.sandbox.id, s.cpu);
  }

  #point(id: string, cpu: number): void {
    const plot = this.plots.get(id) ?? [];
    plot.push(cpu);
    if (plot.length > samples) plot.shift();
    this.plots.set(id, plot);
  }

  async run(signal: AbortSignal): Promise<void> {
    this.broken = undefined;
    const timer = setInterval(() => this.#sample(), 1000);
    try {
      await follow(
        (signal) => overview.watch({}, { signal }),
        (m) => {
          this.#take(m);
          return m.goingAway ? 'again' : true;
        },
        signal,
        {
          state: (trouble) => {
            if (trouble === this.trouble) return;
            this.trouble = trouble;
            this.#changed();
          },
        },
      );
    } catch (err) {
      this.broken = words(err);
      this.#changed();
    } finally {
      clearInterval(timer);
    }
  }
}

export const store = new Store();

/** Draws anew when something changes, and each second if ticks: ages grow. */
export function useStore(ticks = false): Store {
  const [, set] = useState({});
  useEffect(() => {
    const draw = () => set({});
    const stop = store.subscribe(draw);
    const timer = ticks ? setInterval(draw, 1000) : undefined;
    draw();
    return () => {
      stop();
      clearInterval(timer);
    };
  }, [ticks]);
  return store;
}
