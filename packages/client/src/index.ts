/**
 * The TypeScript client of tend: processes that outlive the daemon and you.
 *
 * @packageDocumentation
 */
export { Client, newID, type ClientOptions, type Result, type RunOptions } from './client.js';
export { AmbiguousError, GapError, hasCode, InvalidError, RedirectError, StartError, TendError, type ErrorCode, type StartReason } from './errors.js';
export { Process, type KillResult, type Until, type WaitResult } from './process.js';
export { Reader } from './reader.js';
export { type RetryOptions } from './retry.js';
export { shellStatus, type Exit, type Filter, type Info, type OutputStream, type ProcessEvent, type ReadOptions, type Scope, type Selector, type Spec, type StreamInfo } from './types.js';
