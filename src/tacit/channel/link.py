"""Messages to and from one peer, over connections that may break.

Messages of one name arrive in order, each once. A sender keeps what the other program has not taken
yet. It waits when that is `WINDOW` bytes of a name, so that both sides' memory is bounded and names
do not wait for each other. Over the next connection it sends what it keeps again; the receiver
drops what it had.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from tacit.channel.connection import LARGE, Connection
from tacit.channel.frames import LARGEST, Buffer, ChannelError, Frame, GarbageError, Kind

# Bytes of one name that are sent and not taken yet; the last message may go beyond. A line of
# 2 Gbit/s with 50 ms from end to end and back holds 12.5 MB.
WINDOW = 16 << 20
OVERHEAD = 256  # bytes that a message takes beside its data
NAMES = 64  # of messages, each with a window of its own, that a peer may have us keep


class RestartError(ChannelError):
    """A party has started again, so this attempt is void."""


@dataclass
class Outgoing:
    """Messages of one name to the peer."""

    sent: deque[Frame] = field(default_factory=deque)  # not taken yet
    cost: int = 0  # bytes of these
    next: int = 0  # number of the next message

    def full(self) -> bool:
        """Whether the next message has to wait."""
        return self.cost >= WINDOW

    def add(self, name: str, data: bytes | memoryview) -> Frame:
        frame = Frame(Kind.DATA, name, self.next, data)
        self.next += 1
        self.sent.append(frame)
        self.cost += _cost(data)
        return frame

    def forget(self, taken: int) -> None:
        """Drops those that the peer's program has taken."""
        while self.sent and self.sent[0].number < taken:
            self.cost -= _cost(self.sent.popleft().data)


@dataclass
class Incoming:
    """Messages of one name from the peer."""

    waiting: deque[bytes | memoryview] = field(default_factory=deque)
    cost: int = 0  # bytes of these
    next: int = 0  # number of the next new message
    taken: int = 0
    told: int = 0  # how many the peer knows to be taken

    def add(self, data: bytes | memoryview) -> None:
        self.waiting.append(data)
        self.cost += _cost(data)
        self.next += 1

    def take(self) -> bytes | memoryview:
        data = self.waiting.popleft()
        self.cost -= _cost(data)
        self.taken += 1
        return data


def _cost(data: bytes | memoryview) -> int:
    return len(data) + OVERHEAD


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
        self._acknowledging = False  # the peer is about to hear what was taken
        self._undrained = 0  # bytes sent since the stream was last waited for

    @property
    def sent(self) -> int:
        """Bytes written so far, headers included."""
        return self._sent_before + (self.connection.sent if self.connection else 0)

    @property
    def received(self) -> int:
        """Bytes read so far, headers included."""
        return self._received_before + (self.connection.received if self.connection else 0)

    async def send(self, name: str, data: Buffer) -> None:
        """Sends a message; waits while the peer is behind, or away.

        Messages of one name have an order. A link has at most NAMES names, so a round's number
        belongs into the message. What can still be changed is copied.
        """
        if name not in self._outgoing and len(self._outgoing) >= NAMES:
            raise ValueError(f"{name}: a link has at most {NAMES} names of messages")
        stream = self._outgoing.setdefault(name, Outgoing())
        start = time.monotonic()
        while stream.full():
            await self._change_in_time(start, f"taken no {name!r}")
        self._check()
        if not isinstance(data, bytes):  # a view that is read-only here may be written elsewhere
            data = bytes(data)
        await self._put(stream.add(name, data))

    async def receive(self, name: str) -> bytes:
        """The next message of that name."""
        stream = self._incoming.setdefault(name, Incoming())
        start = time.monotonic()
        while not stream.waiting:
            if self.closing:
                raise ChannelError(f"{self.peer} has left before it sent {name!r}")
            await self._change_in_time(start, f"sent no {name!r}")
        self._check()
        if not self._acknowledging:
            self._acknowledging = True
            asyncio.get_running_loop().call_soon(self._acknowledge)
        return bytes(stream.take())

    async def flush(self, *names: str) -> None:
        """Waits until the peer's program has taken all messages of these names, or of any.

        It does not wait for a peer that has said that it is done.
        """
        while not self.closing and self._is_awaiting(names):
            await self._change()

    def _is_awaiting(self, names: tuple[str, ...]) -> bool:
        """Whether a message of these names, or of any, has not been taken yet."""
        for name, stream in self._outgoing.items():
            if stream.sent and (name in names or not names):
                return True
        return False

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
        for incoming in self._incoming.values():
            incoming.told = -1  # what it was told may be lost
        self._acknowledge()
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

    def give_up(self) -> None:
        """The process that the peer was has ended, and will take no more messages."""
        self.closing = True
        self._wake()

    def fail(self, error: Exception | None) -> None:
        """Every call that waits, and every later one, raises this error."""
        self._failure = error
        self._wake()

    async def attend(self, connection: Connection) -> None:
        """Takes in what comes over the connection until it ends."""
        while self.connection is connection:
            frames = await connection.read_all()
            if self.connection is not connection:
                return  # it was replaced meanwhile, perhaps by one of another attempt
            for frame in frames:
                self._take(frame)
            self._wake()

    def _take(self, frame: Frame) -> None:
        if frame.kind is Kind.DATA:
            self._take_data(frame)
        elif frame.kind is Kind.TAKEN:
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
        stream.add(frame.data)
        self.active = time.monotonic()
        if stream.cost > WINDOW + LARGEST + OVERHEAD:
            raise GarbageError("keeps sending without waiting for us")

    def _forget_taken(self, frame: Frame) -> None:
        """Drops the messages that the peer's program has taken."""
        stream = self._outgoing.get(frame.name) or Outgoing()
        if frame.number > stream.next:
            raise GarbageError(
                f"says that it took {frame.number} messages {frame.name!r}, of {stream.next} sent"
            )
        if stream.sent and stream.sent[0].number < frame.number:
            self.active = time.monotonic()
        stream.forget(frame.number)

    def _acknowledge(self) -> None:
        """Tells the peer which messages our program has taken, those of a moment together.

        It does not wait: whoever is cancelled meanwhile would lose a message.
        """
        self._acknowledging = False
        if self.connection is None:
            return
        for name, stream in self._incoming.items():
            if stream.told != stream.taken:
                stream.told = stream.taken
                self.connection.put(Frame(Kind.TAKEN, name, stream.taken))

    async def _put(self, frame: Frame) -> None:
        if self.connection is None:
            return
        self.connection.put(frame)
        self._undrained += len(frame.data) + OVERHEAD
        if self._undrained > LARGE:
            self._undrained = 0
            with suppress(OSError):  # its reader will notice; the next connection brings the frame
                await self.connection.drain()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        """Has every call that waits look again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def _change_in_time(self, start: float, failing: str) -> None:
        """Waits for a change, and not longer than a peer that is there may do nothing."""
        deadline = max(start, self.active) + self.answer
        left = deadline - time.monotonic()
        if left <= 0:
            raise ChannelError(
                f"{self.peer} has {failing}, nor anything else, for {self.answer:g} s"
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._change()

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
