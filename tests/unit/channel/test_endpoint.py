"""Parties find each other, get everything once and in order whatever breaks, and hear when one of them is gone."""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from loops import run

from tacit.channel import endpoint as module
from tacit.channel.connection import Complain, Connection, Welcome
from tacit.channel.endpoint import Endpoint, Timing
from tacit.channel.frames import HEADER, ChannelError, Frame, Kind
from tacit.channel.greeting import LONGEST, Hello
from tacit.channel.link import WINDOW, Link
from tacit.channel.loopback import LoopbackCarrier, MeetingRoom, Pipe, converse
from tacit.core.events import Event, Noted, Warned

QUICK = Timing(beat=0.02, silence=0.5, away=5, answer=5, greeting=0.5)
Links = Mapping[str, Link]


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("SHORTEST", 0.002), ("LONGEST", 0.01), ("FAREWELL", 0.2)):
        monkeypatch.setattr(module, name, seconds)


class FrailSeat(LoopbackCarrier):
    """Its connections break, or go silent, after so many bytes in either direction, in the middle of a frame."""

    def __init__(
        self, room: MeetingRoom, me: str, budgets: list[int] | None = None, *, silent: bool = False
    ) -> None:
        super().__init__(room, me)
        self.budgets, self.silent, self.dead = budgets or [], silent, False
        self.connections: list[Connection] = []

    async def listen(self, welcome: Welcome, complain: Complain) -> None:
        async def note(connection: Connection) -> None:
            self.connections.append(connection)
            if self.dead:  # it came, and nobody is there any more
                connection.abort()
            else:
                await welcome(connection)

        await super().listen(note, complain)

    async def dial(self, peer: str) -> Connection:
        if self.dead:
            raise ConnectionRefusedError
        connection = await super().dial(peer)
        self.connections.append(connection)
        if self.budgets:
            budget = self.budgets.pop(0)
            pipe = connection.writer
            assert isinstance(pipe, Pipe)
            assert pipe.back is not None
            for end in (pipe, pipe.back):
                self._limit(end, budget)
        return connection

    def _limit(self, pipe: Pipe, budget: int) -> None:
        forward, left = pipe.write, budget

        def write(data: bytes, /) -> None:
            nonlocal left
            if left > 0:
                forward(data[:left])
            left -= len(data)
            if left <= 0 and not self.silent:
                pipe.abort()

        pipe.write = write  # type: ignore[method-assign]

    async def close(self) -> None:
        self.room.present.setdefault(self.me, (None, set()))  # type: ignore[arg-type]
        await super().close()


@dataclass
class Somebody:
    """A party: its side of the conversation, and what it was told."""

    endpoint: Endpoint
    seat: FrailSeat
    told: list[Event] = field(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        return [event.text for event in self.told if isinstance(event, Warned)]

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.told if isinstance(event, Noted)]


def somebody(
    room: MeetingRoom,
    me: str,
    *peers: str,
    timing: Timing = QUICK,
    purpose: str = "test",
    **seat: Any,
) -> Somebody:
    place = FrailSeat(room, me, **seat)
    told: list[Event] = []
    return Somebody(
        Endpoint(me, peers, place, purpose=purpose, timing=timing, on_event=told.append),
        place,
        told,
    )


async def both(*work: Awaitable[Any]) -> list[Any]:
    return list(await asyncio.gather(*work, return_exceptions=True))


async def nothing(_links: Links) -> str:
    return "done"


def exchange(
    count: int, names: list[str], size: int = 40
) -> Callable[[Links], Awaitable[dict[str, list[bytes]]]]:
    """Sends numbered messages of several names to the one peer, and returns what came."""

    async def program(links: Links) -> dict[str, list[bytes]]:
        (link,) = links.values()

        async def send(name: str) -> None:
            for number in range(count):
                await link.send(name, f"{link.me} {name} {number} ".encode().ljust(size, b"."))

        async def receive(name: str) -> list[bytes]:
            return [await link.receive(name) for _ in range(count)]

        found = await asyncio.gather(*map(receive, names), *map(send, names))
        return dict(zip(names, found, strict=False))

    return program


