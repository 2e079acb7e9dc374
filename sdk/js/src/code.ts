// Code in a sandbox by cells, as a notebook runs it.

import { hasCode, InvalidError, protocolError } from './errors.js';
import { CodeService, type CodeContext as Context, type RunCellResponse } from './gen/tend/v1/code_pb.js';
import type { Link } from './link.js';
import { text, textMap } from './messages.js';
import { ConnectionError } from './transport.js';

/** A value that a cell has shown, in all the forms that it has. png, jpeg and pdf are as base64. */
export interface CodeValue {
  /** It is the value of the cell's last expression. */
  is_main_result: boolean;
  text?: string;
  html?: string;
  markdown?: string;
  svg?: string;
  png?: string;
  jpeg?: string;
  pdf?: string;
  latex?: string;
  javascript?: string;
  json?: unknown;
  /** A DataFrame by columns. */
  data?: unknown;
  /** What a matplotlib figure shows. */
  chart?: unknown;
  /** What has another MIME type. */
  extra?: Record<string, unknown>;
}

/** The exception with which a cell has ended. */
export interface CodeError {
  name: string;
  value: string;
  traceback: string;
}

/** What a cell does. */
export type CodeEvent = { type: 'stdout' | 'stderr'; text: string } | ({ type: 'result' } & CodeValue) | ({ type: 'error' } & CodeError) | { type: 'number_of_executions'; execution_count: number } | { type: 'end_of_execution' };

/** What a cell has done. */
export interface CodeResult {
  /** That of the value of the last expression; undefined: it has none. */
  text?: string;
  values: CodeValue[];
  stdout: string;
  stderr: string;
  /** The cell has failed. */
  error?: CodeError;
  /** Which cell of its context it is, from 1 on. */
  count: number;
  /** It was interrupted at its timeout. */
  timedOut: boolean;
}

export interface CodeOptions {
  /**
   * The id of a context; or language names the one whose own context it is: python, javascript, typescript, bash, or one
   * whose kernel of Jupyter is installed in the sandbox, such as r and java.
   */
  context?: string;
  language?: string;
  /** For this cell alone. */
  env?: Record<string, string | undefined>;
  /** Milliseconds until the cell is interrupted, as by Ctrl-C; its context keeps its variables. */
  timeout?: number;
  /** Called with each event as it comes. */
  onEvent?: (event: CodeEvent) => void;
  /** Interrupts the cell. */
  signal?: AbortSignal;
}

/** A place for cells that see each other's variables. */
export interface CodeContext {
  id: string;
  language: string;
  /** Where its kernel has started. */
  dir: string;
}

const fromContext = (m: Context | undefined): CodeContext => {
  if (!m) throw protocolError('no context');
  return { id: m.id, language: m.language, dir: m.dir };
};

/** An event as the kernel has written it. */
function eventOf(data: Uint8Array): CodeEvent {
  try {
    return JSON.parse(new TextDecoder().decode(data)) as CodeEvent;
  } catch {
    throw protocolError('an event of a cell that is no JSON');
  }
}

const gone = () => ConnectionError.of('away', 'the server went away again and again');

function newCell(): string {
  return [...crypto.getRandomValues(new Uint8Array(13))].map((b) => b.toString(16).padStart(2, '0')).join('');
}

/** The contexts of one sandbox. */
export class CodeContexts {
  readonly #link: Link;
  readonly #headers: Record<string, string>;

  /** @internal Made by Sandbox. */
  constructor(link: Link, headers: Record<string, string>) {
    this.#link = link;
    this.#headers = headers;
  }

  /** All, first those for cells that name none. */
  async list(signal?: AbortSignal): Promise<CodeContext[]> {
    return (await this.#link.call(CodeService.method.listContexts, {}, { signal, headers: this.#headers })).contexts.map(fromContext);
  }

  /** Makes one; default: Python, in the home of the sandbox's user. `limit`: there are too many. It is not repeated when the answer is lost. */
  async create(options: { language?: string; dir?: string; signal?: AbortSignal } = {}): Promise<CodeContext> {
    const request = { language: text('language', options.language ?? ''), dir: text('dir', options.dir ?? '') };
    return fromContext((await this.#link.once(CodeService.method.createContext, request, { signal: options.signal, headers: this.#headers })).context);
  }

  /** Ends the kernel of a context; its next cell begins afresh. */
  async restart(context: string, signal?: AbortSignal): Promise<void> {
    await this.#link.call(CodeService.method.restartContext, { context: text('context', context) }, { signal, headers: this.#headers });
  }

  /** Ends the kernel of a context, and forgets the context. It is no error if there is none. */
  async remove(context: string, signal?: AbortSignal): Promise<void> {
    await this.#link.call(CodeService.method.removeContext, { context: text('context', context) }, { signal, headers: this.#headers }).catch((err: unknown) => {
      if (!hasCode(err, 'not_found')) throw err;
    });
  }

  /** @internal Runs a cell: Sandbox.code. */
  async run(code: string, options: CodeOptions = {}): Promise<CodeResult> {
    if (options.context && options.language) throw new InvalidError('language', 'is given with a context, which has its own; give one of the two');
    const request = { code: text('code', code), context: text('context', options.context ?? ''), language: text('language', options.language ?? ''), env: textMap('env', options.env), cell: newCell() };
    const out: CodeResult = { values: [], stdout: '', stderr: '', count: 0, timedOut: false };
    let from = 0n;
    let again = false;
    let over = false;
    let execution = '';
    const interrupt = () => {
      if (execution && !over) this.#link.later(CodeService.method.cancelCell, { execution }, this.#headers);
    };
    const open = (signal: AbortSignal) => {
      const stream = this.#link.connect.stream(CodeService.method.runCell, { ...request, again, from }, { signal, headers: this.#headers });
      again = true;
      return stream;
    };
    const take = (m: RunCellResponse): { value?: CodeEvent; progress: boolean } => {
      if (m.goingAway) throw gone();
      if (m.execution) execution = m.execution;
      if (m.event.length === 0) return { progress: true };
      from++;
      return { value: eventOf(m.event), progress: true };
    };
    const timer = options.timeout
      ? setTimeout(() => {
          out.timedOut = true;
          interrupt();
        }, options.timeout)
      : undefined;
    try {
      for await (const event of this.#link.follow(open, take, () => over, options.signal)) {
        if (event.type === 'number_of_executions') out.count = event.execution_count;
        else if (event.type === 'stdout' || event.type === 'stderr') out[event.type] += event.text;
        else if (event.type === 'error') out.error = { name: event.name, value: event.value, traceback: event.traceback };
        else if (event.type === 'result') {
          const { type: _, ...value } = event;
          out.values.push(value);
          if (value.is_main_result) out.text = value.text;
        } else if (event.type === 'end_of_execution') over = true;
        options.onEvent?.(event);
        if (over) break;
      }
    } catch (err) {
      interrupt();
      throw err;
    } finally {
      clearTimeout(timer);
    }
    return out;
  }
}
