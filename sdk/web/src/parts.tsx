// Small parts of all views.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { size, visible } from './format.js';
import { paths } from './router.js';

export function Logo() {
  return (
    <svg class="logo" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" />
      <path d="M16 25V13M16 18c-5 0-7-3-7-7 5 0 7 3 7 7Zm0-3c0-4 2-7 7-7 0 5-2 7-7 7Z" />
    </svg>
  );
}

export type Health = 'broken' | 'warn' | 'ok' | 'done';

const marks: Record<Health, string> = { broken: '\u2715', warn: '\u25d0', ok: '\u25cf', done: '\u25cb' };

/** The state in a word, with a mark that says it without colour. */
export function State({ health, word }: { health: Health; word: string }) {
  return (
    <span class={`state ${health}`}>
      <i aria-hidden="true">{marks[health]}</i>
      <span>{word}</span>
    </span>
  );
}

/** The head of the page of one thing: the way back, its name and state, what can be done with it, and what is known of it. */
export function Head({ way, name, state, actions, children }: { way: ComponentChildren; name: string; state: [Health, string] | undefined; actions: ComponentChildren; children: ComponentChildren }) {
  return (
    <header class="head">
      <div class="crumbs">
        <a class="back" href={paths.home}>
          Overview
        </a>
        {way}
      </div>
      <div class="title">
        <h1>
          <bdi>{visible(name)}</bdi>
        </h1>
        {state && <State health={state[0]} word={state[1]} />}
        <span class="grow" />
        {actions}
      </div>
      {children}
    </header>
  );
}

export function Plot({ values }: { values: number[] | undefined }) {
  if (!values || values.length < 2) return <svg class="plot" viewBox="0 0 60 18" aria-hidden="true" />;
  const top = Math.max(200, ...values);
  const step = 60 / 39;
  const line = values.map((v, n) => `${(60 - (values.length - 1 - n) * step).toFixed(1)},${(17 - (v / top) * 16).toFixed(1)}`).join(' ');
  return (
    <svg class="plot" viewBox="0 0 60 18" preserveAspectRatio="none" aria-hidden="true">
      <polyline points={line} />
    </svg>
  );
}

export function Notice({ title, children, kind = '' }: { title: string; children?: ComponentChildren; kind?: string }) {
  return (
    <section class={`notice ${kind}`} role={kind === 'bad' ? 'alert' : undefined}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

/** Views to choose from. The one that is chosen is seen, on a screen that is too narrow for all. */
export function Tabs({ label, children }: { label: string; children: ComponentChildren }) {
  const ref = useRef<HTMLElement>(null);
  useEffect(() => {
    const nav = ref.current!;
    const chosen = nav.querySelector<HTMLElement>('[aria-pressed="true"]');
    if (chosen) nav.scrollLeft = Math.max(Math.min(nav.scrollLeft, chosen.offsetLeft - nav.offsetLeft), chosen.offsetLeft - nav.offsetLeft + chosen.offsetWidth - nav.clientWidth);
  });
  return (
    <nav class="tabs" aria-label={label} ref={ref}>
      {children}
    </nav>
  );
}

/** A dialog over the page; Escape and a click beside it close it. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => ref.current?.showModal(), []);
  return (
    <dialog ref={ref} onClose={close} onClick={(e) => e.target === ref.current && ref.current?.close()} aria-label={title}>
      <div class="dialog">
        <header>
          <h2>{title}</h2>
          <button class="quiet" aria-label="Close" onClick={() => ref.current!.close()}>
            {'\u2715'}
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

/** Downloads by run, which tells how many bytes have come; shows them, and stops it when it is pressed again. */
export function DownloadButton({ label = 'Download', run, fail }: { label?: string; run: (came: (bytes: number) => void, scope: AbortSignal) => Promise<void>; fail: (err: unknown) => void }) {
  const [done, set] = useState<number>();
  const scope = useRef<AbortController | undefined>(undefined);
  useEffect(() => () => scope.current?.abort(), []);
  if (done !== undefined)
    return (
      <button onClick={() => scope.current?.abort()} title="Stop the download">
        {size(done)} {'\u2715'}
      </button>
    );
  return (
    <button
      onClick={() => {
        const { signal } = (scope.current = new AbortController());
        set(0);
        run(set, signal)
          .catch((err) => !signal.aborted && fail(err))
          .finally(() => set(undefined));
      }}
    >
      {label}
    </button>
  );
}
