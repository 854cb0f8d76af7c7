"""A stream gives what asyncio puts into it, in order, and takes no more than its room."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tacit.channel.stream import ROOM, Stream


class Transport(asyncio.Transport):
    """Remembers what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.paused, self.written, self.closing = False, bytearray(), False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


def made() -> tuple[Stream, Transport]:
    stream, transport = Stream(), Transport()
    stream.connection_made(transport)
    return stream, transport


def feed(stream: Stream, data: bytes) -> None:
    """As asyncio does."""
    while data:
        room = stream.get_buffer(-1)
        assert len(room) > 0
        part = data[: len(room)]
        room[: len(part)] = part
        stream.buffer_updated(len(part))
        data = data[len(part) :]


@pytest.mark.parametrize("seed", range(5))
def test_bytes_come_out_as_they_went_in(seed: int) -> None:
    chance = random.Random(seed)
    whole = chance.randbytes(3 * ROOM)

    async def scene() -> bytes:
        stream, transport = made()
        found, at = bytearray(), 0
        while len(found) < len(whole):
            if not transport.paused and at < len(whole) and chance.random() < 0.6:
                part = whole[at : at + min(chance.randrange(1, ROOM), len(stream.get_buffer(-1)))]
                feed(stream, part)
                at += len(part)
            if at > len(found):
                found += await stream.read(chance.randrange(1, ROOM))
            elif transport.paused:
                pytest.fail("paused with nothing to read")
        return bytes(found)

    assert asyncio.run(scene()) == whole


def test_a_full_room_stops_the_network_and_a_reader_starts_it_again() -> None:
    async def scene() -> None:
        stream, transport = made()
        feed(stream, bytes(ROOM - 1))
        assert not transport.paused
        feed(stream, bytes(1))
        assert transport.paused
        assert len(await stream.read(1)) == 1
        assert not transport.paused
        assert len(await stream.read(2 * ROOM)) == ROOM - 1
        reading = asyncio.create_task(stream.read(10))
        await asyncio.sleep(0)
        feed(stream, b"more")
        assert await reading == b"more"

    asyncio.run(scene())


@pytest.mark.parametrize("error", [None, OSError("cable"), "eof"])
def test_what_came_is_read_before_the_end_is_told(error: Any) -> None:
    async def scene() -> None:
        stream, _ = made()
        feed(stream, b"last")
        stream.eof_received() if error == "eof" else stream.connection_lost(error)
        assert await stream.read(10) == b"last"
        with pytest.raises(OSError, match="cable" if isinstance(error, OSError) else "close"):
            await stream.read(10)
        with pytest.raises(OSError):
            await stream.drain()

    asyncio.run(scene())


def test_a_writer_waits_while_the_network_is_slow_and_not_for_a_dead_one() -> None:
    async def scene() -> None:
        stream, transport = made()
        stream.write(b"a")
        await stream.drain()
        stream.pause_writing()
        waiting = asyncio.create_task(stream.drain())
        await asyncio.sleep(0)
        assert not waiting.done()
        stream.resume_writing()
        await waiting
        stream.pause_writing()
        waiting = asyncio.create_task(stream.drain())
        await asyncio.sleep(0)
        stream.connection_lost(None)
        with pytest.raises(ConnectionError):
            await waiting
        transport.closing = True
        stream.write(b"b")
        assert transport.written == b"a"

    asyncio.run(scene())
