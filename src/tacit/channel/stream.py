"""A connection's bytes, decrypted into a fixed room: fewer copies than asyncio's own streams make."""

from __future__ import annotations

import asyncio

ROOM = 1 << 18  # bytes that wait for a reader


class Stream(asyncio.BufferedProtocol):
    """Both directions of a connection, with back-pressure: nobody reads, nothing is taken from the network."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._room = bytearray(ROOM)
        self._begin = self._end = 0  # of what waits in the room
        self._full = False
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._error: Exception | None = None  # why nothing more comes

    # what a connection uses

    async def read(self, most: int) -> bytes:
        """What has come, up to so many bytes; ConnectionError, or what broke it, where no more comes."""
        while self._begin == self._end:
            if self._error is not None:
                raise self._error
            self._news.clear()
            await self._news.wait()
        begin, self._begin = self._begin, min(self._begin + most, self._end)
        if self._full and self.transport is not None:
            self._full = False
            self.transport.resume_reading()
        return bytes(memoryview(self._room)[begin : self._begin])

    def write(self, data: bytes, /) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    async def drain(self) -> None:
        """Waits until the network takes more."""
        await self._writable.wait()
        if self._error is not None:
            raise self._error

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._begin:
            waiting = self._end - self._begin
            self._room[:waiting] = self._room[self._begin : self._end]
            self._begin, self._end = 0, waiting
        return memoryview(self._room)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        if self._end - self._begin == ROOM and self.transport is not None:
            self._full = True
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
