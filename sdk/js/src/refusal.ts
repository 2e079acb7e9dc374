// What a server's refusal means: its errors, and answers that are none of the API's.

import { fromBinary } from '@bufbuild/protobuf';
import { AmbiguousError, clean, GapError, InvalidError, RedirectError, StartError, TendError, type ErrorCode } from './errors.js';
import { ErrorDetailSchema, ErrorKind, type ErrorDetail } from './gen/tend/v1/process_pb.js';
import { streamNames } from './messages.js';
import { ConnectionError } from './transport.js';

/** The error of an answer that is no success. known: a tend server has answered there. */
export function refusal(url: string, status: number, body: Uint8Array, known: boolean): Error {
  const error = parseJSON(body);
  if (typeof error?.code === 'string') return wireError(error);
  // Not an answer of the API: a proxy that cannot reach its server, or something else.
  const text = `${url} answers with HTTP status ${status}`;
  switch (status) {
    case 401:
    case 403:
      return new TendError('permission', `the server refuses the token, or wants one: ${text}`);
    case 404:
    case 405:
      if (known) return unsupported(text);
      break;
    case 408:
    case 429:
    case 502:
    case 503:
    case 504:
      return new ConnectionError(text);
  }
  return new TendError('protocol', `${text}; it is no tend server`);
}

/** The error of an answer that sends its caller elsewhere. */
export function redirect(url: string, location: string): Error {
  return new RedirectError(url, clean(location));
}

function unsupported(text: string): TendError {
  return new TendError('unsupported', `the server does not know this call: it is of a former version, and tend upgrade replaces it (${text})`);
}

interface WireError {
  code?: unknown;
  message?: unknown;
  details?: unknown;
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any
export function parseJSON(data: Uint8Array | string): any {
  try {
    const value = JSON.parse(typeof data === 'string' ? data : new TextDecoder().decode(data));
    return value && typeof value === 'object' ? value : undefined;
  } catch {
    return undefined;
  }
}

/** An error that the server itself sent. It is final, unless it is "unavailable". */
export function wireError(e: WireError): Error {
  const err = typed(e);
  if (err instanceof TendError && typeof e.code === 'string') err.wire = e.code;
  return err;
}

function typed(e: WireError): Error {
  const message = clean(typeof e.message === 'string' ? e.message : '');
  if (e.code === 'unavailable') return new ConnectionError(message || 'the server is unavailable');
  for (const d of Array.isArray(e.details) ? e.details : []) {
    if (d?.type !== 'tend.v1.ErrorDetail' || typeof d.value !== 'string') continue;
    try {
      const known = fromDetail(fromBinary(ErrorDetailSchema, fromBase64(d.value)), message);
      if (known) return known;
    } catch {
      // A detail that cannot be read: the code has to do.
    }
  }
  switch (e.code) {
    case 'permission_denied':
    case 'unauthenticated':
      return new TendError('permission', `the server refuses the token, or wants one: ${message}`);
    case 'unimplemented':
      return unsupported(message || 'unimplemented');
    case 'not_found':
      return new TendError('not_found', message);
    case 'already_exists':
      return new TendError('exists', message);
    case 'invalid_argument':
      return new TendError('invalid', message);
    case 'resource_exhausted':
      return new TendError('limit', message);
  }
  return new TendError('internal', message || String(e.code));
}

function fromBase64(s: string): Uint8Array {
  return Uint8Array.from(atob(s), (c) => c.charCodeAt(0));
}

const kinds: { [kind in ErrorKind]?: ErrorCode } = {
  [ErrorKind.NOT_FOUND]: 'not_found',
  [ErrorKind.AMBIGUOUS]: 'ambiguous',
  [ErrorKind.EXISTS]: 'exists',
  [ErrorKind.EXITED]: 'exited',
  [ErrorKind.RUNNING]: 'running',
  [ErrorKind.LAGGED]: 'lagged',
  [ErrorKind.STDIN_CLOSED]: 'stdin_closed',
  [ErrorKind.PTY]: 'pty',
  [ErrorKind.NO_PTY]: 'no_pty',
  [ErrorKind.OFFSET]: 'offset',
  [ErrorKind.UNAVAILABLE]: 'unavailable',
  [ErrorKind.UNSUPPORTED]: 'unsupported',
  [ErrorKind.LIMIT]: 'limit',
  [ErrorKind.PERMISSION]: 'permission',
  [ErrorKind.INVALID]: 'invalid',
  [ErrorKind.START]: 'start',
  [ErrorKind.GAP]: 'gap',
  [ErrorKind.WRITER_FORGOTTEN]: 'writer_forgotten',
  [ErrorKind.DAMAGED]: 'damaged',
  [ErrorKind.SANDBOX_STOPPED]: 'sandbox_stopped',
  [ErrorKind.SANDBOX_PAUSED]: 'sandbox_paused',
  [ErrorKind.IN_USE]: 'in_use',
  [ErrorKind.CHANGED]: 'changed',
};

// In the order of their numbers.
const startReasons = ['other', 'not_found', 'permission', 'format', 'bad_dir', 'bad_user', 'too_long', 'resources', 'limits', 'pty', 'other'] as const;

function fromDetail(d: ErrorDetail, message: string): Error | undefined {
  const code = kinds[d.kind];
  switch (code) {
    case undefined:
      return undefined;
    case 'invalid':
      return new InvalidError(clean(d.field), clean(d.reason));
    case 'start':
      return new StartError(message, startReasons[d.startReason] ?? 'other', clean(d.what), clean(d.systemError), d.errno);
    case 'ambiguous':
      return new AmbiguousError(message, d.ids.map(clean));
    case 'gap':
      return new GapError(streamNames[d.gap?.stream ?? 0] ?? 'a stream', Number(d.gap?.from ?? 0), Number(d.gap?.to ?? 0));
    case 'unavailable':
      return new ConnectionError(message);
  }
  return new TendError(code, message);
}
