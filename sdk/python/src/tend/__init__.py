"""The Python client of tend: processes that survive the daemon, the connection and you.

    import tend

    with tend.Client.connect() as client:
        print(client.run("echo hello").text)

Client is for threads, AsyncClient for asyncio; they have the same methods. All times are in seconds, all sizes in bytes.
"""

from ._async.client import AsyncClient
from ._async.code import AsyncCodeContexts
from ._async.files import AsyncFiles
from ._async.git import AsyncGit
from ._async.images import AsyncImages
from ._async.port import AsyncPortConnection
from ._async.process import AsyncProcess
from ._async.processes import AsyncProcesses
from ._async.reader import AsyncReader
from ._async.sandbox import AsyncSandbox
from ._async.services import AsyncServices
from ._async.templates import AsyncTemplates
from ._async.watcher import AsyncFileWatcher, AsyncWatcher
from ._episodes import Episode, HealCommand, HealRemedy, HealSignal, HealTry
from ._errors import (
    AmbiguousError,
    ClosedError,
    ExistsError,
    ExitedError,
    GapError,
    InvalidError,
    LaggedError,
    LimitError,
    NoDaemonError,
    NotFoundError,
    PermissionDeniedError,
    RedirectError,
    RunningError,
    SandboxPausedError,
    SandboxStoppedError,
    StartError,
    StdinClosedError,
    TendError,
    TendTimeoutError,
    UnavailableError,
    UnsupportedError,
)
from ._git import GitFile, GitStatus
from ._images import Image
from ._messages import new_id
from ._retry import Retry
from ._sync.client import Client
from ._sync.code import CodeContexts
from ._sync.files import Files
from ._sync.git import Git
from ._sync.images import Images
from ._sync.port import PortConnection
from ._sync.process import Process
from ._sync.processes import Processes
from ._sync.reader import Reader
from ._sync.sandbox import Sandbox
from ._sync.services import Services
from ._sync.templates import Templates
from ._sync.watcher import FileWatcher, Watcher
from ._templates import BuildError, BuildLog, Template, TemplateBuild, TemplateStep
from ._types import (
    CodeContext,
    CodeError,
    CodeResult,
    CommandError,
    Eof,
    Event,
    Exit,
    Exited,
    FileEntry,
    FileEvent,
    Gap,
    Info,
    KillResult,
    Limits,
    Listener,
    Match,
    Output,
    Piece,
    ProcessEvent,
    Removed,
    Result,
    Retention,
    SandboxAccess,
    SandboxInfo,
    SandboxMetric,
    SandboxNetwork,
    SandboxShare,
    SandboxSize,
    SandboxSnapshot,
    ServerInfo,
    Service,
    Spec,
    Started,
    Status,
    StreamInfo,
    TreeGone,
    WaitResult,
)
from ._usage import Usage, UsagePoint

__all__ = [
    "AmbiguousError",
    "AsyncClient",
    "AsyncCodeContexts",
    "AsyncFileWatcher",
    "AsyncFiles",
    "AsyncGit",
    "AsyncImages",
    "AsyncPortConnection",
    "AsyncProcess",
    "AsyncProcesses",
    "AsyncReader",
    "AsyncSandbox",
    "AsyncServices",
    "AsyncTemplates",
    "AsyncWatcher",
    "BuildError",
    "BuildLog",
    "Client",
    "ClosedError",
    "CodeContext",
    "CodeContexts",
    "CodeError",
    "CodeResult",
    "CommandError",
    "Eof",
    "Episode",
    "Event",
    "ExistsError",
    "Exit",
    "Exited",
    "ExitedError",
    "FileEntry",
    "FileEvent",
    "FileWatcher",
    "Files",
    "Gap",
    "GapError",
    "Git",
    "GitFile",
    "GitStatus",
    "HealCommand",
    "HealRemedy",
    "HealSignal",
    "HealTry",
    "Image",
    "Images",
    "Info",
    "InvalidError",
    "KillResult",
    "LaggedError",
    "LimitError",
    "Limits",
    "Listener",
    "Match",
    "NoDaemonError",
    "NotFoundError",
    "Output",
    "PermissionDeniedError",
    "Piece",
    "PortConnection",
    "Process",
    "ProcessEvent",
    "Processes",
    "Reader",
    "RedirectError",
    "Removed",
    "Result",
    "Retention",
    "Retry",
    "RunningError",
    "Sandbox",
    "SandboxAccess",
    "SandboxInfo",
    "SandboxMetric",
    "SandboxNetwork",
    "SandboxPausedError",
    "SandboxShare",
    "SandboxSize",
    "SandboxSnapshot",
    "SandboxStoppedError",
    "ServerInfo",
    "Service",
    "Services",
    "Spec",
    "StartError",
    "Started",
    "Status",
    "StdinClosedError",
    "StreamInfo",
    "Template",
    "TemplateBuild",
    "TemplateStep",
    "Templates",
    "TendError",
    "TendTimeoutError",
    "TreeGone",
    "UnavailableError",
    "UnsupportedError",
    "Usage",
    "UsagePoint",
    "WaitResult",
    "Watcher",
    "new_id",
]
