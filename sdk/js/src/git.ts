// A git repository in a sandbox.

import { InvalidError, TendError } from './errors.js';
import { text } from './messages.js';
import type { Processes } from './processes.js';

/** A git command that has failed. */
export class GitError extends TendError {
  constructor(
    /** Without the options of every command. */
    readonly args: string[],
    /** As shells report it: 128+n after signal n. */
    readonly exitCode: number,
    readonly stderr: string,
  ) {
    super('command', `git ${args.join(' ')} ended with ${exitCode}: ${stderr.trim()}`);
  }
}

/**
 * How clone, pull and push reach another repository. username and password (or a token) are for HTTP(S): git gets them by its
 * stdin, and they are in no command line, configuration or URL. Hooks of the repository see them.
 */
export interface GitAccess {
  /** Default: the remote's own, or the current one. */
  branch?: string;
  username?: string;
  password?: string;
}

/** The state of a repository's files. */
export interface GitStatus {
  /** undefined: none is checked out. */
  branch?: string;
  upstream?: string;
  /** Commits, compared with upstream. */
  ahead: number;
  behind: number;
  files: GitFile[];
}

/** A file that is not as in the last commit. staged and unstaged are git's letters: M, A, D, R, C, T, U; ".": not changed, "?": git does not know the file. */
export interface GitFile {
  path: string;
  /** Its former path, of R and C. */
  from?: string;
  staged: string;
  unstaged: string;
}

/** A shell reads user name and password, and git asks it for them: for the host of the remote, and for none that this one redirects to. */
const auth = String.raw`IFS= read -r TEND_GIT_USERNAME && IFS= read -r TEND_GIT_PASSWORD && export TEND_GIT_USERNAME TEND_GIT_PASSWORD || exit
dir=. past= remote=
[ "$1" != -C ] || dir=$2
for arg; do [ -z "$past" ] || { remote=$arg; break; }; [ "$arg" != -- ] || past=1; done
f='!f() { test "$1" != get || printf "username=%s\npassword=%s\n" "$TEND_GIT_USERNAME" "$TEND_GIT_PASSWORD"; }; f'
for url in "$(git -C "$dir" ls-remote --get-url -- "$remote")" "$(git -C "$dir" remote get-url --push -- "$remote" 2>/dev/null)"; do
  host=$(printf %s "$url" | sed 's|^[^:]*://||; s|[/?#].*||; s|.*@||')
  [ -z "$host" ] || set -- -c "credential.http://$host.helper=$f" -c "credential.https://$host.helper=$f" "$@"
done
exec git -c credential.helper= "$@" </dev/null`;

/** A git repository in a directory of a sandbox. Each method runs the sandbox's own git, as the sandbox's user; one that fails is a GitError. */
export class Git {
  readonly #processes: Processes;

  /** @internal Made by Sandbox. */
  constructor(
    processes: Processes,
    readonly path: string,
  ) {
    this.#processes = processes;
  }

  /** Runs git with these arguments in the repository, and returns what it has printed: at most the newest 16 MiB. */
  async run(...args: string[]): Promise<string> {
    return this.#run(['-C', this.path], args);
  }

