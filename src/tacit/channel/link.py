"""Messages to and from one peer, over connections that may break.

Messages of one name arrive in order, each once. A sender keeps what the other program has not taken
yet. It waits when that is `WINDOW` messages of a name, so that both sides' memory is bounded and
names do not wait for each other. Over the next connection it sends what it keeps again; the
receiver drops what it had.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from tacit.channel.connection import Connection
from tacit.channel.frames import ChannelError, Frame, GarbageError, Kind

# Of one name that are sent and not taken yet; one message may be larger.
WINDOW = 8  # messages
WINDOW_BYTES = 4 << 20
# What a peer may have us keep.
NAMES = 64
WAITING_BYTES = 256 << 20


class RestartError(ChannelError):
    """A party has started again, so this attempt is void."""


@dataclass
class Outgoing:
    """Messages of one name to the peer."""

    sent: deque[Frame] = field(default_factory=deque)  # not taken yet
    next: int = 0  # number of the next message

    def full(self) -> bool:
        """Whether the next message has to wait."""
        if len(self.sent) >= WINDOW:
            return True
        return sum(len(frame.data) for frame in self.sent) >= WINDOW_BYTES


@dataclass
class Incoming:
    """Messages of one name from the peer."""

    waiting: deque[bytes] = field(default_factory=deque)
    next: int = 0  # number of the next new message
    taken: int = 0

    def waiting_bytes(self) -> int:
        return sum(len(data) for data in self.waiting)


class Link:
    """What a party's program holds of each peer: `send` and `receive`."""

    def __init__(self, me: str, peer: str, answer: float) -> None:
        self.me = me
        self.peer = peer
        self.answer = answer  # seconds to wait for a message from a peer that is there
        self.connection: Connection | None = None
        self.process = ""  # the peer's, which tells its next start from its next connection
        self.active = 0.0  # when it last sent a message or took one
        self.reason = ""  # why the last connection ended
        self.ending = False  # our program is through, so the peer may be too
        self.closing = False  # the peer said that it is done
        self._waiters: set[asyncio.Future[None]] = set()
        self._failure: Exception | None = None
        self._sent_before = 0  # bytes over earlier connections
        self._received_before = 0
        self._outgoing: dict[str, Outgoing] = {}
        self._incoming: dict[str, Incoming] = {}

    @property
    def sent(self) -> int:
        """Bytes written so far, headers included."""
        return self._sent_before + (self.connection.sent if self.connection else 0)

    @property
    def received(self) -> int:
        """Bytes read so far, headers included."""
        return self._received_before + (self.connection.received if self.connection else 0)

    async def send(self, name: str, data: bytes | memoryview) -> None:
        """Sends a message; waits while the peer is behind, or away.

        Messages of one name have an order. A link has at most NAMES names, so a round's number
        belongs into the message.
        """
        if name not in self._outgoing and len(self._outgoing) >= NAMES:
            raise ValueError(f"{name}: a link has at most {NAMES} names of messages")
        stream = self._outgoing.setdefault(name, Outgoing())
        while stream.full():
            await self._change()
        self._check()
        frame = Frame(Kind.DATA, name, stream.next, bytes(data))
        stream.next += 1
        stream.sent.append(frame)
        await self._put(frame)

    async def receive(self, name: str) -> bytes:
        """The next message of that name."""
        stream = self._incoming.setdefault(name, Incoming())
        start = time.monotonic()
        while not stream.waiting:
            deadline = max(start, self.active) + self.answer
            left = deadline - time.monotonic()
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
            # Not `write`: whoever is cancelled while that waits would lose the message.
            self.connection.put(Frame(Kind.TAKEN, name, stream.taken))
        return data

    async def flush(self) -> None:
        """Waits until the peer's program has taken everything, or has said that it is done."""
        while not self.closing and any(stream.sent for stream in self._outgoing.values()):
            await self._change()

    # what follows is for the endpoint that owns the link

    def reset(self, error: Exception) -> None:
        """Forgets the peer and all messages; the attempt they belong to gets the error."""
        self.detach("a party started again")
        self.process = ""
        self.ending = False
        self.closing = False
        self._outgoing = {}
        self._incoming = {}
        self.fail(error)

    def attach(self, connection: Connection, process: str) -> None:
        """Goes on over this connection, with what the peer may lack."""
        self.detach("another connection took its place")
        self.process = process
        self.connection = connection
        for outgoing in self._outgoing.values():
            for frame in outgoing.sent:
                connection.put(frame)
        for name, incoming in self._incoming.items():
            connection.put(Frame(Kind.TAKEN, name, incoming.taken))
        self._wake()

    def detach(self, reason: str) -> None:
        """Ends the connection, if there is one."""
        if self.connection is None:
            return
        self._sent_before = self.sent
        self._received_before = self.received
        self.connection.abort()
        self.connection = None
        self.reason = reason
        self._wake()

    def fail(self, error: Exception | None) -> None:
        """Every call that waits, and every later one, raises this error."""
        self._failure = error
        self._wake()

    async def attend(self, connection: Connection) -> None:
        """Takes in what comes over the connection until it ends."""
        while self.connection is connection:
            frame = await connection.read()
            if self.connection is not connection:
                return  # it was replaced meanwhile, perhaps by one of another attempt
            self._take(frame)
            self._wake()

    def _take(self, frame: Frame) -> None:
        if frame.kind is Kind.DATA:
            self.active = time.monotonic()
            self._take_data(frame)
        elif frame.kind is Kind.TAKEN:
            self.active = time.monotonic()
            self._forget_taken(frame)
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
        waiting_bytes = sum(incoming.waiting_bytes() for incoming in self._incoming.values())
        if len(stream.waiting) > WINDOW or waiting_bytes > WAITING_BYTES:
            raise GarbageError("keeps sending without waiting for us")

    def _forget_taken(self, frame: Frame) -> None:
        """Drops the messages that the peer's program has taken."""
        stream = self._outgoing.get(frame.name) or Outgoing()
        if frame.number > stream.next:
            raise GarbageError(
                f"says that it took {frame.number} messages {frame.name!r}, of {stream.next} sent"
            )
        while stream.sent and stream.sent[0].number < frame.number:
            stream.sent.popleft()

    async def _put(self, frame: Frame) -> None:
        if self.connection is not None:
            try:
                await self.connection.write(frame)
            except OSError:
                return  # its reader will notice, and the next connection brings the frame

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        """Has every call that waits look again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def _change(self) -> None:
        """Waits until something about the link has changed."""
        self._check()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
        self._check()
