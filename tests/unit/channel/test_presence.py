"""Who is there is decided by a clock that these tests move; nobody sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from loops import run

from tacit.channel import connection as connections
from tacit.channel import presence as presences
from tacit.channel.connection import Connection
from tacit.channel.conversation import Conversation
from tacit.channel.frames import MAGIC, ChannelError
from tacit.channel.link import Link
from tacit.channel.presence import Presence
from tacit.channel.timing import Timing
from tacit.core.events import Event, Warned

a_turn = asyncio.sleep  # as it was before a clock took its place
TIMING = Timing(beat=2, silence=10, away=60)


@dataclass
class Clock:
    """Takes the place of `time` and `asyncio` where presence is watched.

    Each wait for the next sign of life takes as long as the next of `waits` says; after the last
    one, watching is cancelled.
    """

    waits: Sequence[float]
    now: float = 1000.0
    taken: int = field(default=0, init=False)

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        assert seconds == TIMING.beat
        if self.taken == len(self.waits):
            raise asyncio.CancelledError
        self.now += self.waits[self.taken]
        self.taken += 1
        await a_turn(0)  # what was written leaves


class Wire:
    """Counts the signs of life that are written to the peer."""

    def __init__(self) -> None:
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += data.count(MAGIC)

    async def drain(self) -> None: ...

    def abort(self) -> None: ...

    async def read(self, most: int) -> bytes:
        return b""


@dataclass
class Watched:
    """What was left when the last wait was over."""

    link: Link
    beats: int
    warnings: list[str]
    error: BaseException | None


def watch(
    monkeypatch: pytest.MonkeyPatch, waits: Sequence[float], *, connected: bool = True
) -> Watched:
    """Watches a peer that was last heard of when the watch began."""
    clock = Clock(waits)
    monkeypatch.setattr(presences, "time", clock)
    monkeypatch.setattr(presences, "asyncio", clock)
    monkeypatch.setattr(connections, "time", clock)
    events: list[Event] = []
    wire = Wire()
    link = Link("alice", "bob", TIMING.answer)
    carrier: Any = SimpleNamespace(where=lambda _: "127.0.0.1:7000", dials=lambda _: True)

    async def scene() -> BaseException | None:
        conversation = Conversation(events.append)
        presence = Presence({"bob": link}, carrier, TIMING, conversation)
        if connected:
            link.connection = Connection(wire, wire, "bob", "127.0.0.1:7000")
        with suppress(asyncio.CancelledError):
            await presence.watch()
        failure = conversation.failure
        error = failure.exception() if failure.done() else None
        conversation.close()
        return error

    error = run(scene())
    warnings = [event.text for event in events if isinstance(event, Warned)]
    return Watched(link, wire.written, warnings, error)


def test_a_peer_that_is_silent_for_too_long_counts_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = watch(monkeypatch, [2, 2, 2, 2, 2, 2])
    assert watched.link.connection is None
    assert watched.warnings == [
        "lost the connection to bob (it has been silent for 10 s); "
        "waiting up to 60 s for it to come back"
    ]
    assert watched.beats == 5  # signs of life of our own, until then


def test_a_process_that_was_suspended_does_not_take_its_peer_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The peer's signs of life came in the meantime, and are still to be read."""
    watched = watch(monkeypatch, [2, 3600])
    assert watched.link.connection is not None
    assert watched.warnings == []


def test_a_process_that_was_suspended_does_not_at_once_give_up_a_peer_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The peer could not reach it in the meantime."""
    watched = watch(monkeypatch, [2, 3600], connected=False)
    assert watched.error is None


def test_a_peer_that_stays_silent_after_the_suspension_counts_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = watch(monkeypatch, [2, 3600, 2])
    assert watched.link.connection is None
    assert len(watched.warnings) == 1


def test_a_peer_that_is_away_for_too_long_ends_the_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    just_in_time = watch(monkeypatch, [2] * 30, connected=False)
    assert just_in_time.error is None
    too_late = watch(monkeypatch, [2] * 31, connected=False)
    assert isinstance(too_late.error, ChannelError)
    expected = "bob could not be reached at 127.0.0.1:7000 within 60 s; start all sides again"
    assert str(too_late.error) == expected
