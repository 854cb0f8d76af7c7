"""Parties in one process: the same frames, through memory.

For tests, for try-outs, and for a first look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from tacit.channel.connection import Complain, Connection, Welcome
from tacit.channel.endpoint import Endpoint, Program
from tacit.channel.frames import Buffer
from tacit.channel.tasks import stop, together
from tacit.channel.timing import Timing
from tacit.core.events import OnEvent, ignore

T = TypeVar("T")
WHERE = "this process"


class Pipe:
    """Writes into the reader of the other side."""

    def __init__(self, target: asyncio.StreamReader) -> None:
        self.target = target
        self.back: Pipe | None = None  # the pipe of the other direction
        self.broken = False

    def write(self, data: Buffer, /) -> None:
        if not self.broken:
            self.target.feed_data(data)

    async def drain(self) -> None:
        if self.broken:
            raise ConnectionResetError("the other side closed it")
        await asyncio.sleep(0)

    def abort(self) -> None:
        for pipe in (self, self.back):
            if pipe is not None and not pipe.broken:
                pipe.broken = True
                pipe.target.feed_eof()


class MeetingRoom:
    """Where parties of one process meet."""

    def __init__(self) -> None:
        self.present: dict[str, tuple[Welcome, set[asyncio.Task[None]]]] = {}

    def carrier(self, me: str) -> LoopbackCarrier:
        """A party's way to the others."""
        return LoopbackCarrier(self, me)


class LoopbackCarrier:
    """A party's carrier within one process."""

    def __init__(self, room: MeetingRoom, me: str) -> None:
        self.room = room
        self.me = me

    async def listen(self, welcome: Welcome, complain: Complain) -> None:
        self.room.present[self.me] = welcome, set()

    def dials(self, peer: str) -> bool:
        return self.me > peer

    def where(self, peer: str) -> str:
        return WHERE

    async def dial(self, peer: str) -> Connection:
        if peer not in self.room.present:
            raise ConnectionRefusedError(f"{peer} is not here")
        welcome, tasks = self.room.present[peer]
        our_reader = asyncio.StreamReader()
        their_reader = asyncio.StreamReader()
        to_peer = Pipe(their_reader)
        from_peer = Pipe(our_reader)
        to_peer.back = from_peer
        from_peer.back = to_peer
        their_end = Connection(their_reader, from_peer, self.me, WHERE)
        tasks.add(asyncio.get_running_loop().create_task(welcome(their_end)))
        return Connection(our_reader, to_peer, peer, WHERE)

    async def close(self) -> None:
        _, tasks = self.room.present.pop(self.me)
        await stop(*tasks)


async def converse(
    programs: Mapping[str, Program[T]],
    *,
    purpose: str,
    timing: Timing | None = None,
    on_event: OnEvent = ignore,
) -> dict[str, T]:
    """Runs every party's program in this process, with links between all of them.

    The results come by the parties' names.
    """
    room = MeetingRoom()

    async def take_part(me: str, program: Program[T]) -> T:
        peers = [name for name in programs if name != me]
        carrier = room.carrier(me)
        endpoint = Endpoint(me, peers, carrier, purpose=purpose, timing=timing, on_event=on_event)
        return await endpoint.run(program)

    results = await together(*(take_part(me, program) for me, program in programs.items()))
    return dict(zip(programs, results, strict=True))
