"""Specifications and states of processes. All times are in seconds, all sizes in bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypedDict, Union

from ._errors import TendError, clean

OutputStream = Literal["stdout", "stderr", "pty"]
"""A stream of output; a terminal has only "pty"."""

Scope = Literal["tree", "leader", "group"]
"""The receivers of a signal: the process and its descendants, only the process, or its process group."""

Command = Union[str, Sequence[str]]
"""A text is a line for /bin/sh -c; a sequence is a program and its arguments, which no shell sees."""


class Rlimit(TypedDict):
    resource: int
    """The kernel's number: `resource.RLIMIT_NOFILE` is 7."""
    soft: int
    hard: int


class Limits(TypedDict, total=False):
    """Limits of a process and its descendants."""

    rlimits: Sequence[Rlimit]
    nice: int
    oom_score_adj: int
    memory_max: int
    """Bytes, for the tree."""
    pids_max: int
    """Processes and threads, for the tree."""
    cpu_weight: int
    """1 to 10,000; the kernel's default is 100."""
    cpus: float
    """The most processors that the tree may use; 0.5 is half of one."""


class Retention(TypedDict, total=False):
    """What is kept of a process's output and how long."""

    limit: int
    """Bytes kept of each output stream. Default: the server's."""
    policy: Literal["drop_oldest", "block"]
    """What happens when there are more. Default: drop_oldest; block lets the process wait until `trim`."""
    ttl: float
    """Seconds that a finished process is kept. Default: the server's."""
    pin: bool
    """Keep it when it has finished, until it is unpinned or removed."""


class SpecOptions(TypedDict, total=False):
    """Options of a start, besides the command. A field that is not set has its default."""

    id: str
    """1 to 100 letters, digits, '.', '_', '-'. Default: a new one. Starting the same id with an equal spec starts nothing."""
    name: str
    """For people: up to 256 bytes."""
    tag: str
    env: Mapping[str, str | None]
    """Added to what is inherited; entries that are None are left out."""
    inherit: Literal["user", "daemon", "none"]
    """user (default): PATH of the daemon, HOME, USER and LOGNAME of the user; daemon: its whole environment."""
    dir: str
    """Absolute. Default: the user's home."""
    cwd: str
    """Another name of dir; one of them is given."""
    user: str
    """A name, "uid" or "uid:gid". Default: the user tend runs as."""
    stdin: Literal["null", "pipe"]
    """null (default) reads end of file at once; pipe is fed by `write`."""
    pty: tuple[int, int]
    """Columns and rows: the process gets a terminal instead of pipes."""
    timeout: float
    """Seconds after which the process is ended: TERM, then KILL."""
    timeout_scope: Scope
    """What the timeout ends. Default: tree."""
    limits: Limits
    retention: Retention
    kill_without_readers: float
    """Seconds without a reader after which the process is killed."""
    labels: Mapping[str, str]
    on_exit: str
    """A line of the shell that runs when the process has ended, as its user, in its directory and environment, with
    TEND_EXIT_STATUS and others set: at least once, even if parts of tend die. The process is kept until then."""
    on_exit_url: str
    """http or https: receives the same facts as JSON; repeated until it accepts them, for a day."""


@dataclass(frozen=True)
class Spec:
    """The specification of a process."""

    id: str
    name: str
    tag: str
    argv: tuple[str, ...]
    shell: str
    env: Mapping[str, str]
    dir: str
    user: str
    stdin: Literal["null", "pipe"]
    pty: tuple[int, int] | None
    timeout: float | None
    labels: Mapping[str, str]


Cause = Literal["exited", "signalled", "timeout", "oom", "shutdown", "killed", "no_readers", "lost"]


@dataclass(frozen=True)
class Exit:
    """How a process ended, as the kernel reported it."""

    code: int
    signal: int
    """The signal's number; 0: none."""
    core_dumped: bool
    cause: Cause
    time: datetime | None
    user_time: float
    system_time: float
    max_rss: int
    lost: bool
    """The end was not observed, and no status is known."""

    @property
    def status(self) -> int:
        """As a shell shows it: the code, 128 and the signal, 124 for a timeout, -1 if it is unknown."""
        if self.lost:
            return -1
        if self.cause == "timeout":
            return 124
        return 128 + self.signal if self.signal else self.code


