"""The newest bytes of a stream."""

from __future__ import annotations

from collections import deque


class Tail:
    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: deque[bytes] = deque()
        self._length = 0
        self.dropped = 0

    def add(self, data: bytes) -> None:
        self._parts.append(data)
        self._length += len(data)
        while self._parts and self._length - len(self._parts[0]) >= self._most:
            self._cut(len(self._parts.popleft()))

    def skip(self, n: int) -> None:
        """n bytes were freed: what came before them is not next to what comes."""
        self.dropped += n + self._length
        self._parts.clear()
        self._length = 0

    def bytes(self) -> bytes:
        whole = b"".join(self._parts)
        over = max(0, len(whole) - self._most)
        self.dropped += over
        return whole[over:]

    def _cut(self, n: int) -> None:
        self._length -= n
        self.dropped += n
