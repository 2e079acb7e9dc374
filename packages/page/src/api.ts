// The way to the server: Connect calls to the page's own origin, and streams that
// come back by themselves.

import { Code, ConnectError, createClient, type Client, type Interceptor } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-web';
import { ProcessService } from '../../client/src/gen/tend/v1/process_pb.js';
import { FileService, SandboxService } from '../../client/src/gen/tend/v1/sandbox_pb.js';
import { ChatService } from '../../client/src/gen/tend/v1/chat_pb.js';
import { OverviewService } from '../../client/src/gen/tend/v1/overview_pb.js';
import { ServiceService } from '../../client/src/gen/tend/v1/service_pb.js';
import { ViewService } from '../../client/src/gen/tend/v1/view_pb.js';
import { Attempts } from '../../client/src/retry.js';
import { lost, proof } from './session.js';

const shows: Interceptor = (next) => (req) => {
  const p = proof();
  if (p) req.header.set('Tend-Page', p);
  return next(req);
};

const inside = (box: string): Interceptor => (next) => (req) => {
  req.header.set('Tend-Sandbox', box);
  return next(req);
};

const transportOf = (box: string) => createConnectTransport({ baseUrl: location.origin, useBinaryFormat: true, interceptors: box ? [shows, inside(box)] : [shows] });

const machine = transportOf('');
export const overview = createClient(OverviewService, machine);
export const services = createClient(ServiceService, machine);
export const chats = createClient(ChatService, machine);
export const sandboxes = createClient(SandboxService, machine);

/** Calls about the processes and files of one place: a sandbox, or the machine. */
export interface Place {
  box: string;
  processes: Client<typeof ProcessService>;
  views: Client<typeof ViewService>;
  files: Client<typeof FileService>;
}

const places = new Map<string, Place>();

export function place(box: string): Place {
  let p = places.get(box);
  if (!p) {
    const t = box ? transportOf(box) : machine;
    p = { box, processes: createClient(ProcessService, t), views: createClient(ViewService, t), files: createClient(FileService, t) };
    places.set(box, p);
  }
  return p;
}

/** The error's words, for people. */
export function words(err: unknown): string {
  return err instanceof ConnectError ? err.rawMessage : err instanceof Error ? err.message : String(err);
}

/** Reports whether the same call may succeed later. */
export function transient(err: unknown): boolean {
  const code = err instanceof ConnectError ? err.code : Code.Unknown;
  return ![Code.NotFound, Code.PermissionDenied, Code.Unauthenticated, Code.InvalidArgument, Code.FailedPrecondition, Code.OutOfRange, Code.Unimplemented, Code.AlreadyExists, Code.DataLoss].includes(code);
}

export function notFound(err: unknown): boolean {
  return err instanceof ConnectError && err.code === Code.NotFound;
}

const pause = (ms: number, signal: AbortSignal) =>
  new Promise<void>((ok) => {
    const t = setTimeout(ok, ms);
    signal.addEventListener('abort', () => (clearTimeout(t), ok()), { once: true });
  });

/** Resolves while the page is seen: a browser has few connections for each server. */
const seen = (signal: AbortSignal) =>
  new Promise<void>((ok) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener('visibilitychange', look);
      ok();
    };
    document.addEventListener('visibilitychange', look);
    signal.addEventListener('abort', look, { once: true });
    look();
  });

/** Milliseconds in which a stream must say something; it sends a heartbeat each 15 s. */
const silence = 45_000;

export interface Following {
  /** The stream is there (undefined), or is being sought: why. */
  state?: (trouble: string | undefined) => void;
}

/**
 * Streams, one after the other, until one ends as it should or fails for good.
 * take says whether the stream goes on: false ends it, 'again' asks for the next at once.
 * While nobody sees the page there is none.
 */
export async function follow<M>(open: (signal: AbortSignal) => AsyncIterable<M>, take: (m: M) => boolean | 'again', signal: AbortSignal, { state }: Following = {}): Promise<void> {
  const attempts = new Attempts({ attempts: 1e9 });
  while (!signal.aborted) {
    await seen(signal);
    if (signal.aborted) return;
    const scope = new AbortController();
    const end = () => scope.abort();
    const hide = () => document.hidden && end();
    signal.addEventListener('abort', end, { once: true });
    document.addEventListener('visibilitychange', hide);
    let timer = setTimeout(end, silence);
    let again = false;
    try {
      for await (const m of open(scope.signal)) {
        clearTimeout(timer);
        timer = setTimeout(end, silence);
        attempts.progress();
        state?.(undefined);
        const goes = take(m);
        if (goes === false) return;
        if (goes === 'again') {
          again = true;
          break;
        }
      }
      if (!again) return;
    } catch (err) {
      if (signal.aborted) return;
      if (lost(err)) return;
      if (!transient(err) && !scope.signal.aborted) throw err;
      if (!document.hidden) {
        state?.(words(err));
        await pause(Math.min(attempts.next(true) ?? 2000, 2000), signal);
      }
    } finally {
      clearTimeout(timer);
      end();
      signal.removeEventListener('abort', end);
      document.removeEventListener('visibilitychange', hide);
    }
  }
}

/** A call that is safe to repeat, repeated while the server is away. */
export async function repeat<T>(call: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  const attempts = new Attempts({ attempts: 20 });
  for (;;) {
    try {
      return await call();
    } catch (err) {
      if (signal?.aborted || !transient(err)) {
        lost(err);
        throw err;
      }
      const wait = attempts.next(true);
      if (wait === undefined) throw err;
      await pause(Math.min(wait, 2000), signal ?? new AbortController().signal);
    }
  }
}
