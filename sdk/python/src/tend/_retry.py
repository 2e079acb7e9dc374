"""When a lost connection is replaced. The rules are those of the Go SDK."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Callable

from ._errors import InvalidError, TendTimeoutError


@dataclass(frozen=True)
class Retry:
    """When a lost connection is replaced.

    By default after 0.5 s, doubling to 8 s, each shortened by up to a quarter at random so that many clients do not come
    at once; at most 10 times without progress. A server that says it is going away is called again at once, and so is one
    whose listening sockets outlive it: the connection then waits for the next server.
    """

    first: float = 0.5
    """Seconds before the second attempt."""
    max: float = 8.0
    """Most seconds between attempts."""
    attempts: int = 10
    """Attempts without progress; 0: none."""

    def __post_init__(self) -> None:
        if not (self.first >= 0 and self.max >= 0 and self.attempts >= 0):
            raise InvalidError("retry", "has a negative number")


class Attempts:
    """Counts the attempts of one call or stream."""

    def __init__(self, retry: Retry, rand: Callable[[], float] = random.random) -> None:
        self._retry = retry
        self._random = rand
        self._n = 0

    def progress(self) -> None:
        """Starts the count anew."""
        self._n = 0

    def next(self, at_once: bool) -> float | None:
        """How many seconds to wait before the next attempt; None: there is none.

        A second attempt in a row is never at once: nothing may spin.
        """
        self._n += 1
        if self._n > self._retry.attempts:
            return None
        if at_once and self._n == 1:
            return 0.0
        delay = min(self._retry.first * 2.0 ** (self._n - 1), self._retry.max)
        return delay - self._random() * delay / 4


class Deadline:
    """When a call ends at the latest."""

    def __init__(self, timeout: float | None, what: str) -> None:
        if timeout is not None and not timeout >= 0:
            raise InvalidError("timeout", f"is {timeout}; seconds are needed, 0 or more")
        self._timeout = timeout
        self._end = None if timeout is None else time.monotonic() + timeout
        self._what = what

    def left(self, most: float) -> float:
        """The seconds that are left, and at most so many. TendTimeoutError: none are."""
        if self._end is None:
            return most
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.error()
        return min(left, most)

    def over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    def error(self) -> TendTimeoutError:
        return TendTimeoutError(f"{self._what}: not within {self._timeout} s")