def due(peer: str, count: int, names: list[str], size: int = 40) -> dict[str, list[bytes]]:
    return {
        name: [f"{peer} {name} {k} ".encode().ljust(size, b".") for k in range(count)]
        for name in names
    }


@pytest.mark.parametrize("seed", range(12))
def test_everything_arrives_once_and_in_order_over_connections_that_break(seed: int) -> None:
    """Cut anywhere, also within a greeting or a header: up to 12 connections break before one holds."""
    chance = random.Random(seed)
    budgets = [
        chance.choice([1, 19, 20, 21, 300, chance.randrange(1, 6000)])
        for _ in range(chance.randrange(2, 13))
    ]
    names = ["x", "y", "z"]

    async def scene() -> None:
        room = MeetingRoom()
        alice, bob = somebody(room, "alice", "bob"), somebody(room, "bob", "alice", budgets=budgets)
        program = exchange(40, names)
        found = await asyncio.gather(alice.endpoint.run(program), bob.endpoint.run(program))
        assert found == [due("bob", 40, names), due("alice", 40, names)]
        assert alice.endpoint.epoch == bob.endpoint.epoch == 0  # nobody started over

    run(scene())


@pytest.mark.parametrize("seed", range(4))
def test_everything_arrives_when_connections_are_cut_at_random_moments(seed: int) -> None:
    chance = random.Random(seed)
    names = ["x", "y"]

    async def scene() -> None:
        room = MeetingRoom()
        parties = [somebody(room, "alice", "bob"), somebody(room, "bob", "alice")]
        running = [asyncio.create_task(one.endpoint.run(exchange(300, names))) for one in parties]
        for _ in range(15):
            for _ in range(chance.randrange(1, 120)):
                await asyncio.sleep(0)
            for link in chance.choice(parties).endpoint.links.values():
                if link.connection is not None:
                    link.connection.abort()
        assert await asyncio.gather(*running) == [due("bob", 300, names), due("alice", 300, names)]

    run(scene())


def test_a_connection_that_goes_silent_is_noticed_and_made_again() -> None:
    timing = Timing(beat=0.02, silence=0.15, away=5, answer=5, greeting=0.5)

    async def scene() -> None:
        room = MeetingRoom()
        alice = somebody(room, "alice", "bob", timing=timing)
        bob = somebody(room, "bob", "alice", timing=timing, budgets=[2000], silent=True)
        program = exchange(60, ["x"])
        found = await asyncio.gather(alice.endpoint.run(program), bob.endpoint.run(program))
        assert found == [due("bob", 60, ["x"]), due("alice", 60, ["x"])]
        assert (
            "lost the connection to alice (it has been silent for 0.15 s); waiting up to 5 s for it"
            in str(bob.told)
        )

    run(scene())


def test_a_peer_that_does_not_read_keeps_the_other_waiting_and_little_in_memory() -> None:
    async def scene() -> None:
        go, sent = asyncio.Event(), 0

        async def eager(links: Links) -> None:
            nonlocal sent
            for number in range(10 * WINDOW):
                await links["bob"].send("x", bytes([number]) * 1000)
                sent += 1

        async def slow(links: Links) -> list[bytes]:
            for _ in range(200):
                await asyncio.sleep(0)
            stream = links["alice"]._incoming["x"]
            assert sent == len(stream.waiting) == WINDOW
            go.set()
            return [await links["alice"].receive("x") for _ in range(10 * WINDOW)]

        results = await converse({"alice": eager, "bob": slow}, purpose="test", timing=QUICK)
        assert go.is_set()
        assert results["bob"] == [bytes([number]) * 1000 for number in range(10 * WINDOW)]

    run(scene())


