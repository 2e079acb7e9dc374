// What the machine, a sandbox or a service has used in the last hour or day.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { UsagePoint } from '../../js/src/gen/tend/v1/overview_pb.js';
import { overview, repeat, words } from './api.js';
import { percent, size } from './format.js';
import { linesOf, type Lines } from './gaps.js';
import type { Shape } from './graph.js';
import { amend, usePlace } from './router.js';

const spans: Record<string, [title: string, seconds: number, step: number]> = { hour: ['Last hour', 3600, 60], day: ['Last day', 86_400, 300] };

/** name is "machine", the ID of a sandbox or the name of a service. It is shown where the address says so. */
export function Used({ name }: { name: string }) {
  const { query } = usePlace();
  const at = query.get('used') ?? '';
  const span = spans[at];
  return (
    <section class="used" aria-label="Use over time">
      <span class="used-tabs">
        <span class="faint">CPU, memory and network</span>
        {Object.entries(spans).map(([key, [title]]) => (
          <button key={key} class="quiet" aria-pressed={at === key} onClick={() => amend({ used: at === key ? '' : key })}>
            {title}
          </button>
        ))}
      </span>
      {span && <Shown key={at} name={name} span={span} />}
    </section>
  );
}

function Shown({ name, span: [, seconds, step] }: { name: string; span: [string, number, number] }) {
  const [points, set] = useState<UsagePoint[]>();
  const [error, fail] = useState('');
  useEffect(() => {
    const scope = new AbortController();
    const ask = async () => {
      if (document.hidden) return;
      try {
        const m = await repeat(() => overview.usage({ names: [name], since: { seconds: BigInt(seconds), nanos: 0 } }, { signal: scope.signal }), scope.signal);
        set(m.usages[0]?.points ?? []);
        fail('');
      } catch (err) {
        if (!scope.signal.aborted) fail(words(err));
      }
    };
    void ask();
    const timer = setInterval(() => void ask(), 60_000);
    document.addEventListener('visibilitychange', ask);
    return () => {
      scope.abort();
      clearInterval(timer);
      document.removeEventListener('visibilitychange', ask);
    };
  }, [name, seconds]);
  if (error) return <p class="error">{error}</p>;
  if (!points) return <div class="graphs ghost" aria-busy="true" />;
  if (points.length === 0) return <p class="faint">Nothing has been measured yet. While something runs there is a point each minute.</p>;
  const to = Math.ceil(Date.now() / 1000);
  const shape = { from: to - seconds, to };
  const counted = points.some((p) => p.received !== undefined);
  return (
    <div class="graphs">
      <Graph title="CPU" shape={{ ...shape, names: ['CPU'], text: percent }} lines={linesOf(points, step, [(p) => p.cpu])} />
      <Graph title="Memory" shape={{ ...shape, names: ['Memory'], text: size }} lines={linesOf(points, step, [(p) => Number(p.memory)])} />
      {counted && (
        <Graph
          title="Network"
          shape={{ ...shape, names: ['Received', 'Sent'], text: (n) => `${size(n)}/s` }}
          lines={linesOf(points, step, [(p) => (p.received === undefined ? undefined : Number(p.received)), (p) => (p.sent === undefined ? undefined : Number(p.sent))])}
        />
      )}
    </div>
  );
}

function Graph({ title, shape, lines }: { title: string; shape: Shape; lines: Lines }) {
  const at = useRef<HTMLDivElement>(null);
  const shown = useRef<{ set: (shape: Shape, lines: Lines) => void; stop: () => void } | undefined>(undefined);
  const newest = useRef({ shape, lines });
  newest.current = { shape, lines };
  useEffect(() => {
    let over = false;
    void import('./graph.js').then(({ graph }) => {
      if (!over && at.current) shown.current = graph(at.current, newest.current.shape, newest.current.lines);
    });
    return () => {
      over = true;
      shown.current?.stop();
    };
  }, []);
  useEffect(() => shown.current?.set(shape, lines), [lines]);
  // For those who do not see it.
  const said = lines.slice(1).map((all, n) => {
    const known = all.filter((v) => v !== null);
    const name = lines.length > 2 ? `${shape.names[n]}: ` : '';
    return known.length ? `${name}${shape.text(known[known.length - 1]!)}, at most ${shape.text(known.reduce((a, b) => Math.max(a, b), 0))}` : `${name}not known`;
  });
  return (
    <figure>
      <figcaption>
        <b>{title}</b> <span class="faint">{said.join('; ')}</span>
      </figcaption>
      <div ref={at} aria-hidden="true" />
    </figure>
  );
}