@dataclass(frozen=True)
class StreamInfo:
    """The bytes `base` to `end` can be read."""

    stream: OutputStream
    base: int
    end: int
    eof: bool
    """No process holds the writing end any more."""


@dataclass(frozen=True)
class Info:
    """The state of a process at one moment."""

    id: str
    pid: int
    spec: Spec
    state: Literal["running", "stopped", "exited"]
    started: datetime | None
    exit: Exit | None
    tree_gone: bool
    """No descendant is left."""
    streams: tuple[StreamInfo, ...]
    stdin_open: bool
    stdin_accepted: int
    """Bytes of input that were accepted in all."""
    pinned: bool
    spec_cut: bool
    """To save space, spec lacks its environment, large labels and most of a long command."""
    damaged: str
    """What is wrong with its files; empty: nothing is known to be wrong."""


@dataclass(frozen=True)
class Started:
    """The kernel runs the program."""

    pid: int
    time: datetime | None


@dataclass(frozen=True)
class Output:
    """A piece of output. `offset` is the position of its first byte in the stream."""

    stream: OutputStream
    offset: int
    data: bytes
    time: datetime | None


@dataclass(frozen=True)
class Gap:
    """The bytes `start` to `end` (exclusive) were freed before they were read."""

    stream: OutputStream
    start: int
    end: int


@dataclass(frozen=True)
class Exited:
    """The process has ended. Descendants may still write."""

    exit: Exit
    time: datetime | None


@dataclass(frozen=True)
class Eof:
    """No process can write to the stream any more. `offset` is its length."""

    stream: OutputStream
    offset: int


@dataclass(frozen=True)
class TreeGone:
    """No descendant is left."""

    time: datetime | None


@dataclass(frozen=True)
class Removed:
    """It was removed, with its output."""

    time: datetime | None


@dataclass(frozen=True)
class ProcessEvent:
    """One fact about one of many processes."""

    id: str
    """Of the process."""
    event: Union[Started, Exited, TreeGone, Removed]


Event = Union[Started, Output, Gap, Exited, Eof, TreeGone]
"""One fact about a process, in the order of arrival."""


@dataclass(frozen=True)
class Listener:
    address: str
    pid: int


@dataclass(frozen=True)
class WaitResult:
    """What ended a wait."""

    met: bool
    """The condition holds; False: the process exited first."""
    exit: Exit | None
    match: bytes
    """For `match`: the text, at most 4 KiB."""
    stream: OutputStream | None
    offset: int
    """Where the match is."""
    listening: tuple[Listener, ...]
    """For `port`."""
    input: Literal["none", "likely", "certain", "password"]
    """For `input`: how certain it is, and whether a password is requested."""
    streams: tuple[StreamInfo, ...]


@dataclass(frozen=True)
class KillResult:
    """The result of a kill."""

    killed: bool
    """False: the process had already exited. Its remaining descendants are ended in any case."""
    survivors: tuple[int, ...] = ()
    """Processes that the kernel has not ended yet."""


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it wrote."""

    exit: Exit
    stdout: bytes
    """With a terminal: all its output."""
    stderr: bytes
    stdout_dropped: int = 0
    """Bytes before those kept."""
    stderr_dropped: int = 0

    @property
    def exit_code(self) -> int:
        """As a shell shows it; see Exit.status."""
        return self.exit.status

    @property
    def success(self) -> bool:
        """The exit code is 0."""
        return self.exit.status == 0

    @property
    def text(self) -> str:
        """stdout as text; bytes that are not UTF-8 are replaced."""
        return self.stdout.decode(errors="replace")


class CommandError(TendError):
    """A command of `run(…, check=True)` had an exit code other than 0; `result` is its result."""

    code = "command"

    def __init__(self, result: Result) -> None:
        last = result.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        super().__init__(f"the command ended with status {result.exit_code}" + (f": {clean(last)}" if last else ""))
        self.result = result


@dataclass(frozen=True)
class Piece:
    """A piece of a view: text, or a range that is left out."""

    stream: OutputStream
    start: int
    end: int
    """The raw range that it represents."""
    text: bytes
    omitted: Literal["", "middle", "long_line", "freed"]
    """Why the range is not shown; empty for text."""


@dataclass(frozen=True)
class Match:
    """A line that matches, or (`context`) one near it."""

    stream: OutputStream
    start: int
    end: int
    """The raw range of the line, without its end."""
    line: int
    """From 1, where the search of the stream began."""
    text: bytes
    cut: bool
    """The text is only a part of the line."""
    context: bool


@dataclass(frozen=True)
class ServerInfo:
    """The server that answers. A different instance means that it was restarted."""

    version: str
    instance: str


@dataclass(frozen=True)
class Status:
    """The daemon's status."""

    version: str
    url: str
    state_dir: str
    roles: Mapping[str, int]
    """Pids of anchor, keeper and server."""
    processes: int


