"""Frames over one byte stream to one peer.

A connection may break; the link above it may get another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from tacit.channel.frames import HEADER, LARGEST, Buffer, ChannelError, Frame, Header

LARGE = 1 << 16  # bytes that are not worth a copy
CHUNK = 1 << 18  # bytes that are read at a time
REFUSAL = 1.0  # seconds for a peer to hear why it is refused


class Reader(Protocol):
    """What a connection reads from; asyncio's StreamReader is one."""

    async def read(self, most: int, /) -> bytes: ...


class Writer(Protocol):
    """What a connection writes to."""

    def write(self, data: Buffer, /) -> None: ...
    async def drain(self) -> None: ...
    def abort(self) -> None: ...


class Connection:
    """`peer` is who the other side has proved to be; `where` says in words where it is."""

    def __init__(self, reader: Reader, writer: Writer, peer: str, where: str) -> None:
        self.reader = reader
        self.writer = writer
        self.peer = peer
        self.where = where
        self.heard = time.monotonic()  # when the last bytes came
        self.sent = 0  # bytes
        self.received = 0  # bytes
        self.largest = LARGEST  # bytes of data in a frame
        self.admit: Callable[[], None] = lambda: None  # called once the peer is welcome
        self._buffer = bytearray()  # what came, and is no whole frame yet
        self._small = bytearray()  # what is to be written together, a little later
        self._flushing: asyncio.Handle | None = None

    # reading

    async def read(self) -> Frame:
        """The next frame; ConnectionError where the stream ended."""
        while True:
            frame = self._parse()
            if frame is not None:
                return frame
            await self._fetch()

    async def read_all(self) -> list[Frame]:
        """The next frame, and all others that have come with it."""
        frames = [await self.read()]
        with suppress(ChannelError):  # it is raised by the next call, when these have been heeded
            while (frame := self._parse()) is not None:
                frames.append(frame)
        return frames

    def _parse(self) -> Frame | None:
        """The first frame in the buffer, if it is there as a whole."""
        if len(self._buffer) < HEADER.size:
            return None
        header = Header.parse(self._buffer[: HEADER.size], self.largest)
        end_of_name = HEADER.size + header.name_length
        end = end_of_name + header.length
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:
            name = bytes(view[HEADER.size : end_of_name])
            data = bytes(view[end_of_name:end])
        frame = header.frame(name, data)  # may raise; then it does so at the next call, too
        del self._buffer[:end]
        return frame

    async def _fetch(self) -> None:
        """Waits for more bytes, which are a sign of life: a large frame may be long on its way."""
        chunk = await self.reader.read(CHUNK)
        if not chunk:
            raise ConnectionResetError("the other side closed it")
        self.received += len(chunk)
        self.heard = time.monotonic()
        self._buffer += chunk

    # writing

    def put(self, frame: Frame) -> None:
        """Hands over a frame, in order; small ones leave together when the caller pauses."""
        self._small += frame.head()
        if len(frame.data) <= LARGE:
            self._small += frame.data
        else:
            self._flush()
            self._write(frame.data)
        if len(self._small) > LARGE:
            self._flush()
        elif self._small and self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if self._small:
            together = bytes(self._small)
            self._small.clear()
            self._write(together)

    def _write(self, data: Buffer) -> None:
        self.sent += len(data)
        self.writer.write(data)

    async def write(self, frame: Frame) -> None:
        """Hands over a frame and waits until the stream takes more."""
        self.put(frame)
        await self.drain()

    async def drain(self) -> None:
        """Waits until the stream takes more; others have their turn meanwhile."""
        self._flush()
        await self.writer.drain()
        await asyncio.sleep(0)

    # endings

    async def refuse(self, why: str) -> None:
        """Ends it with a reason.

        What still comes is read and dropped, or the reason could get lost on its way.
        """
        try:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(REFUSAL):
                    await self.write(Frame.refusing(why))
                    while await self.reader.read(CHUNK):
                        pass
        finally:
            self.abort()

    def abort(self) -> None:
        """Ends it now; whoever reads or writes gets a ConnectionError."""
        self._small.clear()
        self._flush()
        self.writer.abort()


Welcome = Callable[[Connection], Coroutine[Any, Any, None]]
Complain = Callable[[str], None]


class Carrier(Protocol):
    """How connections come about. Both sides of each have shown who they are."""

    async def listen(self, welcome: Welcome, complain: Complain) -> None:
        """Starts to hand every connection that comes in to `welcome`.

        `complain` is called with a text about those that have no right to one.
        """
        ...

    def dials(self, peer: str) -> bool:
        """Whether this side opens the connection to that peer, or waits for it."""
        ...

    async def dial(self, peer: str) -> Connection:
        """A new connection to the peer; OSError where it cannot be had yet."""
        ...

    def where(self, peer: str) -> str:
        """Where the two meet, in words."""
        ...

    async def close(self) -> None: ...