def test_a_peer_that_never_comes_is_given_up() -> None:
    async def scene(me: str, peer: str) -> None:
        one = somebody(MeetingRoom(), me, peer, timing=Timing(beat=0.02, away=0.1))
        with pytest.raises(ChannelError) as caught:
            await one.endpoint.run(nothing)
        why = " (alice is not here)" if peer == "alice" else ""  # bob dials, alice waits
        assert str(caught.value) == (
            f"{peer} could not be reached at this process within 0.1 s{why}; start all sides again"
        )
        waits = f"waiting for {peer} to answer at" if me > peer else f"waiting for {peer} at"
        assert one.notes == [f"{waits} this process{why}"]

    run(scene("alice", "bob"))  # waits
    run(scene("bob", "alice"))  # dials


def test_a_peer_that_goes_and_does_not_come_back_is_given_up() -> None:
    async def scene() -> None:
        room, timing = MeetingRoom(), Timing(beat=0.02, silence=0.1, away=0.15, greeting=0.1)
        alice, bob = somebody(room, "alice", "bob", timing=timing), somebody(room, "bob", "alice")
        running = asyncio.create_task(alice.endpoint.run(exchange(1, ["x"])))
        gone = asyncio.create_task(bob.endpoint.run(wait_for_ever))
        while alice.endpoint.links["bob"].connection is None:
            await asyncio.sleep(0)
        await kill(bob, gone)
        with pytest.raises(ChannelError) as caught:
            await running
        assert (
            str(caught.value)
            == "bob did not come back to this process within 0.15 s; start all sides again"
        )
        assert alice.warnings == [
            "lost the connection to bob (the other side closed it); waiting up to 0.15 s for it to come back"
        ]

    run(scene())


def test_a_peer_that_is_there_and_says_nothing_ends_it() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        alice = somebody(room, "alice", "bob", timing=Timing(beat=0.02, answer=0.1))
        bob = somebody(room, "bob", "alice")
        found = await both(alice.endpoint.run(exchange(1, ["x"])), bob.endpoint.run(wait_for_ever))
        why = "bob has sent no 'x', nor anything else, for 0.1 s"
        assert [str(error) for error in found] == [why, f"alice at this process stopped: {why}"]

    run(scene())


# starting anew


async def wait_for_ever(_links: Links) -> None:
    await asyncio.get_running_loop().create_future()


async def kill(one: Somebody, running: asyncio.Task[Any]) -> None:
    """As SIGKILL does: its connections are gone, and no last words are said."""
    one.seat.dead = True
    one.seat.room.present.pop(one.endpoint.me, None)
    for connection in one.seat.connections:
        connection.abort()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def attempt(me: str, rounds: int = 25) -> Callable[[Links], Awaitable[dict[str, str]]]:
    """Who took part, by a word that each draws per attempt; every round checks that all are in the same one."""

    async def program(links: Links) -> dict[str, str]:
        words = {me: secrets.token_hex(4)}
        for link in links.values():
            await link.send("word", words[me].encode())
        for peer, link in links.items():
            words[peer] = (await link.receive("word")).decode()
        mine = json.dumps(words, sort_keys=True).encode()
        for _ in range(rounds):
            for link in links.values():
                await link.send("round", mine)
            for link in links.values():
                assert await link.receive("round") == mine
            await asyncio.sleep(0.002)
        return dict(sorted(words.items()))

    return program


NAMES = ("alice", "bob", "carol")


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_when_parties_start_anew_all_get_the_result_of_one_attempt(parties: int, seed: int) -> None:
    chance = random.Random(10 * seed + parties)
    names = NAMES[:parties]

    async def scene() -> None:
        room, now, running = MeetingRoom(), {}, {}

        def start(name: str) -> None:
            now[name] = somebody(room, name, *(other for other in names if other != name))
            running[name] = asyncio.create_task(now[name].endpoint.run(attempt(name)))

        for name in names:
            start(name)
        for _ in range(chance.randrange(1, 3)):
            await asyncio.sleep(chance.random() * 0.04)
            victims = chance.sample(names, chance.randrange(1, parties))  # up to two of three
            for name in victims:
                await kill(now[name], running[name])
                if chance.random() < 0.5:
                    await asyncio.sleep(chance.random() * 0.03)
                    start(name)
            for name in victims:
                if running[name].done():
                    start(name)
        results = await asyncio.gather(*running.values())
        assert all(result == results[0] for result in results)
        assert len({one.endpoint.epoch for one in now.values()}) == 1

    run(scene())


