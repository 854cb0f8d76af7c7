"""Parties find each other, get everything once and in order, and hear when one of them is gone."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import re
import secrets
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from loops import run, stopped, until

from tacit.channel import conversation, endpoint
from tacit.channel.connection import Complain, Connection, Welcome
from tacit.channel.endpoint import Endpoint
from tacit.channel.frames import HEADER, VERSION, ChannelError, Frame, Kind
from tacit.channel.greeting import LONGEST, Hello
from tacit.channel.link import OVERHEAD, WINDOW, Link
from tacit.channel.loopback import LoopbackCarrier, MeetingRoom, Pipe, converse
from tacit.channel.timing import Timing
from tacit.core.events import Event, Noted, Warned

# Signs of life are frequent; nothing else depends on how fast this machine is.
PATIENT = Timing(beat=0.02, silence=60, away=60, answer=60, greeting=60)
NAMES = ("alice", "bob", "carol")
Links = Mapping[str, Link]


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "SHORTEST", 0.002)
    monkeypatch.setattr(endpoint, "LONGEST", 0.01)
    monkeypatch.setattr(endpoint, "FAREWELL", 0.2)


class FrailCarrier(LoopbackCarrier):
    """Its connections break, or go silent, after so many bytes in either direction.

    The first connection that it dials does after `budgets[0]` bytes, be it in the middle of a
    frame. Connections beyond the budgets hold.
    """

    def __init__(
        self, room: MeetingRoom, me: str, budgets: Sequence[int] = (), *, silent: bool = False
    ) -> None:
        super().__init__(room, me)
        self.budgets = list(budgets)
        self.silent = silent
        self.dead = False
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
            self._limit(pipe, budget)
            self._limit(pipe.back, budget)
        return connection

    def _limit(self, pipe: Pipe, budget: int) -> None:
        forward = pipe.write
        left = budget

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
class Party:
    """One side of a conversation, and what it was told."""

    endpoint: Endpoint
    carrier: FrailCarrier
    events: list[Event] = field(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Warned)]

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Noted)]

    def is_connected(self) -> bool:
        """With all peers."""
        return all(link.connection is not None for link in self.endpoint.links.values())

    def lose_patience(self, away: float) -> None:
        """From now on, it gives up a peer that is away for longer than this."""
        self.endpoint.presence.timing = replace(self.endpoint.timing, away=away)


def make_party(
    room: MeetingRoom,
    me: str,
    *peers: str,
    timing: Timing = PATIENT,
    purpose: str = "test",
    budgets: Sequence[int] = (),
    silent: bool = False,
) -> Party:
    carrier = FrailCarrier(room, me, budgets, silent=silent)
    events: list[Event] = []
    side = Endpoint(me, peers, carrier, purpose=purpose, timing=timing, on_event=events.append)
    return Party(side, carrier, events)


def alice_and_bob(room: MeetingRoom, **bobs: Any) -> tuple[Party, Party]:
    return make_party(room, "alice", "bob"), make_party(room, "bob", "alice", **bobs)


def peers_of(me: str, names: Sequence[str] = NAMES) -> list[str]:
    return [name for name in names if name != me]


async def outcomes(*work: Awaitable[Any]) -> list[Any]:
    """Results and errors."""
    return list(await asyncio.gather(*work, return_exceptions=True))


async def nothing(_links: Links) -> str:
    return "done"


async def wait_for_ever(_links: Links) -> None:
    await asyncio.get_running_loop().create_future()


def message(sender: str, name: str, number: int) -> bytes:
    return f"{sender} {name} {number} ".encode().ljust(40, b".")


def exchange(count: int, names: list[str]) -> Callable[[Links], Awaitable[dict[str, list[bytes]]]]:
    """Sends numbered messages of several names to the one peer, and returns what came."""

    async def program(links: Links) -> dict[str, list[bytes]]:
        (link,) = links.values()

        async def send(name: str) -> None:
            for number in range(count):
                await link.send(name, message(link.me, name, number))
                await asyncio.sleep(0)  # so that they do not leave all together

        async def receive(name: str) -> list[bytes]:
            return [await link.receive(name) for _ in range(count)]

        results = await asyncio.gather(*map(receive, names), *map(send, names))
        return dict(zip(names, results, strict=False))

    return program


def dialogue(count: int, name: str) -> Callable[[Links], Awaitable[dict[str, list[bytes]]]]:
    """Each sends a message when it has the last one of the other, so that few are under way."""

    async def program(links: Links) -> dict[str, list[bytes]]:
        (link,) = links.values()
        messages = []
        for number in range(count):
            await link.send(name, message(link.me, name, number))
            messages.append(await link.receive(name))
        return {name: messages}

    return program


def due(peer: str, count: int, names: list[str]) -> dict[str, list[bytes]]:
    """What comes from the peer in an exchange."""
    return {name: [message(peer, name, number) for number in range(count)] for name in names}


@pytest.mark.parametrize("seed", range(12))
def test_everything_arrives_once_and_in_order_over_connections_that_break(seed: int) -> None:
    """Cut anywhere, also within a greeting or a header: up to 12 connections break."""
    chance = random.Random(seed)

    def budget() -> int:
        return chance.choice([1, 19, 20, 21, 300, chance.randrange(1, 6000)])

    budgets = [budget() for _ in range(chance.randrange(2, 13))]
    names = ["x", "y", "z"]

    async def scene() -> None:
        alice, bob = alice_and_bob(MeetingRoom(), budgets=budgets)
        program = exchange(40, names)
        results = await asyncio.gather(alice.endpoint.run(program), bob.endpoint.run(program))
        assert results == [due("bob", 40, names), due("alice", 40, names)]
        assert alice.endpoint.epoch == bob.endpoint.epoch == 0  # nobody started over

    run(scene())


@pytest.mark.parametrize("seed", range(4))
def test_everything_arrives_when_either_side_cuts_connections(seed: int) -> None:
    """Each time after so many bytes more have come, of which there are about 40,000."""
    chance = random.Random(seed)

    async def scene() -> None:
        parties = alice_and_bob(MeetingRoom())
        program = dialogue(700, "x")
        running = [asyncio.create_task(party.endpoint.run(program)) for party in parties]
        for _ in range(10):
            (link,) = chance.choice(parties).endpoint.links.values()
            enough = link.received + chance.randrange(1, 3000)
            while link.connection is None or link.received < enough:
                await asyncio.sleep(0)
            link.connection.abort()
        assert await asyncio.gather(*running) == [due("bob", 700, ["x"]), due("alice", 700, ["x"])]

    run(scene())


def test_a_connection_that_goes_silent_is_noticed_and_made_again() -> None:
    timing = replace(PATIENT, silence=0.15)

    async def scene() -> None:
        room = MeetingRoom()
        alice = make_party(room, "alice", "bob", timing=timing)
        bob = make_party(room, "bob", "alice", timing=timing, budgets=[2000], silent=True)
        program = exchange(60, ["x"])
        results = await asyncio.gather(alice.endpoint.run(program), bob.endpoint.run(program))
        assert results == [due("bob", 60, ["x"]), due("alice", 60, ["x"])]
        why = "(it has been silent for 0.15 s); waiting up to 60 s for it to come back"
        assert why in str(alice.warnings + bob.warnings)  # who notices first hangs up

    run(scene())


def test_a_peer_that_does_not_read_keeps_the_other_waiting_and_little_in_memory() -> None:
    count = 80
    size = WINDOW // 8 - OVERHEAD  # eight fill the window
    sent = 0

    async def eager(links: Links) -> None:
        nonlocal sent
        for number in range(count):
            await links["bob"].send("x", bytes([number]) * size)
            sent += 1

    async def slow(links: Links) -> list[bytes]:
        link = links["alice"]
        await until(lambda: "x" in link._incoming and len(link._incoming["x"].waiting) == 8)
        for _ in range(100):  # turns in which the other could go on, did it not wait
            await asyncio.sleep(0)
        assert sent == len(link._incoming["x"].waiting) == 8
        return [await link.receive("x") for _ in range(count)]

    programs: dict[str, Any] = {"alice": eager, "bob": slow}
    results = run(converse(programs, purpose="test", timing=PATIENT))
    assert results["bob"] == [bytes([number]) * size for number in range(count)]


@pytest.mark.parametrize(
    ("me", "waits", "end", "why"),
    [
        ("alice", "waiting for bob at", "bob has not connected to", ""),
        (
            "bob",
            "waiting for alice to answer at",
            "alice could not be reached at",
            " (alice is not here)",
        ),
    ],
    ids=["listens", "dials"],
)
def test_a_peer_that_never_comes_is_given_up(me: str, waits: str, end: str, why: str) -> None:
    async def scene() -> None:
        peer = "bob" if me == "alice" else "alice"
        party = make_party(MeetingRoom(), me, peer, timing=replace(PATIENT, away=0.1))
        with pytest.raises(ChannelError) as caught:
            await party.endpoint.run(nothing)
        assert str(caught.value) == f"{end} this process within 0.1 s{why}; start all sides again"
        assert party.notes == [f"{waits} this process{why}"]

    run(scene())


def test_a_peer_that_goes_and_does_not_come_back_is_given_up() -> None:
    async def scene() -> None:
        alice, bob = alice_and_bob(MeetingRoom())
        running = asyncio.create_task(alice.endpoint.run(exchange(1, ["x"])))
        gone = asyncio.create_task(bob.endpoint.run(wait_for_ever))
        await until(alice.is_connected)
        alice.lose_patience(away=0.1)
        await kill(bob, gone)
        with pytest.raises(ChannelError) as caught:
            await running
        text = "did not come back to this process within 0.1 s; start all sides again"
        assert str(caught.value) == f"bob {text}"
        hope = "waiting up to 0.1 s for it to come back"
        assert alice.warnings == [f"lost the connection to bob (the other side closed it); {hope}"]

    run(scene())


def test_a_peer_that_is_there_and_says_nothing_ends_it() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        alice = make_party(room, "alice", "bob", timing=replace(PATIENT, answer=0.1))
        bob = make_party(room, "bob", "alice")

        async def ask(links: Links) -> None:
            await until(lambda: alice.is_connected() and bob.is_connected())
            await links["bob"].receive("x")

        errors = await outcomes(alice.endpoint.run(ask), bob.endpoint.run(wait_for_ever))
        why = "bob has sent no 'x', nor anything else, for 0.1 s"
        assert [str(error) for error in errors] == [why, f"alice at this process stopped: {why}"]

    run(scene())


# starting anew


async def kill(party: Party, running: asyncio.Task[Any]) -> None:
    """As SIGKILL does: its connections are gone, and no last words are said."""
    party.carrier.dead = True
    party.carrier.room.present.pop(party.endpoint.me, None)
    for connection in party.carrier.connections:
        connection.abort()
    await stopped(running)


class Hold:
    """Stops a party's program at a round, until it is released or the party killed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.reached = asyncio.Event()
        self.released = asyncio.Event()

    async def pause(self, number: int) -> None:
        if number >= self.number:
            self.reached.set()
            await self.released.wait()


