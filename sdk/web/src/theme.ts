// Dark, light, or as the system has it.

import { useEffect, useState } from 'preact/hooks';

export type Theme = 'system' | 'light' | 'dark';

const key = 'tend-theme';
const listeners = new Set<(t: Theme) => void>();

function kept(): Theme {
  const t = localStorage.getItem(key);
  return t === 'light' || t === 'dark' ? t : 'system';
}

export function restoreTheme(): void {
  const t = kept();
  document.documentElement.style.colorScheme = t === 'system' ? 'light dark' : t;
  for (const l of listeners) l(t);
}

export function nextTheme(): void {
  const all: Theme[] = ['system', 'light', 'dark'];
  localStorage.setItem(key, all[(all.indexOf(kept()) + 1) % all.length]!);
  restoreTheme();
}

/** Calls f when the colours become others, until stop is called. */
export function onColours(f: () => void): () => void {
  const system = matchMedia('(prefers-color-scheme: dark)');
  listeners.add(f);
  system.addEventListener('change', f);
  return () => {
    listeners.delete(f);
    system.removeEventListener('change', f);
  };
}

export function useTheme(): Theme {
  const [t, set] = useState(kept);
  useEffect(() => {
    listeners.add(set);
    return () => void listeners.delete(set);
  }, []);
  return t;
}

export const isDark = () => (kept() === 'system' ? matchMedia('(prefers-color-scheme: dark)').matches : kept() === 'dark');
