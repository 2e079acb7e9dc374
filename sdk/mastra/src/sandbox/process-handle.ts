// A process of the sandbox, as Mastra sees it.

import { Writable, type Readable } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';
import { setTimeout as sleep } from 'node:timers/promises';
import { ProcessHandle, type CommandResult, type SpawnProcessOptions } from '@mastra/core/workspace';
import { hasCode, shellStatus, type Exit, type Info, type Process } from '@tend/client';

/** How long a descendant that holds the pipes may add to the output after the exit, in milliseconds. */
const drain = 200;

/** What a handle needs in addition to the process. @internal */
export interface HandleOptions extends Pick<SpawnProcessOptions, 'maxRetainedBytes' | 'onStdout' | 'onStderr'> {
  /** Receives an error that a callback of the user threw; the output continues. */
  onCallbackError: (err: unknown) => void;
}

type Text = 'stdout' | 'stderr';

/**
 * A handle to a process of the daemon. One stream from its first byte fills stdout, stderr
 * and exitCode. Lost connections are resumed where they broke.
 */
export class TendProcessHandle extends ProcessHandle {
  readonly pid: string;
  readonly #process: Process;
  readonly #onCallbackError: (err: unknown) => void;

  #exit?: Exit;
  /** The daemon no longer knows it: its sandbox was destroyed, or another client released it. */
  #gone = false;
  #done?: Promise<CommandResult>;
  readonly #reached = { stdout: 0, stderr: 0 };
  readonly #lost = { stdout: 0, stderr: 0 };
  readonly #decoders = { stdout: new StringDecoder('utf8'), stderr: new StringDecoder('utf8') };
  readonly #watchers = new Set<() => void>();

  #stdinClosed = false;
  #stdout?: Readable;
  #stdin?: Writable;

  /** @internal Made by TendProcessManager. */
  constructor(process: Process, options: HandleOptions) {
    super(options);
    this.pid = String(process.pid);
    this.#process = process;
    this.#onCallbackError = options.onCallbackError;
    this.#settle().catch(() => {}); // wait tries again, and tells
  }

  /** The daemon's id of the process, which is never reused. */
  get id(): string {
    return this.#process.id;
  }