def attempt(
    me: str, rounds: int = 25, holds: Mapping[str, Hold] | None = None
) -> Callable[[Links], Awaitable[dict[str, str]]]:
    """Who took part, by a word that each draws per attempt.

    Every round checks that all are in the same attempt.
    """

    async def program(links: Links) -> dict[str, str]:
        words = {me: secrets.token_hex(4)}
        for link in links.values():
            await link.send("word", words[me].encode())
        for peer, link in links.items():
            words[peer] = (await link.receive("word")).decode()
        all_words = json.dumps(words, sort_keys=True).encode()
        for number in range(rounds):
            for link in links.values():
                await link.send("round", all_words)
            for link in links.values():
                assert await link.receive("round") == all_words
            if holds is not None and me in holds:
                await holds[me].pause(number)
        return dict(sorted(words.items()))

    return program


class Restarts:
    """A room whose parties are killed and started again."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.room = MeetingRoom()
        self.holds: dict[str, Hold] = {}
        self.parties: dict[str, Party] = {}
        self.running: dict[str, asyncio.Task[dict[str, str]]] = {}
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        self.holds.pop(name, None)
        party = make_party(self.room, name, *peers_of(name, self.names))
        self.parties[name] = party
        program = attempt(name, holds=self.holds)
        self.running[name] = asyncio.create_task(party.endpoint.run(program))

    async def reach(self, name: str, number: int) -> None:
        """Waits until this party is in that round, where it stays; so no other can finish."""
        self.holds[name] = Hold(number)
        await self.holds[name].reached.wait()

    async def kill(self, name: str) -> None:
        await kill(self.parties[name], self.running[name])

    async def notice(self, witness: str, victim: str) -> None:
        """Waits until another party knows that the victim is gone."""
        link = self.parties[witness].endpoint.links[victim]
        await until(lambda: link.connection is None)


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_when_parties_start_anew_all_get_the_result_of_one_attempt(parties: int, seed: int) -> None:
    """Up to two of three are killed in the same round, once or twice; some are missed at first."""
    chance = random.Random(10 * seed + parties)
    names = NAMES[:parties]

    async def scene() -> None:
        room = Restarts(names)
        for _ in range(chance.randrange(1, 3)):
            victims = chance.sample(names, chance.randrange(1, parties))
            survivor = next(name for name in names if name not in victims)
            await room.reach(victims[0], chance.randrange(20))
            at_once = [name for name in victims if chance.random() < 0.5]
            for name in victims:
                await room.kill(name)
                if name in at_once:
                    room.start(name)
            for name in victims:
                if name not in at_once:
                    await room.notice(survivor, name)
                    room.start(name)
        results = await asyncio.gather(*room.running.values())
        assert all(result == results[0] for result in results)
        assert len({party.endpoint.epoch for party in room.parties.values()}) == 1

    run(scene())


@pytest.mark.parametrize("victim", ["alice", "bob"])
def test_the_survivor_hears_that_the_other_was_lost_and_has_started_anew(victim: str) -> None:
    (survivor,) = peers_of(victim, ["alice", "bob"])

    async def scene() -> None:
        room = Restarts(["alice", "bob"])
        await room.reach(victim, 3)
        await room.kill(victim)
        room.start(victim)
        results = await asyncio.gather(*room.running.values())
        assert results[0] == results[1]
        hope = "waiting up to 60 s for it to come back"
        assert room.parties[survivor].warnings == [
            f"lost the connection to {victim} (the other side closed it); {hope}",
            f"{victim} has started again; starting over with it",
        ]

    run(scene())


def test_a_connection_that_comes_back_says_so() -> None:
    async def scene() -> None:
        alice, bob = alice_and_bob(MeetingRoom(), budgets=[3000])
        program = exchange(50, ["x"])
        await asyncio.gather(alice.endpoint.run(program), bob.endpoint.run(program))
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


async def meet_and_wait(links: Links) -> None:
    (link,) = links.values()
    await link.send("x", b"")
    await link.receive("x")
    await link.receive("never")


def test_an_error_reaches_the_other_as_one_line_that_holds_no_data() -> None:
    async def scene() -> None:
        alice, bob = alice_and_bob(MeetingRoom())
        errors = await outcomes(alice.endpoint.run(meet_and_fail), bob.endpoint.run(meet_and_wait))
        assert isinstance(errors[0], ValueError)
        assert isinstance(errors[1], ChannelError)
        assert str(errors[1]) == "alice at this process was stopped by an error on its side"
        assert "Muñoz" not in str(bob.events)

    run(scene())


def test_in_one_process_the_first_error_is_the_one_that_is_raised() -> None:
    programs = {"alice": meet_and_wait, "bob": meet_and_fail}
    with pytest.raises(ValueError, match="Ana"):
        run(converse(programs, purpose="test", timing=PATIENT))


@pytest.mark.parametrize(
    ("index", "who"), [(0, "alice at this process"), (1, "bob")], ids=["alice", "bob"]
)
def test_who_is_stopped_by_its_user_says_so(index: int, who: str) -> None:
    """Bob, who dials, also says where he dialled her."""

    async def scene() -> None:
        parties = alice_and_bob(MeetingRoom())
        running = [asyncio.create_task(party.endpoint.run(meet_and_wait)) for party in parties]
        await until(lambda: all(party.is_connected() for party in parties))
        running[index].cancel()
        errors = await outcomes(*running)
        assert isinstance(errors[index], asyncio.CancelledError)
        assert str(errors[1 - index]) == f"{who} was stopped by its user"

    run(scene())


def test_of_three_all_hear_who_stopped() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        parties = [make_party(room, me, *peers_of(me)) for me in NAMES]
        running = [asyncio.create_task(party.endpoint.run(wait_for_ever)) for party in parties]
        await until(lambda: all(party.is_connected() for party in parties))
        running[1].cancel()
        errors = await outcomes(*running)
        for error in (errors[0], errors[2]):
            assert isinstance(error, ChannelError)
            assert re.search("bob( at this process)? was stopped by its user$", str(error))

    run(scene())


def test_results_are_safe_before_anybody_hears_of_them() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        order = []

        async def take_part(me: str) -> None:
            party = make_party(room, me, *peers_of(me))
            await party.endpoint.run(attempt(me, 2), lambda _: order.append("concluded"))
            order.append("over")

        await asyncio.gather(*(take_part(me) for me in NAMES))
        assert order == ["concluded"] * 3 + ["over"] * 3

    run(scene())


def disk_is_full(_result: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_result_that_cannot_be_kept_is_a_success_for_nobody() -> None:
    async def scene() -> None:
        alice, bob = alice_and_bob(MeetingRoom())
        errors = await outcomes(
            alice.endpoint.run(nothing, disk_is_full), bob.endpoint.run(nothing)
        )
        assert isinstance(errors[0], OSError)
        assert str(errors[1]) == "alice at this process was stopped by an error on its side"

    run(scene())


@pytest.mark.parametrize("index", [0, 1], ids=["listener", "dialler"])
def test_an_error_of_whoever_listens_to_events_ends_the_conversation(index: int) -> None:
    """Else the task that met it would end, and everybody wait for it."""

    def broken(event: Event) -> None:
        if isinstance(event, Noted) and "connected" in event.text:
            raise BrokenPipeError("nobody reads stderr")

    async def scene() -> None:
        parties = alice_and_bob(MeetingRoom())
        parties[index].endpoint.on_event = broken
        errors = await outcomes(*(party.endpoint.run(meet_and_wait) for party in parties))
        assert isinstance(errors[index], BrokenPipeError)
        assert isinstance(errors[1 - index], ChannelError)

    run(scene(), limit=PATIENT.away / 2)


# who is refused


def test_a_peer_that_runs_something_else_is_refused() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        alice = make_party(room, "alice", "bob", purpose="psi")
        bob = make_party(room, "bob", "alice", purpose="fuse")
        running = asyncio.create_task(alice.endpoint.run(nothing))
        with pytest.raises(ChannelError) as refused:
            await bob.endpoint.run(nothing)
        why = "runs 'fuse', and alice runs 'psi'; run the same on both sides"
        assert str(refused.value) == f"alice at this process refused us: {why}"
        assert alice.warnings == [f"refused bob at this process: it {why}"]
        alice.lose_patience(away=0.1)
        with pytest.raises(ChannelError) as caught:
            await running
        text = "has not connected to this process within 0.1 s; start all sides again"
        assert str(caught.value) == f"bob {text}"

    run(scene())


def test_a_party_of_another_session_is_refused_and_does_not_disturb() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        alice = make_party(room, "alice", "bob")
        carol = make_party(room, "carol", "alice")
        running = asyncio.create_task(alice.endpoint.run(exchange(3, ["x"])))
        with pytest.raises(ChannelError) as caught:
            await carol.endpoint.run(nothing)
        why = "is not part of this session, which is between alice, bob"
        assert str(caught.value) == f"alice at this process refused us: {why}"
        bob = make_party(room, "bob", "alice")
        assert await bob.endpoint.run(exchange(3, ["x"])) == due("alice", 3, ["x"])
        assert await running == due("bob", 3, ["x"])
        assert alice.warnings == [f"refused carol at this process: it {why}"]

    run(scene())


HELLO = Hello("bob", "alice", "p", 0, "test")
WRONG_SENDER = replace(HELLO, sender="carol")
WRONG_RECEIVER = replace(HELLO, receiver="carol")
IMPOSSIBLE = "introduced itself with an impossible epoch or process"
UNKNOWN = "introduced itself in a way that this version does not understand"


def raw(
    kind: Kind = Kind.HELLO, data: bytes = b"", *, version: int = VERSION, length: int | None = None
) -> bytes:
    length = len(data) if length is None else length
    return HEADER.pack(b"TACT", version, kind, 0, 0, length) + data


def hello_with(**entries: Any) -> bytes:
    return raw(data=json.dumps({**HELLO.__dict__, **entries}).encode())


async def dial_alice(room: MeetingRoom) -> Connection:
    """A stranger's connection to her, with bob's certificate, once she listens."""
    await until(lambda: "alice" in room.present)
    return await LoopbackCarrier(room, "bob").dial("alice")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (raw(data=b"not json"), UNKNOWN),
        (raw(data=b"[" * LONGEST), UNKNOWN),
        (raw(data=b'{"epoch": true}'), UNKNOWN),
        (hello_with(epoch=True), UNKNOWN),
        (hello_with(epoch=-1), IMPOSSIBLE),
        (hello_with(epoch=(1 << 32) - 1), "introduced itself with an impossible epoch"),
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
            raw(version=1),
            "speaks version 1 of the channel and this side 2; install the same tacit on both",
        ),
        (bytes(20), "sent something that is not a message of tacit"),
    ],
)
def test_whoever_introduces_itself_wrongly_is_told_why_and_does_not_disturb(
    said: bytes, why: str
) -> None:
    async def scene() -> None:
        room = MeetingRoom()
        alice = make_party(room, "alice", "bob")
        running = asyncio.create_task(alice.endpoint.run(exchange(3, ["x"])))
        stranger = await dial_alice(room)
        assert (await stranger.read()).kind is Kind.BEAT
        stranger.writer.write(said)
        answer = await stranger.read()
        assert (answer.kind, answer.words) == (Kind.REFUSED, why)
        stranger.abort()
        bob = make_party(room, "bob", "alice")
        assert await bob.endpoint.run(exchange(3, ["x"])) == due("alice", 3, ["x"])
        assert await running == due("bob", 3, ["x"])
        assert alice.warnings == [f"refused bob at this process: it {why}"]

    run(scene())


def test_whoever_says_nothing_is_dropped_and_does_not_disturb() -> None:
    """Alice's patience is short for the stranger alone: bob may take as long as he needs."""

    async def scene() -> None:
        room = MeetingRoom()
        alice = make_party(room, "alice", "bob", timing=replace(PATIENT, greeting=0.05))
        running = asyncio.create_task(alice.endpoint.run(exchange(3, ["x"])))
        stranger = await dial_alice(room)
        await stranger.read()
        with pytest.raises(ConnectionResetError):
            await stranger.read()
        alice.endpoint.timing = PATIENT
        bob = make_party(room, "bob", "alice")
        await asyncio.gather(bob.endpoint.run(exchange(3, ["x"])), running)
        assert alice.warnings == ["bob at this process connected and did not say who it is"]

    run(scene())


