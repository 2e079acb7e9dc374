// What goes wrong, as types. One class for all, with a code to switch on, and a
// class of its own for each error that has data.

/** What kind of error it is. */
export type ErrorCode =
  | 'not_found' // no process, or no sandbox, matches
  | 'ambiguous' // several match: AmbiguousError
  | 'exists' // the id is taken by another process
  | 'exited' // the process has ended
  | 'running' // the process has not ended
  | 'lagged' // events were dropped
  | 'stdin_closed' // no input is taken any more
  | 'pty' // not with a terminal
  | 'no_pty' // only with a terminal
  | 'offset' // past the end
  | 'writer_forgotten' // too many other writers since
  | 'unsupported' // not on this machine, or not by this server
  | 'limit' // the server has no room
  | 'sandbox_stopped' // the sandbox is stopped
  | 'sandbox_paused' // the sandbox is paused
  | 'in_use' // sandboxes need it
  | 'permission' // the token or the user is refused
  | 'damaged' // what is kept on the disk is damaged
  | 'invalid' // a field of the request: InvalidError
  | 'start' // the program could not be started: StartError
  | 'gap' // bytes are gone: GapError
  | 'unavailable' // the server does not answer
  | 'no_daemon' // no program listens there
  | 'redirect' // the server points elsewhere: RedirectError
  | 'protocol' // what answers sends what no tend sends
  | 'command' // a command has failed: GitError
  | 'changed' // a file has changed while it was read, or since
  | 'closed' // the client, or the reader, was closed
  | 'internal'; // anything else, in the server's words

/** The error of all methods of this package; `code` is its kind. */
export class TendError extends Error {
  readonly code: ErrorCode;
  /** @internal The code of the Connect protocol, if the server sent one. */
  declare wire?: string;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** A field of a request that is refused, and why. */
export class InvalidError extends TendError {
  constructor(
    readonly field: string,
    readonly reason: string,
  ) {
    super('invalid', `${field} ${reason}`);
  }
}

/** Why a program could not be started. */
export type StartReason = 'not_found' | 'permission' | 'format' | 'bad_dir' | 'bad_user' | 'too_long' | 'resources' | 'limits' | 'pty' | 'other';

/** The kernel did not run the program. */
export class StartError extends TendError {
  constructor(
    message: string,
    readonly reason: StartReason,
    /** The program, directory or user that it concerns. */
    readonly what: string,
    /** The system's error, and its number (0: none). */
    readonly systemError: string,
    readonly errno: number,
  ) {
    super('start', message);
  }
}

/** Bytes from..to (exclusive) of a stream were freed before they were read. */
export class GapError extends TendError {
  constructor(
    readonly stream: string,
    readonly from: number,
    readonly to: number,
  ) {
    super('gap', `bytes ${from} to ${to} of ${stream} were freed before they were read`);
  }
}

/** Several processes match. */
export class AmbiguousError extends TendError {
  constructor(
    message: string,
    readonly ids: string[],
  ) {
    super('ambiguous', message);
  }
}

/** The server redirects to another address. The client does not follow, because it would send the token there. */
export class RedirectError extends TendError {
  constructor(
    url: string,
    readonly location: string,
  ) {
    super('redirect', `${url} sends its callers to ${location}; that is not followed, as the token would go along: give that URL instead, if it is meant`);
  }
}

/** Reports whether an error is a TendError with this code, from any copy of this package. */
export function hasCode(err: unknown, ...codes: ErrorCode[]): err is TendError {
  return err instanceof Error && codes.includes((err as TendError).code);
}

export function protocolError(what: string): TendError {
  return new TendError('protocol', `the server sent ${clean(what)}; it is damaged, or no tend server`);
}

const maxText = 16 << 10;

// What could move the cursor of a terminal, change what is shown or turn the
// direction of writing.
// eslint-disable-next-line no-control-regex
const active = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff]/g;

/** A text of the server, safe for a terminal. */
export function clean(text: string): string {
  if (text.length > maxText) text = `${text.slice(0, maxText)}…`;
  return text.replace(active, '\ufffd');
}