@pytest.mark.parametrize("victim", ["alice", "bob"])
def test_the_survivor_hears_that_the_other_was_lost_and_has_started_anew(victim: str) -> None:
    async def scene() -> None:
        room = MeetingRoom()
        parties = {"alice": somebody(room, "alice", "bob"), "bob": somebody(room, "bob", "alice")}
        running = {
            name: asyncio.create_task(one.endpoint.run(attempt(name)))
            for name, one in parties.items()
        }
        await asyncio.sleep(0.03)
        await kill(parties[victim], running[victim])
        other = "bob" if victim == "alice" else "alice"
        again = somebody(room, victim, other)
        results = await asyncio.gather(again.endpoint.run(attempt(victim)), running[other])
        assert results[0] == results[1]
        assert parties[other].warnings == [
            f"lost the connection to {victim} (the other side closed it); waiting up to 5 s for it to come back",
            f"{victim} has started anew; starting over with it",
        ]

    run(scene())


def test_a_connection_that_comes_back_says_so() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        alice, bob = somebody(room, "alice", "bob"), somebody(room, "bob", "alice", budgets=[3000])
        await asyncio.gather(*(one.endpoint.run(exchange(50, ["x"])) for one in (alice, bob)))
        assert alice.notes == [
            "waiting for bob at this process",
            "connected to bob at this process",
            "bob is back",
        ]
        assert bob.notes[-2:] == ["connected to alice at this process", "alice is back"]

    run(scene())


# endings


async def meet_and_fail(links: Links) -> None:
    (link,) = links.values()
    await link.send("x", b"")
    await link.receive("x")
    raise ValueError("Ana Muñoz, 1980-01-01, HIV positive")


def test_an_error_reaches_the_other_as_one_line_that_holds_no_data() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        alice, bob = somebody(room, "alice", "bob"), somebody(room, "bob", "alice")
        found = await both(alice.endpoint.run(meet_and_fail), bob.endpoint.run(attempt_x))
        assert isinstance(found[0], ValueError)
        assert isinstance(found[1], ChannelError)
        assert str(found[1]) == "alice at this process was stopped by an error on its side"
        assert "Muñoz" not in str(bob.told)

    run(scene())


async def attempt_x(links: Links) -> None:
    (link,) = links.values()
    await link.send("x", b"")
    await link.receive("x")
    await link.receive("never")


def test_in_one_process_the_first_error_is_the_one_that_is_raised() -> None:
    with pytest.raises(ValueError, match="Ana"):
        run(converse({"alice": attempt_x, "bob": meet_and_fail}, purpose="test", timing=QUICK))


@pytest.mark.parametrize("stopped", [0, 1])
def test_who_is_stopped_by_its_user_says_so(stopped: int) -> None:
    async def scene() -> None:
        room = MeetingRoom()
        parties = [somebody(room, "alice", "bob"), somebody(room, "bob", "alice")]
        running = [asyncio.create_task(one.endpoint.run(attempt_x)) for one in parties]
        await asyncio.sleep(0.03)
        running[stopped].cancel()
        found = await both(*running)
        assert isinstance(found[stopped], asyncio.CancelledError)
        who = ["alice at this process", "bob"][
            stopped
        ]  # the side that dials also says whom it dialled where
        assert str(found[1 - stopped]) == f"{who} was stopped by its user"

    run(scene())


def test_of_three_all_hear_who_stopped() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        parties = [somebody(room, me, *(other for other in NAMES if other != me)) for me in NAMES]
        running = [asyncio.create_task(one.endpoint.run(wait_for_ever)) for one in parties]
        await asyncio.sleep(0.05)
        running[1].cancel()
        found = await both(*running)
        for error in (found[0], found[2]):
            assert isinstance(error, ChannelError)
            assert re.search("bob( at this process)? was stopped by its user$", str(error))

    run(scene())