def test_strangers_do_not_fill_the_log() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        alice = make_party(room, "alice", "bob")
        running = asyncio.create_task(alice.endpoint.run(nothing))
        for _ in range(3 * conversation.COMPLAINTS):
            stranger = await dial_alice(room)
            stranger.writer.write(bytes(20))
            stranger.abort()
        seen = alice.endpoint.conversation
        await until(lambda: seen.complaints == 3 * conversation.COMPLAINTS)
        bob = make_party(room, "bob", "alice")
        await asyncio.gather(bob.endpoint.run(nothing), running)
        assert len(alice.warnings) == conversation.COMPLAINTS
        assert alice.warnings[-1].endswith("; further ones are refused in silence")

    run(scene())


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (HELLO.frame(), "introduced itself twice"),
        (Frame(Kind.BYE), "said goodbye in the middle of it"),
        (Frame(Kind.DATA, "x", 5), "sent message 5 of 'x' before message 0"),
        (Frame(Kind.TAKEN, "x", 5), "says that it took 5 messages 'x', of 0 sent"),
    ],
)
def test_a_peer_that_goes_wrong_later_ends_it_and_is_told_why(frame: Frame, why: str) -> None:
    async def scene() -> None:
        room = MeetingRoom()
        alice = make_party(room, "alice", "bob")
        running = asyncio.create_task(alice.endpoint.run(wait_for_ever))
        bob = await dial_alice(room)
        bob.put(HELLO.frame())
        bob.put(frame)
        answer = await bob.read()
        while answer.kind is not Kind.REFUSED:
            answer = await bob.read()
        bob.abort()
        assert answer.words == f"stopped: bob {why}"
        with pytest.raises(ChannelError) as caught:
            await running
        assert str(caught.value) == f"bob {why}"

    run(scene())


