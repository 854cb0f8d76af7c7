"""Parties in one process: the same frames, through memory. For tests, for try-outs, and for a first look."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from tacit.channel.connection import Complain, Connection, Welcome
from tacit.channel.endpoint import Endpoint, Program, Timing
from tacit.channel.tasks import stop, together
from tacit.core.events import OnEvent, ignore

T = TypeVar("T")


class Pipe:
    """Writes into another side's reader."""

    def __init__(self, end: asyncio.StreamReader) -> None:
        self.end = end
        self.back: Pipe | None = None
        self.broken = False

    def write(self, data: bytes, /) -> None:
        if not self.broken:
            self.end.feed_data(data)

    async def drain(self) -> None:
        if self.broken:
            raise ConnectionResetError("the other side closed it")
        await asyncio.sleep(0)

    def abort(self) -> None:
        for pipe in (self, self.back):
            if pipe is not None and not pipe.broken:
                pipe.broken = True
                pipe.end.feed_eof()


class MeetingRoom:
    """Where parties of one process meet."""

    def __init__(self) -> None:
        self.present: dict[str, tuple[Welcome, set[asyncio.Task[None]]]] = {}

    def seat(self, me: str) -> LoopbackCarrier:
        """A party's carrier."""
        return LoopbackCarrier(self, me)


class LoopbackCarrier:
    def __init__(self, room: MeetingRoom, me: str) -> None:
        self.room, self.me = room, me

    async def listen(self, welcome: Welcome, complain: Complain) -> None:
        self.room.present[self.me] = welcome, set()

    def dials(self, peer: str) -> bool:
        return self.me > peer

    def where(self, peer: str) -> str:
        return "this process"

    async def dial(self, peer: str) -> Connection:
        if peer not in self.room.present:
            raise ConnectionRefusedError(f"{peer} is not here")
        welcome, tasks = self.room.present[peer]
        readers = asyncio.StreamReader(), asyncio.StreamReader()
        there, here = Pipe(readers[1]), Pipe(readers[0])
        there.back, here.back = here, there
        caller = Connection(readers[1], here, self.me, "this process")
        tasks.add(asyncio.get_running_loop().create_task(welcome(caller)))
        return Connection(readers[0], there, peer, "this process")

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
    """Runs every party's program in this process, with links between all of them; their results by name."""
    room = MeetingRoom()

    async def take_part(me: str, program: Program[T]) -> T:
        peers = [name for name in programs if name != me]
        seat = room.seat(me)
        return await Endpoint(
            me, peers, seat, purpose=purpose, timing=timing, on_event=on_event
        ).run(program)

    results = await together(*(take_part(me, program) for me, program in programs.items()))
    return dict(zip(programs, results, strict=True))
