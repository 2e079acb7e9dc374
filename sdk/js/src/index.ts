/**
 * The TypeScript client of tend: processes that outlive the daemon and you.
 *
 * @packageDocumentation
 */
export { Client, type ClientOptions } from './client.js';
export { CodeContexts, type CodeContext, type CodeError, type CodeEvent, type CodeOptions, type CodeResult, type CodeValue } from './code.js';
export { AmbiguousError, GapError, hasCode, InvalidError, RedirectError, StartError, TendError, type ErrorCode, type StartReason } from './errors.js';
export { Files, FileWatcher, type FileEntry, type FileEvent } from './files.js';
export { Git, GitError, type GitAccess, type GitFile, type GitStatus } from './git.js';
export { Images, type Image } from './images.js';
export { Process, type KillResult, type Until, type WaitResult } from './process.js';
export { newID, Processes, type Result, type RunOptions } from './processes.js';
export { Reader } from './reader.js';
export { type RetryOptions } from './retry.js';
export { Sandbox } from './sandbox.js';
export { type SandboxAccess, type SandboxChange, type SandboxFilter, type SandboxInfo, type SandboxMetric, type SandboxNetwork, type SandboxShare, type SandboxSize, type SandboxSnapshot, type SandboxSpec, type SandboxState, type SignedOptions } from './sandbox-types.js';
export { Services, type Service } from './services.js';
export { shellStatus, type Exit, type Filter, type Info, type OutputStream, type ProcessEvent, type ReadOptions, type Scope, type Selector, type Spec, type StreamInfo } from './types.js';
export { type Usage, type UsagePoint } from './usage.js';
export { type Amount, type GrepOptions, type LookOptions, type Match, type Piece, type ViewOptions } from './views.js';