@dataclass(frozen=True)
class FileEntry:
    """Describes a path. For a symbolic link, type and mode are those of its target."""

    name: str
    path: str
    type: Literal["other", "file", "dir"]
    size: int
    mode: int
    """Permission bits."""
    owner: str
    group: str
    modified: datetime | None
    target: str
    """For a symbolic link: the final target."""


@dataclass(frozen=True)
class FileEvent:
    """A change in a watched directory."""

    path: str
    """Below the watched directory, which is "." itself."""
    kind: str
    """create, write, remove, rename (of the former name; the new one is created) or chmod (mode, owner, times or attributes)."""
    dir: bool
    """What was created is a directory."""


@dataclass(frozen=True)
class Service:
    """The state of a service at one moment."""

    name: str
    phase: Literal["idle", "waiting", "starting", "running", "stopping", "killing", "pausing", "completed", "failed", "unknown"]
    up: bool
    """It is requested."""
    ready: bool
    """It runs, and its probes say that it can be used."""
    why: str
    """Why it is in this phase; may be empty."""
    process: str
    """The id of its newest run; empty: there was no run."""
    pid: int
    """Its pid while it may still run; 0: none."""
    runs: int
    """How often it was started."""
    restarts: int
    """How often it was restarted automatically."""
    exit: Exit | None
    """The exit of the newest run that has ended."""
    sandbox: str
    """The sandbox that it runs in; empty: the machine."""
    healing: Literal["", "running", "suspected", "healing", "verifying", "ready", "broken"]
    """The healer's state of it; "": it has no healer."""
    episode: str
    """The id of its newest repair; empty: there was none."""
    adopted: bool
    """The newest run is a process that tend did not start: it has no output here, and its exit status will be unknown."""
    adopted_pid_file: str
    """The pid file that led to it; empty: none did."""
    adopted_port: int
    """The port that led to it; 0: none did. If neither is set, its pid was given by a caller."""
    project: str
    """The project that declares it; the name begins with it and a "/", except in one project."""


# What sandboxes are asked to be, and what is known of them.

SandboxState = Literal["starting", "ready", "stopped", "failed", "paused"]


class SandboxSize(TypedDict, total=False):
    """Limits of a sandbox. 0 or absent: no limit of its own."""

    cpus: float
    memory: int
    disk: int
    tasks: int
    """Processes and threads together."""


class SandboxNetwork(TypedDict, total=False):
    mode: Literal["none", "host", "own"]
    """none: only each other; host: the machine, and what it reaches; own: what allow and deny permit. Default: the server's."""
    allow: Sequence[str]
    """Outgoing: host names, "*." and a domain, addresses or CIDRs, each with ":port" or without; at most 256."""
    deny: Sequence[str]
    public: bool
    """Its ports are served without a token of the sandbox."""


class SandboxShare(TypedDict, total=False):
    """A directory or file of the server's machine that is visible inside."""

    source: str
    """Absolute, without symbolic links."""
    target: str
    """Absolute. Default: the source."""
    read_only: bool
    copy: bool
    """Programs inside may change it, and what they change is the sandbox's alone: the source stays as it is."""