  async #run(before: string[], args: string[], { username = '', password = '' }: GitAccess = {}): Promise<string> {
    if (/[\n\0]/.test(username + password)) throw new InvalidError('password', 'has an end of line, or user name has');
    const argv = ['git', ...before, ...args];
    const secret = username !== '' || password !== '';
    if (secret) argv.splice(0, 1, 'sh', '-c', auth, 'sh');
    const env = { GIT_TERMINAL_PROMPT: '0', LC_ALL: 'C.UTF-8' };
    const res = await this.#processes.run({ argv, env }, { input: secret ? `${username}\n${password}\n` : undefined });
    const said = (b: Uint8Array) => new TextDecoder().decode(b);
    if (!res.success) throw new GitError(args, res.exitCode, said(res.stderr));
    return said(res.stdout);
  }

  /** Clones a repository into the directory, which must be empty or missing. depth: so many commits; default: all. */
  async clone(url: string, options: GitAccess & { depth?: number } = {}): Promise<void> {
    noPassword('url', url);
    noOption(options.branch);
    const args = ['clone', '--quiet'];
    if (options.branch) args.push(`--branch=${options.branch}`);
    if (options.depth) args.push(`--depth=${options.depth}`);
    await this.#run([], [...args, '--', url, this.path], options);
  }

  /** Makes an empty repository in the directory, whose branch is main. */
  async init(): Promise<void> {
    await this.#run([], ['init', '--quiet', '--initial-branch=main', '--', this.path]);
  }

  /** The state of the files. */
  async status(): Promise<GitStatus> {
    return state(await this.run('status', '--porcelain=v2', '--branch', '--untracked-files=all', '-z'));
  }

  /** Stages files, also those that were removed; without paths, all. */
  async add(...paths: string[]): Promise<void> {
    await this.run('add', '--all', '--', ...paths);
  }

  /** Commits what is staged, and returns the commit's name. Without author and email git's configuration has them. */
  async commit(message: string, { author, email }: { author?: string; email?: string } = {}): Promise<string> {
    const who = [...(author ? ['-c', `user.name=${author}`] : []), ...(email ? ['-c', `user.email=${email}`] : [])];
    await this.run(...who, 'commit', '--quiet', `--message=${text('message', message)}`);
    return (await this.run('rev-parse', 'HEAD')).trim();
  }

  /** The names of the local branches. */
  async branches(): Promise<string[]> {
    return (await this.run('for-each-ref', '--format=%(refname:short)', 'refs/heads')).split('\n').filter(Boolean);
  }

  /** Goes to a branch; create: to a new one from here. */
  async checkout(branch: string, options: { create?: boolean } = {}): Promise<void> {
    noOption(branch);
    await this.run('switch', '--quiet', options.create ? '--create' : '--no-guess', branch);
  }

  /** Fetches a branch and moves the current one forward to it; it merges nothing. */
  async pull(options: GitAccess & { remote?: string } = {}): Promise<void> {
    const { remote = 'origin', branch } = options;
    noPassword('remote', remote);
    noOption(branch);
    await this.#run(['-C', this.path], ['pull', '--ff-only', '--quiet', '--', remote, ...(branch ? [branch] : [])], options);
  }

  /** Sends a branch, by default the current one, and has it follow the remote's. */
  async push(options: GitAccess & { remote?: string } = {}): Promise<void> {
    const { remote = 'origin', branch = 'HEAD' } = options;
    noPassword('remote', remote);
    noOption(branch);
    await this.#run(['-C', this.path], ['push', '--set-upstream', '--quiet', '--', remote, branch], options);
  }
}

/** Refuses a URL with a password in it. git takes some that are no URLs to others. */
function noPassword(field: string, address: string): void {
  if (/^[a-z][a-z0-9+.-]*:\/\/[^/?#@:]*:[^/?#]*@/i.test(text(field, address))) throw new InvalidError(field, 'has a password, which git would show and keep; give it as password');
}

/** Refuses what git would take for an option, or for an order to force, delete or rename, in place of a branch. */
function noOption(branch = ''): void {
  if (/^[-+]|:/.test(text('branch', branch))) throw new InvalidError('branch', `is ${JSON.stringify(branch.slice(0, 80))}; a name without - or + before it and without : is needed`);
}

/** Reads git's format for programs, in which each part ends with NUL. */
function state(out: string): GitStatus {
  const facts = new Map<string, string>();
  const files: GitFile[] = [];
  const parts = out.split('\0');
  for (let part = parts.shift(); part !== undefined; part = parts.shift()) {
    const [kind, ...rest] = part.split(' ');
    const at = { '1': 7, '2': 8, u: 9 }[kind!];
    if (kind === '#') facts.set(rest[0]!, rest.slice(1).join(' '));
    else if (kind === '?') files.push({ path: rest.join(' '), staged: '?', unstaged: '?' });
    else if (at) {
      const file: GitFile = { path: rest.slice(at).join(' '), staged: rest[0]![0]!, unstaged: rest[0]![1]! };
      if (kind === '2') file.from = parts.shift();
      files.push(file);
    }
  }
  const branch = facts.get('branch.head');
  const [ahead = 0, behind = 0] = (facts.get('branch.ab') ?? '').split(' ').filter(Boolean).map((n) => Math.abs(Number(n)));
  return { branch: branch === '(detached)' ? undefined : branch, upstream: facts.get('branch.upstream'), ahead, behind, files };
}
