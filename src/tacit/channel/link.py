"""Messages to and from one peer, over connections that may break.

Messages of one name arrive in order, each once. A sender keeps what the other program has not taken yet, waits when
that is `WINDOW` messages of a name (so both sides' memory is bounded, and names do not wait for each other), and sends
it again over the next connection; the receiver drops what it had.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from tacit.channel.connection import Connection
from tacit.channel.frames import ChannelError, Frame, GarbageError, Kind

WINDOW, WINDOW_BYTES = (
    8,
    4 << 20,
)  # of one name that are sent and not taken yet; one message may be larger
NAMES, WAITING_BYTES = 64, 256 << 20  # that a peer may have us keep


class RestartError(ChannelError):
    """A party has started anew, so this attempt is void."""


@dataclass
class Outgoing:
    sent: deque[Frame] = field(default_factory=deque)  # not taken yet
    next: int = 0

    def full(self) -> bool:
        return (
            len(self.sent) >= WINDOW or sum(len(frame.data) for frame in self.sent) >= WINDOW_BYTES
        )


@dataclass
class Incoming:
    waiting: deque[bytes] = field(default_factory=deque)
    next: int = 0  # number of the next new message
    taken: int = 0


class Link:
    """What a party's program holds of each peer: `send` and `receive`."""

    def __init__(self, me: str, peer: str, answer: float) -> None:
        self.me, self.peer, self.answer = me, peer, answer
        self.connection: Connection | None = None
        self.process = ""  # of the peer, by which its next start is told from its next connection
        self.active = 0.0  # when it last sent a message or took one
        self.reason = ""  # why the last connection ended
        self.ending = False  # our program is through, so the peer may be too
        self.closing = False  # the peer said that it is done
        self._bell: set[asyncio.Future[None]] = set()
        self._failure: Exception | None = None
        self._bytes = [0, 0]  # of earlier connections
        self._outgoing: dict[str, Outgoing] = {}
        self._incoming: dict[str, Incoming] = {}

    @property
    def sent(self) -> int:
        """Bytes written so far, headers included."""
        return self._bytes[0] + (self.connection.sent if self.connection else 0)

    @property
    def received(self) -> int:
        return self._bytes[1] + (self.connection.received if self.connection else 0)

    async def send(self, name: str, data: bytes | memoryview) -> None:
        """Sends a message; waits while the peer is behind, or away.

        Messages of one name have an order; a link has NAMES of them, so a round's number belongs into the message.
        """
        if name not in self._outgoing and len(self._outgoing) >= NAMES:
            raise ValueError(f"{name}: a link has at most {NAMES} names of messages")
        out = self._outgoing.setdefault(name, Outgoing())
        while out.full():
            await self._change()
        self._check()
        frame = Frame(Kind.DATA, name, out.next, bytes(data))
        out.next += 1
        out.sent.append(frame)
        await self._put(frame)

    async def receive(self, name: str) -> bytes:
        """The next message of that name."""
        stream, start = self._incoming.setdefault(name, Incoming()), time.monotonic()
        while not stream.waiting:
            left = max(start, self.active) + self.answer - time.monotonic()
            if left <= 0:
                raise ChannelError(
                    f"{self.peer} has sent no {name!r}, nor anything else, for {self.answer:g} s"
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._change()
        self._check()
        data = stream.waiting.popleft()
        stream.taken += 1
        if self.connection is not None:
            self.connection.put(
                Frame(Kind.TAKEN, name, stream.taken)
            )  # no waiting: who is cancelled here has taken it
        return data

    async def flush(self) -> None:
        """Waits until the peer's program has taken everything, or has said that it is done."""
        while not self.closing and any(out.sent for out in self._outgoing.values()):
            await self._change()

    # what follows is for the endpoint that owns the link

    def reset(self, error: Exception) -> None:
        """Forgets the peer and all messages; the attempt they belong to gets the error."""
        self.detach("a party started anew")
        self.process, self.ending, self.closing = "", False, False
        self._outgoing, self._incoming = {}, {}
        self.fail(error)

    def attach(self, connection: Connection, process: str) -> None:
        """Goes on over this connection, with what the peer may lack."""
        self.detach("another connection took its place")
        self.process, self.connection = process, connection
        for out in self._outgoing.values():
            for frame in out.sent:
                connection.put(frame)
        for name, stream in self._incoming.items():
            connection.put(Frame(Kind.TAKEN, name, stream.taken))
        self._ring()

    def detach(self, reason: str) -> None:
        if self.connection is not None:
            self._bytes = [self.sent, self.received]
            self.connection.abort()
            self.connection, self.reason = None, reason
            self._ring()

    def fail(self, error: Exception | None) -> None:
        """Every call that waits, and every later one, raises this error."""
        self._failure = error
        self._ring()

    async def attend(self, connection: Connection) -> None:
        """Takes in what comes over the connection until it ends."""
        while self.connection is connection:
            frame = await connection.read()
            if (
                self.connection is connection
            ):  # else it was replaced meanwhile, perhaps by one of another attempt
                self._take(frame)
                self._ring()

    def _take(self, frame: Frame) -> None:
        if frame.kind in (Kind.DATA, Kind.TAKEN):
            self.active = time.monotonic()
        if frame.kind is Kind.DATA:
            self._take_data(frame)
        elif frame.kind is Kind.TAKEN:
            sent = self._outgoing.get(frame.name) or Outgoing()
            if frame.number > sent.next:
                raise GarbageError(
                    f"says that it took {frame.number} messages {frame.name!r} of {sent.next}"
                )
            while sent.sent and sent.sent[0].number < frame.number:
                sent.sent.popleft()
        elif frame.kind is Kind.REFUSED:
            raise ChannelError(frame.words)
        elif frame.kind is Kind.BYE:
            if not self.ending:
                raise GarbageError("said goodbye in the middle of it")
            self.closing = True
        elif frame.kind in (Kind.HELLO, Kind.BUSY):
            raise GarbageError("introduced itself twice")

    def _take_data(self, frame: Frame) -> None:
        if frame.name not in self._incoming and len(self._incoming) >= NAMES:
            raise GarbageError(f"sent messages of more than {NAMES} names")
        stream = self._incoming.setdefault(frame.name, Incoming())
        if frame.number < stream.next:
            return  # sent again, and we had it
        if frame.number > stream.next:
            raise GarbageError(
                f"sent message {frame.number} of {frame.name!r} before message {stream.next}"
            )
        stream.waiting.append(frame.data)
        stream.next += 1
        kept = sum(len(data) for one in self._incoming.values() for data in one.waiting)
        if len(stream.waiting) > WINDOW or kept > WAITING_BYTES:
            raise GarbageError("sends on without waiting for us")

    async def _put(self, frame: Frame) -> None:
        if self.connection is not None:
            try:
                await self.connection.write(frame)
            except OSError:
                return  # its reader will notice, and the next connection brings the frame

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _ring(self) -> None:
        for waiter in self._bell:
            if not waiter.done():
                waiter.set_result(None)
        self._bell.clear()

    async def _change(self) -> None:
        self._check()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._bell.add(waiter)
        try:
            await waiter
        finally:
            self._bell.discard(waiter)
        self._check()