def test_a_party_that_runs_twice_does_not_disturb_the_first() -> None:
    """The first process goes on only once the second has heard that alice is busy."""
    busy = "waiting for alice to answer at this process (it is talking to another process of ours)"

    async def scene() -> None:
        room = Restarts(["alice", "bob"])
        await room.reach("bob", 3)
        twin = make_party(room.room, "bob", "alice")
        twins_run = asyncio.create_task(twin.endpoint.run(wait_for_ever))
        await until(lambda: busy in twin.notes)
        room.holds["bob"].released.set()
        results = await asyncio.gather(*room.running.values())
        assert results[0] == results[1]
        assert not [text for text in room.parties["alice"].warnings if "anew" in text]
        await stopped(twins_run)

    run(scene())


async def until_connected_or_done(party: Party, running: asyncio.Task[Any]) -> None:
    await until(lambda: party.is_connected() or running.done())


def test_what_a_void_attempt_had_is_freed_before_the_next_one() -> None:
    """Its error holds its frames, which hold the error: it may be a network of gigabytes."""

    class Network:
        pass

    networks = []

    async def hold_a_network(links: Links) -> None:
        network = Network()
        networks.append(weakref.ref(network))
        try:
            await next(iter(links.values())).receive("never")
        except ChannelError as error:
            kept = error
            raise ChannelError(str(kept)) from error

    async def scene() -> None:
        room = MeetingRoom()
        alice = make_party(room, "alice", "bob")
        running = asyncio.create_task(alice.endpoint.run(hold_a_network))
        for attempt in (1, 2, 3):
            bob = make_party(room, "bob", "alice")
            bobs_run = asyncio.create_task(bob.endpoint.run(wait_for_ever))
            await until(lambda attempt=attempt: len(networks) == attempt)
            await until_connected_or_done(bob, running)
            await kill(bob, bobs_run)
        assert [network() is None for network in networks] == [True, True, False]
        await stopped(running)

    gc.disable()
    try:
        run(scene())
    finally:
        gc.enable()


