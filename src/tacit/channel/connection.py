"""Frames over one byte stream to one peer.

A connection may break; the link above it may get another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from tacit.channel.frames import HEADER, LARGEST, Frame, Header, Kind

LARGE = 1 << 16  # bytes that are not worth a copy
CHUNK = 1 << 16  # bytes that are read at a time where they are not wanted
LONGEST_REASON = 500  # letters
REFUSAL = 1.0  # seconds for a peer to hear why it is refused


class Reader(Protocol):
    """What a connection reads from; asyncio's StreamReader is one."""

    async def read(self, most: int, /) -> bytes: ...


class Writer(Protocol):
    """What a connection writes to."""

    def write(self, data: bytes, /) -> None: ...
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

    async def read(self) -> Frame:
        """The next frame; ConnectionError where the stream ended."""
        header = Header.parse(await self._read(HEADER.size), self.largest)
        name = await self._read(header.name_length)
        data = await self._read(header.length)
        return header.frame(name, data)

    async def _read(self, count: int) -> bytes:
        """So many bytes.

        Each chunk that comes is a sign of life, since a large frame may be long on its way.
        """
        chunks = []
        while count:
            chunk = await self.reader.read(count)
            if not chunk:
                raise ConnectionResetError("the other side closed it")
            self.received += len(chunk)
            self.heard = time.monotonic()
            count -= len(chunk)
            chunks.append(chunk)
        return b"".join(chunks)

    def put(self, frame: Frame) -> None:
        """Hands over a frame at once, in order; `drain` waits until the stream takes more."""
        if len(frame.data) > LARGE:
            self._write(frame.head())
            self._write(frame.data)
        else:
            self._write(frame.encode())

    def _write(self, data: bytes) -> None:
        self.sent += len(data)
        self.writer.write(data)

    async def write(self, frame: Frame) -> None:
        """Hands over a frame and waits until the stream takes more."""
        self.put(frame)
        await self.writer.drain()

    async def drain(self) -> None:
        await self.writer.drain()

    async def refuse(self, why: str) -> None:
        """Ends it with a reason.

        What still comes is read and dropped, or the reason could get lost on its way.
        """
        reason = Frame(Kind.REFUSED, data=why[:LONGEST_REASON].encode())
        try:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(REFUSAL):
                    await self.write(reason)
                    while await self.reader.read(CHUNK):
                        pass
        finally:
            self.abort()

    def abort(self) -> None:
        """Ends it now; whoever reads or writes gets a ConnectionError."""
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
        """A new connection to the peer.

        OSError where it cannot be had yet, ChannelError where it never will.
        """
        ...

    def where(self, peer: str) -> str:
        """Where the two meet, in words."""
        ...

    async def close(self) -> None: ...