def test_results_are_safe_before_anybody_hears_of_them() -> None:
    async def scene() -> None:
        room, order = MeetingRoom(), []

        async def take_part(me: str, *peers: str) -> None:
            one = somebody(room, me, *peers)
            await one.endpoint.run(attempt(me, rounds=2), lambda _: order.append("concluded"))
            order.append("over")

        await asyncio.gather(
            *(take_part(me, *(name for name in NAMES if name != me)) for me in NAMES)
        )
        assert order == ["concluded"] * 3 + ["over"] * 3

    run(scene())


def test_a_result_that_cannot_be_kept_is_a_success_for_nobody() -> None:
    def full(_result: object) -> None:
        raise OSError(28, "No space left on device")

    async def scene() -> None:
        room = MeetingRoom()
        alice, bob = somebody(room, "alice", "bob"), somebody(room, "bob", "alice")
        found = await both(alice.endpoint.run(nothing, full), bob.endpoint.run(nothing))
        assert isinstance(found[0], OSError)
        assert str(found[1]) == "alice at this process was stopped by an error on its side"

    run(scene())


@pytest.mark.parametrize("listener", [True, False])
def test_an_error_of_whoever_listens_to_events_ends_the_conversation(listener: bool) -> None:
    """Else the task that met it would end, and everybody wait for it."""

    def broken(event: Event) -> None:
        if isinstance(event, Noted) and "connected" in event.text:
            raise BrokenPipeError("nobody reads stderr")

    async def scene() -> None:
        room = MeetingRoom()
        alice, bob = somebody(room, "alice", "bob"), somebody(room, "bob", "alice")
        (alice if listener else bob).endpoint.on_event = broken
        found = await both(alice.endpoint.run(attempt_x), bob.endpoint.run(attempt_x))
        assert isinstance(found[0 if listener else 1], BrokenPipeError)
        assert isinstance(found[1 if listener else 0], ChannelError)

    run(scene(), limit=3)


# who is refused


def test_a_peer_that_runs_something_else_is_refused() -> None:
    async def scene() -> None:
        room, timing = MeetingRoom(), Timing(beat=0.02, away=0.2)
        alice = somebody(room, "alice", "bob", timing=timing, purpose="psi")
        bob = somebody(room, "bob", "alice", timing=timing, purpose="fuse")
        found = await both(alice.endpoint.run(nothing), bob.endpoint.run(nothing))
        why = "runs 'fuse', and alice runs 'psi'; run the same on both sides"
        assert str(found[1]) == f"alice at this process refused us: {why}"
        assert alice.warnings == [f"refused bob at this process: it {why}"]
        assert (
            str(found[0])
            == "bob could not be reached at this process within 0.2 s; start all sides again"
        )

    run(scene())


def test_a_party_of_another_session_is_refused_and_does_not_disturb() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        alice, carol = somebody(room, "alice", "bob"), somebody(room, "carol", "alice")
        running = asyncio.create_task(alice.endpoint.run(exchange(3, ["x"])))
        with pytest.raises(ChannelError) as caught:
            await carol.endpoint.run(nothing)
        why = "is not part of this session, which is between alice, bob"
        assert str(caught.value) == f"alice at this process refused us: {why}"
        bob = somebody(room, "bob", "alice")
        assert await bob.endpoint.run(exchange(3, ["x"])) == due("alice", 3, ["x"])
        assert await running == due("bob", 3, ["x"])
        assert alice.warnings == [f"refused carol at this process: it {why}"]

    run(scene())


HELLO = Hello("bob", "alice", "p", 0, "test")
WRONG_SENDER, WRONG_RECEIVER = (
    Hello("carol", "alice", "p", 0, "test"),
    Hello("bob", "carol", "p", 0, "test"),
)
IMPOSSIBLE = "introduced itself with an impossible epoch or process"
UNKNOWN = "introduced itself in a way that this version does not understand"


