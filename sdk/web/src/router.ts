// Where in the page one is: all of it is in the address, so that it can be sent to a colleague.

import { useEffect, useState } from 'preact/hooks';

const changed = new Set<() => void>();
const tell = () => changed.forEach((f) => f());
addEventListener('popstate', tell);

/** The place below /ui, and the query. */
export function usePlace(): { path: string[]; query: URLSearchParams } {
  const [, set] = useState({});
  useEffect(() => {
    const f = () => set({});
    changed.add(f);
    return () => void changed.delete(f);
  }, []);
  return { path: location.pathname.replace(/^\/ui\/?/, '').split('/').filter(Boolean).map(decode), query: new URLSearchParams(location.search) };
}

function decode(s: string): string {
  try {
    return decodeURIComponent(s);
  } catch {
    return s;
  }
}

export function go(href: string): void {
  history.pushState(null, '', href);
  scrollTo(0, 0);
  tell();
}

/** Changes parts of the query; empty removes one. */
export function amend(parts: Record<string, string>, push = false): void {
  const q = new URLSearchParams(location.search);
  for (const [k, v] of Object.entries(parts)) {
    if (v) q.set(k, v);
    else q.delete(k);
  }
  const text = q.toString();
  history[push ? 'pushState' : 'replaceState'](null, '', location.pathname + (text ? `?${text}` : ''));
  tell();
}

/** Takes clicks on links of the page. */
export function takeClicks(): void {
  document.addEventListener('click', (e) => {
    const a = (e.target as Element | null)?.closest?.('a');
    if (!a || e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey || a.target || a.hasAttribute('download')) return;
    const to = new URL(a.href);
    if (to.origin !== location.origin || !to.pathname.startsWith('/ui/') || /\.[a-z]+$/.test(to.pathname)) return;
    e.preventDefault();
    go(to.pathname + to.search);
  });
}

const query = (parts: Record<string, string>) => {
  const text = new URLSearchParams(Object.entries(parts).filter(([, v]) => v)).toString();
  return text && `?${text}`;
};

export const paths = {
  home: '/ui/',
  process: (id: string, box: string) => `/ui/p/${encodeURIComponent(id)}${box ? `?box=${encodeURIComponent(box)}` : ''}`,
  files: (path: string, box: string, line = '') => `/ui/files${query({ box, path, line })}`,
  code: (box: string) => `/ui/code${query({ box })}`,
  make: (kind: string) => `/ui/new/${kind}`,
  templates: '/ui/templates',
  service: (name: string) => `/ui/s/${encodeURIComponent(name)}`,
  sandbox: (id: string) => `/ui/?box=${encodeURIComponent(id)}`,
};
