// Who is logged in. The cookie is the browser's alone; proof.ts has the rest.

import { useEffect, useRef, useState } from 'preact/hooks';
import { TendError } from '../../js/src/errors.js';
import { Logo } from './parts.js';
import { call as send, forget, keep, onOther } from './proof.js';

export type Session = 'asking' | 'in' | 'out' | 'free' | 'away';

let current: Session = 'asking';
let reads = false;

/** This login sees everything and changes nothing: the server refuses it the rest. */
export function readOnly(): boolean {
  return reads;
}
const listeners = new Set<(s: Session) => void>();

function become(s: Session): void {
  current = s;
  for (const l of listeners) l(s);
}

export function useSession(): Session {
  const [s, set] = useState(current);
  useEffect(() => {
    listeners.add(set);
    set(current);
    return () => void listeners.delete(set);
  }, []);
  return s;
}

/** Reports whether an error says that nobody is logged in (any more), and shows the login then. */
export function lost(err: unknown): boolean {
  if (!(err instanceof TendError) || err.wire !== 'unauthenticated') return false;
  become('out');
  return true;
}

onOther(() => void ask());

async function call(method: string, headers: Record<string, string> = {}): Promise<{ ok: boolean; answer: Record<string, unknown> }> {
  const res = await send('/ui/session', { method, headers });
  return { ok: res.ok, answer: (await res.json()) as Record<string, unknown> };
}

/** Asks the server whether a login is needed; with a code in the address, logs in by it. */
export async function ask(): Promise<void> {
  const code = /^#code=([A-Z0-9]+)$/.exec(location.hash)?.[1];
  if (code) {
    // The code is void in a moment; it is not to be seen in the history.
    history.replaceState(null, '', location.pathname + location.search);
    try {
      const err = await login({ 'Tend-Code': code });
      if (err) failed = err;
    } catch {
      // What follows finds out.
    }
  }
  for (;;) {
    try {
      const { ok, answer } = await call('GET');
      if (!ok) throw new Error('not ready');
      reads = answer['reads'] === true;
      become(!answer['needed'] ? 'free' : answer['in'] ? 'in' : 'out');
      return;
    } catch {
      if (current === 'asking') become('away');
      await new Promise((next) => setTimeout(next, 500));
    }
  }
}

/** Why the login by the address failed. */
let failed = '';

async function login(headers: Record<string, string>): Promise<string | undefined> {
  const { ok, answer } = await call('POST', headers);
  if (!ok) return String(answer['message'] ?? 'the login failed');
  if (answer['key']) await keep(String(answer['tag']), String(answer['key']));
  return undefined;
}

export async function logout(): Promise<void> {
  await call('DELETE').catch(() => undefined);
  await forget();
  await ask();
}

export function Login() {
  const [error, setError] = useState(failed);
  const [busy, setBusy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  const submit = async (e: Event) => {
    e.preventDefault();
    const token = input.current!.value.trim();
    if (/[^\x21-\x7e]/.test(token)) return setError('a token has no blanks and no letters beyond ASCII');
    setBusy(true);
    try {
      const err = await login({ Authorization: `Bearer ${token}` });
      setError(err ?? '');
      if (!err) await ask();
    } catch {
      setError('tend does not answer; try again in a moment');
    }
    setBusy(false);
    input.current?.select();
  };
  return (
    <main class="login">
      <form class="card" onSubmit={submit}>
        <Logo />
        <h1>Log in to tend</h1>
        <p>
          On the machine where tend runs, <code>tend ui</code> opens this page logged in.
        </p>
        <label for="token">Token</label>
        <input id="token" ref={input} type="password" autocomplete="current-password" required spellcheck={false} aria-describedby="error" />
        <p id="error" class="error" role="alert">
          {error}
        </p>
        <button class="primary" disabled={busy}>
          {busy ? 'Logging in…' : 'Log in'}
        </button>
        <p class="faint">The token is in the file that tend serve got as --token-file. This browser stays logged in for a week.</p>
      </form>
    </main>
  );
}