def raw(
    kind: Kind = Kind.HELLO, data: bytes = b"", *, version: int = 1, length: int | None = None
) -> bytes:
    return HEADER.pack(b"TACT", version, kind, 0, 0, len(data) if length is None else length) + data


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (raw(data=b"not json"), UNKNOWN),
        (raw(data=b"[" * LONGEST), UNKNOWN),
        (raw(data=b'{"epoch": true}'), UNKNOWN),
        (raw(data=json.dumps(HELLO.__dict__ | {"epoch": True}).encode()), UNKNOWN),
        (raw(data=json.dumps(HELLO.__dict__ | {"epoch": -1}).encode()), IMPOSSIBLE),
        (
            raw(length=4097),
            "announced a message of 4097 bytes with a name of 0; at most 4096 and 64 are taken",
        ),
        (raw(Kind.DATA, b"x"), "did not introduce itself"),
        (raw(Kind.BYE), "did not introduce itself"),
        (raw(Kind.REFUSED, b"no\nway\x1b[2J"), "refused us: no way [2J"),
        (
            raw(data=WRONG_SENDER.frame().data),
            "says that it is 'carol', and its certificate says bob",
        ),
        (raw(data=WRONG_RECEIVER.frame().data), "wanted 'carol', and this is alice"),
        (
            raw(version=2),
            "speaks version 2 of the channel and this side 1; install the same tacit on both",
        ),
        (bytes(20), "sent something that is no message of tacit"),
    ],
)
def test_whoever_introduces_itself_wrongly_is_told_why_and_does_not_disturb(
    said: bytes, why: str
) -> None:
    async def scene() -> None:
        room = MeetingRoom()
        alice = somebody(room, "alice", "bob")
        running = asyncio.create_task(alice.endpoint.run(exchange(3, ["x"])))
        await asyncio.sleep(0.01)
        stranger = await LoopbackCarrier(room, "bob").dial("alice")
        assert (await stranger.read()).kind is Kind.BEAT
        stranger.writer.write(said)
        answer = await stranger.read()
        assert (answer.kind, answer.words) == (Kind.REFUSED, why)
        stranger.abort()
        bob = somebody(room, "bob", "alice")
        assert await bob.endpoint.run(exchange(3, ["x"])) == due("alice", 3, ["x"])
        assert await running == due("bob", 3, ["x"])
        assert alice.warnings == [f"refused bob at this process: it {why}"]

    run(scene())


def test_whoever_says_nothing_is_dropped_and_does_not_disturb() -> None:
    async def scene() -> None:
        room, timing = MeetingRoom(), Timing(beat=0.02, away=5, greeting=0.05)
        alice = somebody(room, "alice", "bob", timing=timing)
        running = asyncio.create_task(alice.endpoint.run(exchange(3, ["x"])))
        await asyncio.sleep(0.01)
        stranger = await LoopbackCarrier(room, "bob").dial("alice")
        await stranger.read()
        with pytest.raises(ConnectionResetError):
            await stranger.read()
        await asyncio.gather(
            somebody(room, "bob", "alice").endpoint.run(exchange(3, ["x"])), running
        )
        assert alice.warnings == ["bob at this process connected and did not say who it is"]

    run(scene())


