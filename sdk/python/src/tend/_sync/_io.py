"""What the synchronous client needs besides httpcore; _async has the same with tasks."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

Lock = threading.Lock
sleep = time.sleep


def offload(work: Callable[[], T]) -> T:
    """Work that blocks, such as with files."""
    return work()


def end_writing(stream: Any) -> None:
    """Ends what a stream of httpcore sends, which has no method for that."""
    stream.get_extra_info("socket").shutdown(socket.SHUT_WR)


class Background(Generic[T]):
    """Work beside other work."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value.append(self._work())
        except BaseException as err:  # for result
            self._error = err

    def result(self) -> T:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value[0]

    def stop(self) -> None:
        """A thread has no end from outside: it ends when what it waits for has one."""


def whole(work: Callable[[], T]) -> T:
    return work()


class Later:
    """Work that nobody waits for, until the client is closed: one thread for all of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def add(self, work: Callable[[], Any]) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            self._work.put(work)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def pause(self, seconds: float) -> None:
        """Waits, but not while the client is closed."""
        self._closing.wait(seconds)

    def finish(self, seconds: float) -> None:
        """Waits for all of it, and for what that adds, and leaves what takes longer."""
        self._closing.set()
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._work.put(lambda: self._work.put(None))  # after what is added meanwhile
        if thread is not None:
            thread.join(seconds)
