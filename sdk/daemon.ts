// A tend of the tests' own: bin/tend serve, or what TEND_BIN names. It is ended
// with the tests.
import { spawn, type ChildProcess } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

const bin = process.env.TEND_BIN ?? path.resolve('../../bin/tend');

export class Daemon {
  readonly dir = fs.mkdtempSync(path.join(os.tmpdir(), 'tend-ts-'));
  private child!: ChildProcess;

  private constructor(private readonly flags: string[]) {}

  /** Starts one, with a socket and a port. */
  static async start(...flags: string[]): Promise<Daemon> {
    const daemon = new Daemon(flags);
    after(async () => {
      await daemon.shutdown();
      fs.rmSync(daemon.dir, { recursive: true, force: true });
    });
    await daemon.serve();
    return daemon;
  }

  private async serve(listen = '127.0.0.1:0'): Promise<void> {
    const log = fs.openSync(path.join(this.dir, 'log'), 'a');
    const places = ['--listen', listen, '--socket', path.join(this.dir, 's.sock'), '--state-dir', this.stateDir, '--port-file', path.join(this.dir, 'url')];
    const node = path.dirname(path.dirname(process.execPath));
    const shown = node.startsWith('/usr') ? [] : ['--base-path', node]; // tests run it inside, too
    const child = spawn(bin, ['serve', ...places, ...shown, ...this.flags], { stdio: ['ignore', log, log] });
    fs.closeSync(log);
    this.child = child;
    await until(() => fs.existsSync(path.join(this.dir, 'url')) || child.exitCode !== null, 'the daemon serves');
    if (child.exitCode !== null) throw new Error(fs.readFileSync(path.join(this.dir, 'log'), 'utf8'));
  }

  /**
   * Ends it and all its processes, and starts another on what it left. With something to do while
   * it is away, the other one has the same address.
   */
  async restart(away?: () => Promise<void>): Promise<void> {
    const listen = away && new URL(this.url).host;
    await this.shutdown();
    fs.rmSync(path.join(this.dir, 'url'), { force: true });
    await away?.();
    await this.serve(listen);
  }

  get socket(): string {
    return `unix://${this.dir}/s.sock`;
  }

  get url(): string {
    return fs.readFileSync(path.join(this.dir, 'url'), 'utf8').trim();
  }

  get stateDir(): string {
    return path.join(this.dir, 'state');
  }

  /** The pids of anchor, keeper and server: descendants of the launcher, by their command lines. */
  roles(): Record<string, number> {
    const found: Record<string, number> = {};
    const visit = (pid: number, of?: string) => {
      const children: string[] = [];
      try {
        for (const task of fs.readdirSync(`/proc/${pid}/task`)) children.push(...fs.readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean));
      } catch {
        return; // it has ended
      }
      for (const c of children.map(Number)) {
        try {
          const args = fs.readFileSync(`/proc/${c}/cmdline`, 'utf8').split('\0');
          const exe = fs.readlinkSync(`/proc/${c}/exe`);
          const role = ['anchor', 'keeper', 'server'].find((r) => args.includes(r) && /tend/.test(exe));
          // A child of a role looks like its parent until it runs its own program.
          if (!role || role === of) continue;
          found[role] = c;
          if (role === 'anchor') visit(c, role);
        } catch {
          // It has ended.
        }
      }
    };
    visit(this.child.pid!);
    return found;
  }

  /**
   * Kills roles with SIGKILL, one after the other, until stop() is called; killed() is
   * how many it were. The pause between two grows with the time that the daemon takes to
   * answer: on a busy machine one that is killed again as soon as it is up would never serve.
   */
  killing(every = 300, roles = ['server', 'keeper', 'anchor']): { killed: () => number; stop: () => Promise<void> } {
    let stop = false;
    let killed = 0;
    const loop = (async () => {
      for (let i = 0, pause = every; !stop; i++) {
        await sleep(pause);
        const pid = this.roles()[roles[i % roles.length]!];
        if (stop || !pid) continue;
        const since = Date.now();
        try {
          process.kill(pid, 'SIGKILL');
          killed++;
        } catch {
          continue; // it ended by itself
        }
        while (!stop && !(await fetch(`${this.url}/-/readyz`).then((r) => r.ok, () => false))) await sleep(20);
        pause = Math.max(every, 4 * (Date.now() - since));
      }
    })();
    return {
      killed: () => killed,
      stop: async () => {
        stop = true;
        await loop;
      },
    };
  }

  private async shutdown(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const ended = new Promise((ok) => this.child.once('exit', ok));
    this.child.kill('SIGTERM');
    await ended;
  }
}

/** Waits for what must happen; the bound only ends a failing test. */
export async function until<T>(cond: () => T | Promise<T>, what: string, ms = 120_000): Promise<T> {
  const end = Date.now() + ms;
  for (;;) {
    const v = await cond();
    if (v) return v;
    if (Date.now() > end) throw new Error(`${what}: not within ${ms} ms`);
    await sleep(10);
  }
}
