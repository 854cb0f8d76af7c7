"""A connection's bytes. Large messages are decrypted straight into their place, which asyncio's own streams cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

ROOM = 1 << 16  # bytes that wait for a reader; more than that is read where it is wanted


class Stream(asyncio.BufferedProtocol):
    """Both directions of a connection, with back-pressure: nobody reads, nothing is taken from the network."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._room = bytearray(ROOM)
        self._begin = self._end = 0  # of what waits in the room
        self._target: memoryview | None = None  # a large message on its way
        self._filled = 0
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._error: Exception | None = None  # why nothing more comes

    # what a connection uses

    async def readexactly(self, count: int) -> bytes:
        """So many bytes; ConnectionError, or what broke it, where they do not come."""
        if count <= ROOM:
            await self._until(lambda: self._end - self._begin >= count)
            self._begin += count
            return bytes(self._room[self._begin - count : self._begin])
        whole = bytearray(count)
        self._filled = self._end - self._begin
        whole[: self._filled] = self._room[self._begin : self._end]
        self._begin, self._target = self._end, memoryview(whole)
        try:
            await self._until(lambda: self._filled == count)
        finally:
            self._target = None
        return bytes(whole)

    async def read(self, most: int) -> bytes:
        """What has come, and nothing at the end."""
        try:
            await self._until(lambda: self._end > self._begin)
        except OSError:
            return b""
        return await self.readexactly(min(most, self._end - self._begin))

    def writelines(self, parts: list[bytes], /) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.writelines(parts)

    async def drain(self) -> None:
        """Waits until the network takes more."""
        await self._writable.wait()
        if self._error is not None:
            raise self._error

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            if self._error is not None:
                raise self._error
            if self.transport is not None:
                self.transport.resume_reading()
            self._news.clear()
            await self._news.wait()

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._target is not None and self._filled < len(self._target):
            return self._target[self._filled :]
        if self._begin:
            waiting = self._end - self._begin
            self._room[:waiting] = self._room[self._begin : self._end]
            self._begin, self._end = 0, waiting
        return memoryview(self._room)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._target is not None and self._filled < len(self._target):
            self._filled += nbytes
        else:
            self._end += nbytes
        if self._end - self._begin == ROOM and self.transport is not None:
            self.transport.pause_reading()
        self._news.set()

    def eof_received(self) -> bool:
        self._finish(ConnectionResetError("the other side closed it"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(exc or ConnectionResetError("the connection is closed"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _finish(self, error: Exception) -> None:
        self._error = self._error or error
        self._news.set()
        self._writable.set()
