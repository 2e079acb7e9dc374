"""What the asynchronous client needs besides httpcore; _sync has the same with threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")

Lock = asyncio.Lock
sleep = asyncio.sleep


async def offload(work: Callable[[], T]) -> T:
    """Work that blocks, such as with files."""
    return await asyncio.to_thread(work)


async def end_writing(stream: Any) -> None:
    """Ends what a stream of httpcore sends, which has no method for that: its own stream, of anyio, has."""
    await stream._stream.send_eof()


class Background(Generic[T]):
    """Work beside other work. A caller that is cancelled leaves it running."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._task = asyncio.ensure_future(work())

    async def result(self) -> T:
        return await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Ends the work."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def whole(work: Callable[[], Awaitable[T]]) -> T:
    """Work that has an end even if its caller is cancelled; the cancellation is told then."""
    task = asyncio.ensure_future(work())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


class Later:
    """Work that nobody waits for, until the client is closed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()
        self._closing = asyncio.Event()

    def add(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        task = asyncio.ensure_future(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def pause(self, seconds: float) -> None:
        """Waits, but not while the client is closed."""
        try:
            await asyncio.wait_for(self._closing.wait(), seconds)
        except asyncio.TimeoutError:
            pass

    async def finish(self, seconds: float) -> None:
        """Waits for all of it, and for what that adds, and ends what takes longer."""
        self._closing.set()
        end = asyncio.get_running_loop().time() + seconds
        while self._tasks and (left := end - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(list(self._tasks), timeout=left)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
