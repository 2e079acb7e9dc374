// The overview: everything in one list, what is broken first.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { age, percent, size, visible } from './format.js';
import { boxName, choose, grouped, items, labelsOf, type Group, type Item } from './items.js';
import { Notice, Plot, State, type Health, Tabs } from './parts.js';
import { amend, paths, usePlace } from './router.js';
import { SandboxHead } from './sandbox.js';
import { readOnly } from './session.js';
import { useStore } from './store.js';
import type { Store } from './types.js';
import { Used } from './used.js';

const tabs = [
  ['', 'All'],
  ['service', 'Services'],
  ['sandbox', 'Sandboxes'],
  ['process', 'Processes'],
] as const;

const healths: [Health, string][] = [
  ['broken', 'broken'],
  ['warn', 'changing'],
  ['ok', 'running'],
  ['done', 'ended'],
];

export function Overview() {
  const store = useStore(true);
  const { query } = usePlace();
  const wish = { text: query.get('q') ?? '', kind: query.get('kind') ?? '', state: query.get('state') ?? '', box: query.get('box') ?? '', sort: query.get('sort') ?? '' };
  useEffect(() => {
    document.title = 'tend';
  }, []);

  if (store.broken) return <Notice kind="bad" title="The overview cannot be shown">{store.broken}</Notice>;
  if (!store.loaded) return <Loading />;

  const all = items(store);
  const there = wish.box ? all.filter((i) => i.box === wish.box && i.kind !== 'sandbox') : all;
  const shown = choose(all, wish);
  const by = query.get('group') ?? '';
  const keys = labelsOf(all);
  const count = (f: (i: Item) => boolean) => there.reduce((n, i) => n + (f(i) ? 1 : 0), 0);
  return (
    <main class="overview">
      {wish.box ? (
        <SandboxHead store={store} id={wish.box} />
      ) : (
        <>
          <nav class="makes" aria-label="More">
            {!readOnly() && ['sandbox', 'process', 'service'].map((kind) => <a key={kind} href={paths.make(kind)}>New {kind}</a>)}
            <a href={paths.templates}>Templates and images</a>
          </nav>
          <Used name="machine" />
        </>
      )}
      <div class="tiles" role="group" aria-label="Filter by state">
        {healths.map(([health, word]) => {
          const n = count((i) => i.health === health && (!wish.kind || i.kind === wish.kind));
          return (
            <button key={health} class={`tile ${health}`} aria-pressed={wish.state === health} onClick={() => amend({ state: wish.state === health ? '' : health })}>
              <b>{n}</b>
              <State health={health} word={word} />
            </button>
          );
        })}
      </div>
      <div class="filters">
        <Tabs label="Kinds">
          {tabs.map(([kind, title]) => (
            <button key={kind} aria-pressed={wish.kind === kind} onClick={() => amend({ kind })}>
              {title} <small>{count((i) => !kind || i.kind === kind)}</small>
            </button>
          ))}
        </Tabs>
        {(keys.length > 0 || by || (!wish.box && store.sandboxes.size > 0)) && (
          <select aria-label="Group by" value={by} onChange={(e) => amend({ group: e.currentTarget.value })}>
            <option value="">No groups</option>
            {!wish.box && <option value="sandbox:">By sandbox</option>}
            {[...new Set(by && by !== 'sandbox:' ? [...keys, by] : keys)].map((k) => (
              <option value={k} key={k}>
                By {visible(k)}
              </option>
            ))}
          </select>
        )}
        <input id="search" type="search" placeholder="Filter, or label=value" aria-label="Filter by name, command or label" title="Filter by name, command or label (/)" value={wish.text} onInput={(e) => amend({ q: e.currentTarget.value })} spellcheck={false} />
      </div>
      {store.missing.map((m) => (
        <p class="error" key={m}>
          Not all is shown: {visible(m)}
        </p>
      ))}
      {shown.length > 0 ? <Rows store={store} shown={grouped(store, shown, by)} sort={wish.sort} /> : <Empty filtered={there.length > 0} box={wish.box && boxName(store, wish.box)} />}
    </main>
  );
}

function Loading() {
  return (
    <main class="overview" aria-busy="true" aria-label="Loading">
      <div class="tiles">
        {healths.map(([h]) => (
          <div class="tile ghost" key={h} />
        ))}
      </div>
      <div class="rows">
        {Array.from({ length: 6 }, (_, n) => (
          <div class="row ghost" key={n} />
        ))}
      </div>
    </main>
  );
}