  /** As a shell shows it: 128+n for signal n, 124 for a timeout; -1 if the end was not observed. */
  get exitCode(): number | undefined {
    if (this.#exit) return shellStatus(this.#exit);
    return this.#gone ? 137 : undefined;
  }

  override wait(): Promise<CommandResult> {
    return this.#settle();
  }

  /** Ends the process and all its descendants. False: it had already exited; its remaining descendants are ended in any case. */
  async kill(): Promise<boolean> {
    const ended = this.exitCode !== undefined;
    try {
      const { killed } = await this.#process.kill();
      return killed && !ended;
    } catch (err) {
      if (ended || hasCode(err, 'not_found', 'sandbox_stopped')) return false;
      throw err;
    }
  }

  sendStdin(data: string): Promise<void> {
    return this.#send(Buffer.from(data));
  }

  override async closeStdin(): Promise<void> {
    this.#checkStdin();
    if (this.#stdinClosed) return;
    this.#stdinClosed = true;
    try {
      await this.#process.closeStdin();
    } catch (err) {
      if (hasCode(err, 'stdin_closed')) return; // by another client
      this.#stdinClosed = false;
      throw await this.#inputError(err);
    }
  }

  /** Stdout from its first byte, whenever it is first used: raw bytes, no faster than they are read. */
  override get reader(): Readable {
    return (this.#stdout ??= this.#process.output('stdout', { drain, endIfRemoved: true }));
  }

  /** Stdin: bytes, in one queue with sendStdin. Ending it closes stdin. */
  override get writer(): Writable {
    return (this.#stdin ??= new Writable({
      write: (chunk: Buffer, _encoding, done) => void this.#send(chunk).then(() => done(), done),
      writev: (chunks, done) => void this.#send(Buffer.concat(chunks.map((c) => c.chunk as Buffer))).then(() => done(), done),
      // The end of input of a process that has ended is nothing to complain of.
      final: (done) => void this.closeStdin().then(() => done(), (err: Error) => done(this.exitCode === undefined ? err : null)),
    }));
  }

  override get stdoutTruncated(): boolean {
    return super.stdoutTruncated || this.#lost.stdout > 0;
  }

  override get stderrTruncated(): boolean {
    return super.stderrTruncated || this.#lost.stderr > 0;
  }

  override get stdoutDroppedBytes(): number {
    return super.stdoutDroppedBytes + this.#lost.stdout;
  }

  override get stderrDroppedBytes(): number {
    return super.stderrDroppedBytes + this.#lost.stderr;
  }

  /** Resolves when all output that info reports has arrived. @internal */
  async caughtUp(info: Info): Promise<void> {
    const missing = () => (info.exit && this.exitCode === undefined) || info.streams.some((s) => s.stream !== 'pty' && this.#reached[s.stream] < s.end);
    const ended = this.#settle().then(
      () => true,
      () => true,
    );
    while (missing()) {
      let wake!: () => void;
      const more = new Promise<boolean>((ok) => (wake = () => ok(false)));
      this.#watchers.add(wake);
      if (await Promise.race([more, ended])) break;
    }
    if (info.exit) await ended;
  }

  #settle(): Promise<CommandResult> {
    return (this.#done ??= this.#follow().catch((err: unknown) => {
      this.#done = undefined; // the next wait goes on where this one stopped
      throw err;
    }));
  }

  async #follow(): Promise<CommandResult> {
    for (;;) {
      try {
        for await (const event of this.#process.read({ drain, from: { ...this.#reached } })) {
          switch (event.kind) {
            case 'output':
              if (event.stream === 'pty') break;
              this.#reached[event.stream] = event.offset + event.data.length;
              this.#emit(event.stream, this.#decoders[event.stream].write(event.data));
              break;
            case 'gap':
              if (event.stream === 'pty') break;
              this.#reached[event.stream] = event.to;
              this.#lost[event.stream] += event.to - event.from;
              break;
            case 'exited':
              this.#exit = event.exit;
          }
          for (const wake of this.#watchers) wake();
          this.#watchers.clear();
        }
        break;
      } catch (err) {
        // Its output goes on when the sandbox does.
        if (hasCode(err, 'sandbox_paused')) {
          await sleep(500, undefined, { ref: false });
          continue;
        }
        // In a sandbox that was stopped nothing runs.
        if (!hasCode(err, 'not_found', 'sandbox_stopped')) throw err;
        this.#gone = true;
        break;
      }
    }
    for (const stream of ['stdout', 'stderr'] as const) this.#emit(stream, this.#decoders[stream].end());
    const exitCode = this.exitCode;
    if (exitCode === undefined) throw new Error(`Process ${this.pid}: its output ended without an exit status`);
    const begun = this.#process.info.started;
    const result: CommandResult = {
      success: exitCode === 0 && !this.#exit?.lost,
      exitCode,
      stdout: this.stdout,
      stderr: this.stderr,
      executionTimeMs: begun && this.#exit?.time ? Math.max(0, Math.round(this.#exit.time.getTime() - begun.getTime())) : 0,
    };
    if (this.#exit?.cause === 'timeout') result.timedOut = true;
    if (this.#gone || this.#exit?.signal || this.#exit?.cause === 'timeout') result.killed = true;
    return result;
  }

  #emit(stream: Text, text: string): void {
    if (!text) return;
    try {
      if (stream === 'stdout') this.emitStdout(text);
      else this.emitStderr(text);
    } catch (err) {
      this.#onCallbackError(err);
    }
  }

  async #send(data: Buffer): Promise<void> {
    this.#checkStdin();
    if (this.#stdinClosed) throw new Error(`Process ${this.pid}: its stdin was closed`);
    try {
      await this.#process.write(data);
    } catch (err) {
      throw await this.#inputError(err);
    }
  }

  #checkStdin(): void {
    if (this.exitCode !== undefined) throw new Error(`Process ${this.pid} has already exited with code ${this.exitCode}`);
    if (this.#process.info.spec.stdin !== 'pipe') throw new Error(`Process ${this.pid} does not have stdin available`);
  }

  async #inputError(err: unknown): Promise<unknown> {
    if (hasCode(err, 'not_found', 'sandbox_stopped')) return new Error(`Process ${this.pid} does not exist any more`, { cause: err });
    if (hasCode(err, 'stdin_closed')) return new Error(`Process ${this.pid}: its stdin was closed`, { cause: err });
    if (!hasCode(err, 'exited')) return err;
    await this.#settle().catch(() => {});
    return new Error(`Process ${this.pid} has already exited with code ${this.exitCode}`, { cause: err });
  }
}