class SandboxOptions(TypedDict, total=False):
    """Options of a new sandbox, besides the name. A field that is not set has its default."""

    snapshot: str
    """Its first files; at most one of snapshot, template and image is set."""
    template: str
    image: str
    """An id or a name of an image that is there: images.pull fetches one."""
    isolation: Literal["none", "full"]
    """none: programs see the machine itself; full: all layers that the server has. Default: the server's."""
    user: str
    """Default for its processes, as dir (absolute) and env are."""
    dir: str
    cwd: str
    """Another name of dir."""
    env: Mapping[str, str | None]
    disposable: bool
    """A stop also removes the files."""
    idle_ttl: float
    """Seconds without use and without a running process after which it is stopped. 0: never."""
    delete_after_stop: float
    """Seconds after a stop until it is destroyed. 0: never."""
    timeout: float
    """Seconds from now until at_timeout happens. 0: never."""
    at_timeout: Literal["destroy", "pause"]
    wake: bool
    """Requests to it resume it while it is paused."""
    size: SandboxSize
    network: SandboxNetwork
    shares: Sequence[SandboxShare]
    metadata: Mapping[str, str]
    """Stored for you: at most 64 entries of 64 KiB."""


class SandboxChange(TypedDict, total=False):
    """What to change; a field that is absent changes nothing."""

    name: str
    idle_ttl: float
    delete_after_stop: float
    timeout: float
    """Seconds from now; 0: never."""
    extend: float
    """Seconds from now, if that is later than the deadline; not with timeout."""
    at_timeout: Literal["destroy", "pause"]
    network: SandboxNetwork
    user: str
    dir: str
    cwd: str
    """Another name of dir."""
    env: Mapping[str, str | None]
    """Entries are added; so are those of metadata."""
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class SandboxInfo:
    """The state of a sandbox at one moment."""

    id: str
    """Never reused."""
    name: str
    state: SandboxState
    reason: str
    """Why it failed."""
    user: str
    dir: str
    """The directory of processes that name none."""
    env: Mapping[str, str]
    disposable: bool
    snapshot: str
    template: str
    image: str
    """The id of its image."""
    isolation: Literal["default", "none", "full"]
    idle_ttl: float
    delete_after_stop: float
    deadline: datetime | None
    at_timeout: Literal["destroy", "pause"]
    wake: bool
    size: SandboxSize
    """As it is enforced."""
    network: SandboxNetwork
    shares: tuple[SandboxShare, ...]
    metadata: Mapping[str, str]
    created: datetime | None
    updated: datetime | None
    stopped: datetime | None
    paused: datetime | None
    copied: int
    """While its files are copied, for a snapshot or a fork: the bytes that are copied. 0 where nothing runs in it: they are moved."""
    to_copy: int
    """About how many bytes there are to copy; 0: not known yet, or none."""


@dataclass(frozen=True)
class SandboxSnapshot:
    """A snapshot: the stored files of a sandbox."""

    id: str
    name: str
    state: SandboxState
    reason: str
    sandbox: str
    """The id of the sandbox that it was created from."""
    bytes: int
    created: datetime | None


@dataclass(frozen=True)
class CodeContext:
    """A place for cells that see each other's variables."""

    id: str
    language: str
    dir: str
    """Where its kernel has started."""


@dataclass(frozen=True)
class CodeError:
    """The exception with which a cell has ended."""

    name: str
    value: str
    traceback: str


@dataclass
class CodeResult:
    """What a cell has done."""

    text: str | None = None
    """That of the value of the last expression; None: it has none."""
    values: list[dict[str, Any]] = field(default_factory=list)
    """Each value that it has shown, by forms: text, html, png (base64), json, chart and others."""
    stdout: str = ""
    stderr: str = ""
    error: CodeError | None = None
    """The cell has failed."""
    count: int = 0
    """Which cell of its context it is, from 1 on."""
    timed_out: bool = False
    """It was interrupted at its timeout."""


@dataclass(frozen=True)
class SandboxAccess:
    """Credentials for one sandbox only. tend's own API does not accept them."""

    token: str
    """For the header X-Access-Token."""
    traffic_token: str
    """For the ports of a sandbox that is not public: the header E2b-Traffic-Access-Token."""
    domains: tuple[str, ...]
    """Domains below which "PORT-ID.DOMAIN" is a port of the sandbox."""


@dataclass(frozen=True)
class SandboxMetric:
    """One sample of the usage of a sandbox. A total is the limit, or that of the machine."""

    time: datetime | None
    cpus: float
    cpu_percent: float
    """100 is one CPU."""
    mem_used: int
    mem_cache: int
    mem_total: int
    disk_used: int
    disk_total: int
    tasks: int
    oom_kills: int
