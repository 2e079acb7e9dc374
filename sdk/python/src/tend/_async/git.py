"""A git repository in a sandbox."""

from __future__ import annotations

from .. import _git as git
from .processes import AsyncProcesses


class AsyncGit:
    """A git repository in a directory of a sandbox.

    Each method runs the sandbox's own git, as the sandbox's user; one that ends with another status than 0 is a CommandError.
    username and password (or a token) are for HTTP(S): git gets them by its stdin, and they are in no command line,
    configuration or URL. Hooks of the repository see them.
    """

    def __init__(self, processes: AsyncProcesses, path: str) -> None:
        self._processes = processes
        self.path = path

    async def run(self, *args: str) -> str:
        """Runs git with these arguments in the repository, and returns what it has printed: at most the newest 16 MiB."""
        return (await self._run(["-C", self.path, *args])).decode(errors="replace")

    async def _run(self, args: list[str], username: str = "", password: str = "") -> bytes:
        argv, given = git.command(args, username, password)
        return (await self._processes.run(argv, input=given, check=True, env=git.ENV)).stdout

    async def clone(self, url: str, *, branch: str = "", depth: int = 0, username: str = "", password: str = "") -> None:
        """Clones a repository into the directory, which must be empty or missing. depth: so many commits; 0: all."""
        options = [f"--branch={git.named(branch)}"] * bool(branch) + [f"--depth={depth}"] * bool(depth)
        await self._run(["clone", "--quiet", *options, "--", git.checked(url), self.path], username, password)

    async def init(self) -> None:
        """Makes an empty repository in the directory, whose branch is main."""
        await self._run(["init", "--quiet", "--initial-branch=main", "--", self.path])

    async def status(self) -> git.GitStatus:
        """The state of the files."""
        args = ["-C", self.path, "status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z"]
        return git.status(await self._run(args))

    async def add(self, *paths: str) -> None:
        """Stages files, also those that were removed; without paths, all."""
        await self.run("add", "--all", "--", *paths)

    async def commit(self, message: str, *, author: str = "", email: str = "") -> str:
        """Commits what is staged, and returns the commit's name. Without author and email git's configuration has them."""
        who = ["-c", f"user.name={author}"] * bool(author) + ["-c", f"user.email={email}"] * bool(email)
        await self.run(*who, "commit", "--quiet", f"--message={message}")
        return (await self.run("rev-parse", "HEAD")).strip()

    async def branches(self) -> list[str]:
        """The names of the local branches."""
        return (await self.run("for-each-ref", "--format=%(refname:short)", "refs/heads")).split()

    async def checkout(self, branch: str, *, create: bool = False) -> None:
        """Goes to a branch; create: to a new one from here."""
        await self.run("switch", "--quiet", "--create" if create else "--no-guess", git.named(branch))

    async def pull(self, *, remote: str = "origin", branch: str = "", username: str = "", password: str = "") -> None:
        """Fetches a branch and moves the current one forward to it; it merges nothing."""
        args = ["-C", self.path, "pull", "--ff-only", "--quiet", "--", git.checked(remote, "remote")]
        await self._run(args + [git.named(branch)] * bool(branch), username, password)

    async def push(self, *, remote: str = "origin", branch: str = "HEAD", username: str = "", password: str = "") -> None:
        """Sends a branch, by default the current one, and has it follow the remote's."""
        await self._run(["-C", self.path, "push", "--set-upstream", "--quiet", "--", git.checked(remote, "remote"), git.named(branch)], username, password)