function Empty({ filtered, box }: { filtered: boolean; box: string }) {
  if (filtered)
    return (
      <Notice title="Nothing matches">
        <p>No name, command or label fits the filter.</p>
        <button onClick={() => amend({ q: '', state: '', kind: '' })}>Show everything</button>
      </Notice>
    );
  if (box)
    return (
      <Notice title="Nothing has run in this sandbox">
        <p>Start something on the command line, or open a terminal:</p>
        <pre>tend run --sandbox {visible(box)} -- npm start</pre>
      </Notice>
    );
  return (
    <Notice title="Nothing runs yet">
      <p>Start a process, and it appears here at once:</p>
      <pre>tend run -d --name web -- npm run dev</pre>
      <p>Or declare services in a tend.yaml, and start them:</p>
      <pre>tend init{'\n'}tend up</pre>
    </Notice>
  );
}

const columns = [
  ['', 'State', ''],
  ['name', 'Name', ''],
  ['cpu', 'CPU', 'num'],
  ['memory', 'Memory', 'num'],
  ['since', 'Since', 'num'],
] as const;

/** Only the lines that are seen are there: a list of thousands costs what a screen does. */
function Rows({ store, shown, sort }: { store: Store; shown: (Item | Group)[]; sort: string }) {
  const box = useRef<HTMLDivElement>(null);
  const [range, set] = useState<[number, number]>([0, 40]);
  const height = useRowHeight();
  const total = shown.length;
  useEffect(() => {
    const look = () => {
      const top = box.current?.getBoundingClientRect().top ?? 0;
      const first = Math.max(0, Math.floor(-top / height) - 10);
      const last = first + Math.ceil(innerHeight / height) + 20;
      set((r) => (r[0] === first && r[1] === last ? r : [first, last]));
    };
    look();
    addEventListener('scroll', look, { passive: true });
    addEventListener('resize', look);
    return () => {
      removeEventListener('scroll', look);
      removeEventListener('resize', look);
    };
  }, [height, total]);
  const [first, last] = [Math.min(range[0], Math.max(0, total - 1)), Math.min(range[1], total)];
  const now = store.now();
  return (
    <div class="table" role="table" aria-rowcount={total + 1} aria-label="Everything that there is">
      <div class="row headings" role="row" aria-rowindex={1}>
        {columns.map(([key, title, kind]) => (
          <span key={title} role="columnheader" class={kind} aria-sort={sort === key && key ? 'descending' : sort === `-${key}` ? 'ascending' : 'none'}>
            <button class="quiet" onClick={() => amend({ sort: key && (sort === key ? `-${key}` : sort === `-${key}` ? '' : key) })}>
              {title}
              {key && sort.replace('-', '') === key ? (sort.startsWith('-') ? ' \u2191' : ' \u2193') : ''}
            </button>
          </span>
        ))}
      </div>
      <div class="rows" role="rowgroup" ref={box} style={{ height: `${total * height}px` }}>
        {shown.slice(first, last).map((i, n) =>
          'group' in i ? (
            <div key={`group ${i.group}`} class="row group" role="row" aria-rowindex={first + n + 2} style={{ transform: `translateY(${(first + n) * height}px)` }}>
              <b role="cell">
                <bdi>{visible(i.group)}</bdi> <small>{i.count}</small>
              </b>
            </div>
          ) : (
            <Row key={i.kind + i.id} item={i} store={store} top={(first + n) * height} index={first + n + 2} now={now} />
          ),
        )}
      </div>
    </div>
  );
}

function Row({ item: i, store, top, index, now }: { item: Item; store: Store; top: number; index: number; now: number }) {
  const plot = i.kind === 'service' ? store.services.get(i.id)?.process : i.id;
  return (
    <div class="row item" role="row" aria-rowindex={index} style={{ transform: `translateY(${top}px)` }}>
      <span role="cell" class="cell-state">
        <State health={i.health} word={i.word} />
      </span>
      <span role="cell" class="cell-name">
        <b>
          <a href={i.href}>
            <bdi>{visible(i.name)}</bdi>
          </a>
          {i.kind !== 'process' && <small class="badge">{i.kind}</small>}
          {i.kind !== 'sandbox' && i.box && <small class="badge box">{visible(boxName(store, i.box))}</small>}
        </b>
        <small class="mono faint">
          <bdi>{visible(i.detail.slice(0, 300))}</bdi>
        </small>
      </span>
      <span role="cell" class="cell-cpu num">
        {i.cpu !== undefined && (
          <>
            <Plot values={store.plots.get(plot ?? '')} />
            <span>{percent(i.cpu)}</span>
          </>
        )}
      </span>
      <span role="cell" class="cell-memory num">
        {i.memory !== undefined && size(i.memory)}
      </span>
      <span role="cell" class="cell-since num">
        {i.since > 0 && age(now - i.since)}
        {i.over && i.since > 0 && i.kind === 'process' ? ' ago' : ''}
      </span>
    </div>
  );
}

function useRowHeight(): number {
  const media = useMemo(() => matchMedia('(max-width: 700px)'), []);
  const [narrow, set] = useState(media.matches);
  useEffect(() => {
    const f = () => set(media.matches);
    media.addEventListener('change', f);
    return () => media.removeEventListener('change', f);
  }, [media]);
  return narrow ? 68 : 52;
}