def test_a_party_that_starts_anew_again_and_again_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every time it may ask for other people."""
    monkeypatch.setattr(endpoint, "RESTARTS", 3)

    async def scene() -> None:
        room = MeetingRoom()
        alice = make_party(room, "alice", "bob")
        running = asyncio.create_task(alice.endpoint.run(wait_for_ever))
        for _ in range(5):
            bob = make_party(room, "bob", "alice")
            bobs_run = asyncio.create_task(bob.endpoint.run(wait_for_ever))
            await until_connected_or_done(bob, running)
            await kill(bob, bobs_run)
        with pytest.raises(ChannelError) as caught:
            await running
        text = "have started again more than 3 times, bob the last; stop, and start all sides"
        assert str(caught.value) == f"parties {text}"
        restarts = [text for text in alice.warnings if "has started again; starting over" in text]
        assert len(restarts) == 4

    run(scene())


def test_nothing_is_published_where_one_side_cannot_conclude() -> None:
    """A full disk on one side must not leave files of different sessions."""

    async def scene() -> None:
        alice, bob = alice_and_bob(MeetingRoom())
        published = []
        errors = await outcomes(
            alice.endpoint.run(
                attempt("alice", 2), lambda _: None, lambda: published.append("alice")
            ),
            bob.endpoint.run(attempt("bob", 2), disk_is_full, lambda: published.append("bob")),
        )
        assert re.fullmatch(
            "bob( at this process)? was stopped by an error on its side", str(errors[0])
        )
        assert isinstance(errors[1], OSError)
        assert published == []

    run(scene())


def test_all_conclude_before_any_publishes() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        order = []
        runs = []
        for me in NAMES:
            party = make_party(room, me, *peers_of(me))
            program = attempt(me, 2)
            runs.append(
                party.endpoint.run(
                    program,
                    lambda _: order.append("concluded"),
                    lambda: order.append("published"),
                )
            )
        await asyncio.gather(*runs)
        assert order == ["concluded"] * 3 + ["published"] * 3

    run(scene())


STAYING = "all is done; staying up to 600 s until bob knows it, and an interrupt loses nothing"


class CutLine(LoopbackCarrier):
    """Its party cannot dial until the line is open again."""

    def __init__(self, room: MeetingRoom, me: str) -> None:
        super().__init__(room, me)
        self.open = asyncio.Event()
        self.open.set()

    async def dial(self, peer: str) -> Connection:
        await self.open.wait()
        return await super().dial(peer)


@dataclass
class Ending:
    """Bob has concluded and told alice so; his line is cut before he hears that she has, too."""

    room: MeetingRoom = field(default_factory=MeetingRoom)
    published: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.line = CutLine(self.room, "bob")
        self.alice = self._endpoint("alice", self.room.carrier("alice"))
        self.bob = self._endpoint("bob", self.line)

    def _endpoint(self, me: str, carrier: LoopbackCarrier) -> Endpoint:
        return Endpoint(
            me,
            peers_of(me, NAMES[:2]),
            carrier,
            purpose="test",
            timing=replace(PATIENT, away=600),  # longer than a test may take
            on_event=self.events.append,
        )

    def texts(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Noted | Warned)]

    def run(self, party: Endpoint, conclude: Callable[[str], object]) -> asyncio.Task[str]:
        running = party.run(nothing, conclude, lambda: self.published.append(party.me))
        return asyncio.create_task(running)

    async def reach(self) -> tuple[asyncio.Task[str], asyncio.Task[str]]:
        """Both parties, once alice has published and stays for bob, who cannot hear of it."""
        may_conclude = threading.Event()
        alice = self.run(self.alice, lambda _: may_conclude.wait())
        bob = self.run(self.bob, lambda _: None)
        await until(lambda: has_heard_the_end(self.alice))
        self.line.open.clear()
        self.alice.links["bob"].detach("the line was cut")
        may_conclude.set()
        await until(lambda: STAYING in self.texts())
        assert self.published == ["alice"]
        return alice, bob


def has_heard_the_end(party: Endpoint) -> bool:
    """Whether the message of its peer that all is done is there."""
    streams = [link._incoming.get(endpoint.DONE) for link in party.links.values()]
    return all(stream is not None and stream.waiting for stream in streams)


def test_who_is_done_stays_until_a_peer_whose_line_was_cut_has_heard_it() -> None:
    async def scene() -> None:
        ending = Ending()
        alice, bob = await ending.reach()
        await asyncio.sleep(0.1)
        assert not alice.done()
        ending.line.open.set()
        await asyncio.gather(alice, bob)
        assert ending.published == ["alice", "bob"]

    run(scene())


def test_an_interrupt_of_who_only_stays_for_others_does_not_undo_what_is_done() -> None:
    async def scene() -> None:
        ending = Ending()
        alice, bob = await ending.reach()
        await asyncio.sleep(0)
        alice.cancel()
        assert await alice == "done"
        await stopped(bob)

    run(scene())


def test_nobody_stays_for_a_peer_that_has_started_again() -> None:
    async def scene() -> None:
        ending = Ending()
        alice, bob = await ending.reach()
        await stopped(bob)
        again = ending._endpoint("bob", ending.room.carrier("bob"))
        running = ending.run(again, lambda _: None)
        await until(alice.done)  # were it awaited, the limit of `run` would end its stay
        assert alice.result() == "done"
        await stopped(running)
        assert ending.published == ["alice"]

    run(scene())