def test_strangers_do_not_fill_the_log() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        alice = somebody(room, "alice", "bob")
        running = asyncio.create_task(alice.endpoint.run(nothing))
        await asyncio.sleep(0.01)
        for _ in range(3 * module.COMPLAINTS):
            stranger = await LoopbackCarrier(room, "bob").dial("alice")
            stranger.writer.write(bytes(20))
            stranger.abort()
        await asyncio.gather(somebody(room, "bob", "alice").endpoint.run(nothing), running)
        assert len(alice.warnings) == module.COMPLAINTS
        assert alice.warnings[-1].endswith("; further ones are refused in silence")

    run(scene())


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (HELLO.frame(), "introduced itself twice"),
        (Frame(Kind.BYE), "said goodbye in the middle of it"),
        (Frame(Kind.DATA, "x", 5), "sent message 5 of 'x' before message 0"),
        (Frame(Kind.TAKEN, "x", 5), "says that it took 5 messages 'x' of 0"),
    ],
)
def test_a_peer_that_goes_wrong_later_ends_it_and_is_told_why(frame: Frame, why: str) -> None:
    async def scene() -> None:
        room = MeetingRoom()
        alice = somebody(room, "alice", "bob")
        running = asyncio.create_task(alice.endpoint.run(wait_for_ever))
        await asyncio.sleep(0.01)
        bob = await LoopbackCarrier(room, "bob").dial("alice")
        bob.put(HELLO.frame())
        bob.put(frame)
        said = []
        with suppress(ConnectionError):
            async with asyncio.timeout(1):
                while (answer := await bob.read()).kind is not Kind.REFUSED:
                    said.append(answer.kind)
        bob.abort()
        assert answer.words == f"stopped: bob {why}"
        with pytest.raises(ChannelError) as caught:
            await running
        assert str(caught.value) == f"bob {why}"

    run(scene())


def test_a_party_that_runs_twice_does_not_disturb_the_first() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        alice, bob = somebody(room, "alice", "bob"), somebody(room, "bob", "alice")
        running = [
            asyncio.create_task(one.endpoint.run(attempt(one.endpoint.me))) for one in (alice, bob)
        ]
        while not bob.endpoint.links["alice"].process:
            await asyncio.sleep(0.001)
        twin = somebody(room, "bob", "alice")
        other = asyncio.create_task(twin.endpoint.run(wait_for_ever))
        results = await asyncio.gather(*running)
        assert results[0] == results[1]
        assert not [text for text in alice.warnings if "anew" in text]
        assert (
            "waiting for alice to answer at this process (it is talking to another process of ours)"
            in twin.notes
        )
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)

    run(scene())


def test_a_party_that_starts_anew_again_and_again_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every time it may ask for other people."""
    monkeypatch.setattr(module, "RESTARTS", 3)

    async def scene() -> None:
        room = MeetingRoom()
        alice = somebody(room, "alice", "bob")
        running = asyncio.create_task(alice.endpoint.run(wait_for_ever))
        for _ in range(5):
            bob = somebody(room, "bob", "alice")
            task = asyncio.create_task(bob.endpoint.run(wait_for_ever))
            while not bob.endpoint.links["alice"].process and not running.done():
                await asyncio.sleep(0.002)
            await kill(bob, task)
        with pytest.raises(
            ChannelError,
            match=r"^bob has started anew too often; after 3 times, start all sides again$",
        ):
            await running
        assert (
            len([text for text in alice.warnings if "has started anew; starting over" in text]) == 4
        )

    run(scene())


def test_nothing_is_published_where_one_side_cannot_conclude() -> None:
    """A full disk on one side must not leave files of different sessions."""

    async def scene() -> None:
        room, published = MeetingRoom(), []
        alice, bob = somebody(room, "alice", "bob"), somebody(room, "bob", "alice")

        def fail(_: object) -> None:
            raise OSError(28, "No space left on device")

        runs = (
            alice.endpoint.run(
                attempt("alice", 2), lambda _: None, lambda: published.append("alice")
            ),
            bob.endpoint.run(attempt("bob", 2), fail, lambda: published.append("bob")),
        )
        errors = await asyncio.gather(*runs, return_exceptions=True)
        assert str(errors[0]) == "bob at this process was stopped by an error on its side" or str(
            errors[0]
        ) == ("bob was stopped by an error on its side")
        assert isinstance(errors[1], OSError)
        assert published == []

    run(scene())


def test_all_conclude_before_any_publishes() -> None:
    async def scene() -> None:
        room, order = MeetingRoom(), []
        runs = [
            somebody(room, me, *(other for other in NAMES if other != me)).endpoint.run(
                attempt(me, 2),
                lambda _: order.append("concluded"),
                lambda: order.append("published"),
            )
            for me in NAMES
        ]
        await asyncio.gather(*runs)
        assert order == ["concluded"] * 3 + ["published"] * 3

    run(scene())
