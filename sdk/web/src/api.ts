// The way to the server: calls of @tend/client to the page's own origin, and streams that
// come back by themselves.

import type { DescMethodServerStreaming, DescMethodUnary, DescService, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import { FetchTransport, type FetchInit } from '../../js/src/browser/fetch.js';
import { Connect, type CallOptions } from '../../js/src/connect.js';
import { TendError } from '../../js/src/errors.js';
import { ProcessService } from '../../js/src/gen/tend/v1/process_pb.js';
import { CodeService } from '../../js/src/gen/tend/v1/code_pb.js';
import { FileService, SandboxService } from '../../js/src/gen/tend/v1/sandbox_pb.js';
import { ImageService } from '../../js/src/gen/tend/v1/image_pb.js';
import { ChatService } from '../../js/src/gen/tend/v1/chat_pb.js';
import { OverviewService } from '../../js/src/gen/tend/v1/overview_pb.js';
import { ServiceService } from '../../js/src/gen/tend/v1/service_pb.js';
import { ViewService } from '../../js/src/gen/tend/v1/view_pb.js';
import { Attempts } from '../../js/src/retry.js';
import { call } from './proof.js';
import { lost } from './session.js';

/** The methods of a service. */
type Client<S extends DescService> = {
  [M in keyof S['method']]: S['method'][M] extends DescMethodUnary<infer I, infer O>
    ? (input: MessageInitShape<I>, options?: CallOptions) => Promise<MessageShape<O>>
    : S['method'][M] extends DescMethodServerStreaming<infer I, infer O>
      ? (input: MessageInitShape<I>, options?: CallOptions) => AsyncIterable<MessageShape<O>>
      : never;
};

function createClient<S extends DescService>(service: S, connect: Connect): Client<S> {
  const all: Record<string, unknown> = {};
  for (const m of service.methods)
    if (m.methodKind === 'unary') all[m.localName] = (input: Record<string, unknown>, options?: CallOptions) => connect.unary(m, input, options);
    else if (m.methodKind === 'server_streaming') all[m.localName] = (input: Record<string, unknown>, options?: CallOptions) => connect.stream(m, input, options);
  return all as Client<S>;
}

/** Calls to this page's own server, about a sandbox or the machine. */
function callsOf(box: string): Connect {
  const place: Record<string, string> = box ? { 'Tend-Sandbox': box } : {};
  const send = (url: URL, init: FetchInit) => call(url, { ...init, headers: { ...init.headers, ...place } });
  return new Connect(new FetchTransport(location.origin, undefined, send));
}

const machine = callsOf('');
export const overview = createClient(OverviewService, machine);
export const services = createClient(ServiceService, machine);
export const chats = createClient(ChatService, machine);
export const sandboxes = createClient(SandboxService, machine);
export const images = createClient(ImageService, machine);

/** Calls about the processes and files of one place: a sandbox, or the machine. */
export interface Place {
  box: string;
  processes: Client<typeof ProcessService>;
  views: Client<typeof ViewService>;
  files: Client<typeof FileService>;
  code: Client<typeof CodeService>;
}

const places = new Map<string, Place>();

export function place(box: string): Place {
  let p = places.get(box);
  if (!p) {
    const t = box ? callsOf(box) : machine;
    p = { box, processes: createClient(ProcessService, t), views: createClient(ViewService, t), files: createClient(FileService, t), code: createClient(CodeService, t) };
    places.set(box, p);
  }
  return p;
}

/** What @tend/client says before the server's own words, about a token that this page does not have. */
const aboutToken = 'the server refuses the token, or wants one: ';

/** The error's words, for people. */
export function words(err: unknown): string {
  const text = err instanceof Error ? err.message : String(err);
  return text.startsWith(aboutToken) ? text.slice(aboutToken.length) : text;
}

/** Codes of the Connect protocol that another try does not change; and the client's own, of answers that have none. */
const final = ['not_found', 'permission_denied', 'unauthenticated', 'invalid_argument', 'failed_precondition', 'out_of_range', 'unimplemented', 'already_exists', 'data_loss'];
const finalOwn = ['permission', 'unsupported', 'redirect', 'invalid', 'exists', 'not_found', 'changed', 'closed'];

/** Reports whether the same call may succeed later. */
export function transient(err: unknown): boolean {
  if (!(err instanceof TendError)) return true;
  return err.wire ? !final.includes(err.wire) : !finalOwn.includes(err.code);
}

export function notFound(err: unknown): boolean {
  return err instanceof TendError && (err.wire === 'not_found' || err.code === 'not_found');
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
