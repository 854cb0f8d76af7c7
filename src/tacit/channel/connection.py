"""Frames over one byte stream to one peer. A connection may break; the link above it may get another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from tacit.channel.frames import HEADER, LARGEST, Frame, Header, Kind

LARGE = 1 << 16  # bytes that are not worth a copy


class Reader(Protocol):
    """What a connection reads from; asyncio's StreamReader is one."""

    async def read(self, most: int, /) -> bytes: ...


class Writer(Protocol):
    """What a connection writes to."""

    def write(self, data: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def abort(self) -> None: ...


class Connection:
    """`peer` is who the other side has proved to be; `place` says where it is."""

    def __init__(self, reader: Reader, writer: Writer, peer: str, place: str) -> None:
        self.reader, self.writer, self.peer, self.place = reader, writer, peer, place
        self.heard = time.monotonic()
        self.sent = self.received = 0  # bytes
        self.largest = LARGEST

    async def read(self) -> Frame:
        """The next frame; ConnectionError where the stream ended."""
        header = Header.parse(await self._read(HEADER.size), self.largest)
        return header.frame(await self._read(header.name_length), await self._read(header.length))

    async def _read(self, count: int) -> bytes:
        """So many bytes; each part that comes is a sign of life, since a large frame may be long on its way."""
        parts = []
        while count:
            if not (part := await self.reader.read(count)):
                raise ConnectionResetError("the other side closed it")
            self.received += len(part)
            self.heard = time.monotonic()
            count -= len(part)
            parts.append(part)
        return b"".join(parts)

    def put(self, frame: Frame) -> None:
        """Hands over a frame at once, in order; `drain` waits until the stream takes more."""
        for part in (frame.head(), frame.data) if len(frame.data) > LARGE else (frame.encode(),):
            self.sent += len(part)
            self.writer.write(part)

    async def write(self, frame: Frame) -> None:
        self.put(frame)
        await self.writer.drain()

    async def drain(self) -> None:
        await self.writer.drain()

    async def refuse(self, why: str) -> None:
        """Ends it with a reason; what still comes is read and dropped, or the reason could get lost on its way."""
        try:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await self.write(Frame(Kind.REFUSED, data=why[:500].encode()))
                    while await self.reader.read(1 << 16):
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
        """Starts to hand every connection that comes in to `welcome`, and complains of those without a right to it."""
        ...

    def dials(self, peer: str) -> bool:
        """Whether this side opens the connection to that peer, or waits for it."""
        ...

    async def dial(self, peer: str) -> Connection:
        """A new connection to the peer; OSError where it cannot be had yet, ChannelError where it never will."""
        ...

    def where(self, peer: str) -> str:
        """The place where the two meet, in words."""
        ...

    async def close(self) -> None: ...
