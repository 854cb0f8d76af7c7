"""Parties agree before they begin, hear the same, and go on from the last checkpoint of all."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from loops import run, stopped, until

from tacit.channel import endpoint as endpoints
from tacit.channel import session as sessions
from tacit.channel.checkpoints import MARK, Checkpoint, CheckpointFolder
from tacit.channel.connection import Connection
from tacit.channel.endpoint import Endpoint
from tacit.channel.frames import ChannelError
from tacit.channel.link import WINDOW, Link
from tacit.channel.loopback import LoopbackCarrier, MeetingRoom, converse
from tacit.channel.messages import pieces
from tacit.channel.opening import TERMS, hold, in_session
from tacit.channel.session import Session
from tacit.channel.statements import Difference, Protocol
from tacit.channel.timing import Timing
from tacit.core.errors import DataError
from tacit.core.events import Event, Noted, Warned

PATIENT = Timing(beat=0.02, silence=60, away=60, answer=60, greeting=60)
THREE = ("alice", "bob", "carol")
Program = Callable[[Session], Awaitable[Any]]
Links = Mapping[str, Link]


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "SHORTEST", 0.002)
    monkeypatch.setattr(endpoints, "LONGEST", 0.01)
    monkeypatch.setattr(endpoints, "FAREWELL", 0.2)


def meet(programs: Mapping[str, Program], protocols: Mapping[str, Protocol]) -> dict[str, Any]:
    parties = tuple(programs)
    with_links = {}
    for name, program in programs.items():
        with_links[name] = in_session(program, name, parties, protocols[name])
    return run(converse(with_links, purpose="test", timing=PATIENT))


def everybody(program: Program, protocol: Protocol, parties: tuple[str, ...]) -> dict[str, Any]:
    return meet(dict.fromkeys(parties, program), dict.fromkeys(parties, protocol))


async def describe(session: Session) -> tuple[str, Any]:
    return session.name.hex(), dict(session.brings)


@pytest.mark.parametrize("parties", [THREE[:2], THREE])
def test_a_session_has_one_name_at_all_parties_and_another_one_each_time(
    parties: tuple[str, ...],
) -> None:
    protocols = {name: Protocol({"rounds": 3}, {"rows": len(name)}) for name in parties}
    first = meet(dict.fromkeys(parties, describe), protocols)
    second = meet(dict.fromkeys(parties, describe), protocols)
    names = {name for name, _ in [*first.values(), *second.values()]}
    assert len(names) == 2
    brings = {name: {"rows": len(name)} for name in parties}
    assert all(known == brings for _, known in first.values())


def test_a_difference_ends_it_with_the_setting_that_differs() -> None:
    words = {"rounds": Difference("the number of rounds", ("rounds",))}
    protocols = {
        "alice": Protocol({"rounds": 3, "model": "a"}, differences=words),
        "bob": Protocol({"rounds": 4, "model": "b"}, differences=words),
    }
    with pytest.raises(ChannelError) as caught:
        meet(dict.fromkeys(protocols, describe), protocols)
    assert "differ in the number of rounds: " in str(caught.value)
    assert caught.value.parameters == ("rounds",)


def test_a_term_that_one_side_lacks_is_a_difference() -> None:
    protocols = {"alice": Protocol({"rounds": 3}), "bob": Protocol({"rounds": 3, "noise": 1})}
    with pytest.raises(ChannelError, match="differ in noise"):
        meet(dict.fromkeys(protocols, describe), protocols)


@pytest.mark.parametrize(("ours", "theirs"), [(1, True), (1, 1.0), (0, False), ([1], [True])])
def test_values_that_python_holds_for_equal_are_a_difference(ours: Any, theirs: Any) -> None:
    protocols = {"alice": Protocol({"noise": ours}), "bob": Protocol({"noise": theirs})}
    with pytest.raises(ChannelError, match="differ in noise"):
        meet(dict.fromkeys(protocols, describe), protocols)


def test_no_value_is_another_thing_than_none() -> None:
    protocols = {"alice": Protocol({}), "bob": Protocol({"noise": None})}
    with pytest.raises(ChannelError, match="differ in noise"):
        meet(dict.fromkeys(protocols, describe), protocols)


def test_what_a_peer_brings_is_heard_before_the_terms_are_compared_and_may_be_refused() -> None:
    heard = []

    def hear(peer: str, brings: Mapping[str, Any]) -> None:
        heard.append((peer, brings["rows"]))

    def refuse(peer: str, _: Mapping[str, Any]) -> None:
        raise ChannelError(f"{peer} brings too many")

    other = Protocol({"rounds": 4}, {"rows": 10**9})
    with pytest.raises(ChannelError, match="differ in rounds"):
        meet(
            dict.fromkeys(("alice", "bob"), describe),
            {"alice": Protocol({"rounds": 3}, {"rows": 1}, hear=hear), "bob": other},
        )
    assert heard == [("bob", 10**9)]
    with pytest.raises(ChannelError, match="bob brings too many"):
        meet(
            dict.fromkeys(("alice", "bob"), describe),
            {"alice": Protocol({"rounds": 4}, {"rows": 1}, accept=refuse), "bob": other},
        )


def test_messages_of_all_sizes_arrive_in_order() -> None:
    sizes = [0, 1, 1000, 1 << 18, 3_000_000]

    async def program(session: Session) -> list[Any]:
        (peer,) = session.links

        async def send() -> None:
            for size in sizes:
                await session.send(peer, "x", {"array": np.full(size, size % 251), "n": size})

        async def receive() -> list[Any]:
            return [await session.receive(peer, "x") for _ in sizes]

        _, messages = await asyncio.gather(send(), receive())
        return messages

    for messages in everybody(program, Protocol({}), ("alice", "bob")).values():
        for size, message in zip(sizes, messages, strict=True):
            assert message["n"] == size
            assert np.array_equal(message["array"], np.full(size, size % 251))


def test_two_who_send_under_one_name_at_the_same_time_do_not_mix_their_pieces() -> None:
    async def program(session: Session) -> list[Any]:
        (peer,) = session.links
        large = [{"x": np.full(500_000, number)} for number in range(4)]
        sending = asyncio.gather(*(session.send(peer, "m", message) for message in large))
        receiving = asyncio.gather(*(session.receive(peer, "m") for _ in large))
        await sending
        return list(await receiving)

    for messages in everybody(program, Protocol({}), ("alice", "bob")).values():
        assert sorted(int(message["x"].max()) for message in messages) == [0, 1, 2, 3]
        assert all(np.ptp(message["x"]) == 0 for message in messages)


def test_who_is_cancelled_while_it_receives_loses_no_piece() -> None:
    async def slow(session: Session) -> None:
        parts = list(pieces({"x": np.arange(1_000_000)}))
        for part in parts:
            await session.links["bob"].send("m", part)
            await session.receive("bob", "next")

    async def impatient(session: Session) -> None:
        receiving = asyncio.create_task(session.receive("alice", "m"))
        while not receiving.done():
            for _ in range(20):
                await asyncio.sleep(0)
            if not receiving.done():
                receiving.cancel()
                await asyncio.wait([receiving])
                receiving = asyncio.create_task(session.receive("alice", "m"))
            await session.send("alice", "next", {})
        assert np.array_equal(receiving.result()["x"], np.arange(1_000_000))

    protocols = dict.fromkeys(("alice", "bob"), Protocol({}))
    meet({"alice": slow, "bob": impatient}, protocols)


def test_messages_beyond_the_window_are_exchanged_by_all_at_once() -> None:
    async def program(session: Session) -> list[int]:
        messages = await session.exchange("x", {"x": np.zeros(2 * WINDOW, np.uint8)})
        return [message["x"].size for message in messages.values()]

    assert everybody(program, Protocol({}), THREE)["bob"] == [2 * WINDOW] * 2


@pytest.mark.parametrize("parts_before", [0, 1])
def test_the_limit_of_a_cancelled_call_is_not_that_of_the_next_one(parts_before: int) -> None:
    async def slow(session: Session) -> None:
        parts = list(pieces({"x": np.arange(1_000_000)}))
        for part in parts[:parts_before]:
            await session.links["bob"].send("m", part)
        await session.receive("bob", "cancelled")
        for part in parts[parts_before:]:
            await session.links["bob"].send("m", part)
        await session.receive("bob", "refused")

    async def impatient(session: Session) -> None:
        receiving = asyncio.create_task(session.receive("alice", "m"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert await stopped(receiving)
        await session.send("alice", "cancelled", {})
        with pytest.raises(ChannelError, match="announced a message of 8000000 bytes; at most 10"):
            await session.receive("alice", "m", largest=10)
        await session.send("alice", "refused", {})

    protocols = dict.fromkeys(("alice", "bob"), Protocol({}))
    meet({"alice": slow, "bob": impatient}, protocols)


def test_a_broadcast_after_a_cancelled_call_is_heard_as_one() -> None:
    async def program(session: Session) -> list[str]:
        receiving = asyncio.create_task(session.receive(next(iter(session.links)), "vote"))
        await asyncio.sleep(0)
        assert await stopped(receiving)
        heard = await session.broadcast("vote", {"who": session.me})
        return sorted(message["who"] for message in heard.values())

    assert everybody(program, Protocol({}), THREE)["carol"] == ["alice", "bob"]


def test_a_message_that_was_cut_short_is_not_followed_by_another() -> None:
    async def program(session: Session) -> None:
        (peer,) = session.links
        sending = asyncio.create_task(session.send(peer, "m", {"x": np.zeros(3 << 20)}))
        for _ in range(10):
            await asyncio.sleep(0)
        assert await stopped(sending)
        with pytest.raises(ValueError, match=r"sending 'm' to .* was cancelled"):
            await session.send(peer, "m", {"x": 1})

    everybody(program, Protocol({}), ("alice", "bob"))


def test_who_is_cancelled_while_it_receives_from_all_loses_no_message() -> None:
    async def patient(session: Session) -> None:
        for number in range(2):
            await session.send("alice", "m", {"number": number})
        await session.receive("alice", "cancelled")

    async def late(session: Session) -> None:
        await session.receive("alice", "cancelled")
        for number in range(2):
            await session.send("alice", "m", {"number": number})

    async def impatient(session: Session) -> list[dict[str, Any]]:
        before = dict(session._received)
        receiving = asyncio.create_task(session.receive_all("m"))
        await asyncio.sleep(0.05)
        assert await stopped(receiving)
        assert session._received == before  # or a checkpoint could be saved now
        await session.send_all("cancelled", {})
        return [await session.receive_all("m") for _ in range(2)]

    programs = {"alice": impatient, "bob": patient, "carol": late}
    received = meet(programs, dict.fromkeys(THREE, Protocol({})))["alice"]
    assert received == [{"bob": {"number": n}, "carol": {"number": n}} for n in range(2)]


def test_a_message_of_which_only_some_have_heard_is_not_followed_by_another() -> None:
    async def silent(session: Session) -> None:
        await session.receive("alice", "stop")

    async def impatient(session: Session) -> None:
        for call in (session.exchange, session.broadcast):
            calling = asyncio.create_task(call(call.__name__, {}))
            await asyncio.sleep(0.02)
            assert await stopped(calling)
            for again in (session.exchange, session.broadcast, session.send_all):
                with pytest.raises(ValueError, match="to all was cancelled, so some may have"):
                    await again(call.__name__, {})
        await session.send_all("stop", {})

    programs = {"alice": impatient, "bob": silent, "carol": silent}
    meet(programs, dict.fromkeys(THREE, Protocol({})))


@pytest.mark.parametrize("parties", [THREE[:2], THREE])
def test_the_name_of_a_broadcast_leaves_room_for_its_echo(parties: tuple[str, ...]) -> None:
    async def program(session: Session) -> int:
        with pytest.raises(ValueError, match="the name of a broadcast has at most 54 letters"):
            await session.broadcast("n" * 55, {})
        return len(await session.broadcast("n" * 54, {}))

    assert everybody(program, Protocol({}), parties)["alice"] == len(parties) - 1


def test_a_broadcast_reaches_all() -> None:
    async def program(session: Session) -> dict[str, Any]:
        heard = await session.broadcast("vote", {"x": np.arange(3), "who": session.me})
        return {peer: message["who"] for peer, message in heard.items()}

    results = everybody(program, Protocol({}), THREE)
    assert results["alice"] == {"bob": "bob", "carol": "carol"}


def test_whatever_a_broadcast_holds_all_have_heard_it_alike() -> None:
    async def program(session: Session) -> int:
        rows = pd.DataFrame({"name": ["ana", None], "age": [1, 2]})
        contents = {"x": np.arange(3), "rows": rows, 1: "one", "z": np.ones(2, bool)}
        await session.broadcast("a", contents)
        return 1

    everybody(program, Protocol({}), THREE)


def test_two_broadcasts_at_the_same_time_are_not_taken_for_each_other() -> None:
    async def program(session: Session) -> None:
        large = np.zeros(400_000 if session.me == "alice" else 1)
        small = np.zeros(400_000 if session.me == "bob" else 1)
        await asyncio.gather(
            session.broadcast("a", {"x": large}), session.broadcast("b", {"x": small})
        )

    everybody(program, Protocol({}), THREE)


def test_who_tells_others_different_things_in_a_broadcast_is_found_out() -> None:
    async def honest(session: Session) -> None:
        await session.broadcast("vote", {"x": 1})

    async def liar(session: Session) -> None:
        await session.send("alice", "vote", {"x": 2})
        await session.send("bob", "vote", {"x": 3})
        await asyncio.get_running_loop().create_future()

    protocols = dict.fromkeys(THREE, Protocol({}))
    with pytest.raises(ChannelError, match="have heard different 'vote' from carol"):
        meet({"alice": honest, "bob": honest, "carol": liar}, protocols)


def test_who_states_different_things_to_others_is_found_out() -> None:
    parties = THREE

    async def liar(links: Links) -> None:
        terms = {"parties": list(parties)}
        for number, link in enumerate(links.values()):
            await link.send(TERMS, stated(terms=terms, brings={"rows": number}, held=None))
        await asyncio.get_running_loop().create_future()

    programs: dict[str, Any] = {
        name: in_session(describe, name, parties, Protocol({}, {"rows": 7})) for name in parties[:2]
    }
    with pytest.raises(ChannelError, match="have heard different 'terms' from carol"):
        run(converse({**programs, "carol": liar}, purpose="test", timing=PATIENT))


def stated(**changed: object) -> bytes:
    """What a party states as it opens a session, with something changed."""
    return json.dumps({"terms": {}, "brings": {}, "nonce": "0" * 64, **changed}).encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"not json",
        b"[]",
        b"{}",
        b'{"terms": {}, "brings": {}, "nonce": ""}',
        stated(brings=[]),
        stated(held={"steps": [1]}),
        stated(held=7),
        stated(held=[[]]),
        stated(held=[[True, "0" * 64]]),
        stated(held=[[1, "00"]]),
        stated(held=[[1, "0" * 64, None]]),
        b" " * (1 << 19),
        b"[" * 100_000,
    ],
)
def test_a_statement_that_no_honest_party_makes_is_refused(raw: bytes) -> None:
    async def liar(links: Links) -> None:
        await links["alice"].send(TERMS, raw)
        await asyncio.get_running_loop().create_future()

    alice = in_session(describe, "alice", ("alice", "bob"), Protocol({}))
    programs: dict[str, Any] = {"alice": alice, "bob": liar}
    with pytest.raises(ChannelError, match=r"bob (sent terms|says that it has checkpoints)"):
        run(converse(programs, purpose="test", timing=PATIENT))


# programs that last

STEPS = 12


def walk(stop_at: Callable[[str, int], bool] = lambda *_: False) -> Program:
    """Each party's number becomes the sum of all, modulo a prime, in every step."""

    async def program(session: Session) -> tuple[int, str]:
        start = np.array([sum(map(ord, session.me))])
        numbers = start if session.state is None else session.state["numbers"]
        while session.step < STEPS:
            if stop_at(session.me, session.step):
                await asyncio.get_running_loop().create_future()
            await session.send_all("n", {"numbers": numbers})
            others = await session.receive_all("n")
            for message in others.values():
                numbers = (numbers * 3 + message["numbers"]) % 1_000_003
            await session.checkpoint({"numbers": numbers})
        return int(numbers[0]), session.name.hex()

    return program


@dataclass
class Party:
    """A party with its folder, which may die and start again."""

    name: str
    parties: tuple[str, ...]
    folder: Path
    protocol: Protocol = field(default_factory=lambda: Protocol({"steps": STEPS}))
    events: list[Event] = field(default_factory=list)

    @property
    def checkpoints(self) -> CheckpointFolder:
        return CheckpointFolder(self.folder / self.name)

    def steps(self) -> list[int]:
        return sorted(self.checkpoints.read())

    def texts(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Noted | Warned)]

    def start(
        self, room: MeetingRoom, program: Program, carrier: LoopbackCarrier | None = None
    ) -> asyncio.Task[Any]:
        peers = [name for name in self.parties if name != self.name]
        carrier = carrier or room.carrier(self.name)
        self.endpoint = Endpoint(
            self.name, peers, carrier, purpose="walk", timing=PATIENT, on_event=self.events.append
        )
        endpoint = self.endpoint
        holding = hold(endpoint, program, self.parties, self.protocol, checkpoints=self.checkpoints)
        return asyncio.create_task(holding)


async def kill(party: Party, task: asyncio.Task[Any]) -> None:
    """Its connections break without a word, as after kill -9."""
    for link in party.endpoint.links.values():
        link.detach("it died")
    await stopped(task)


def a_party(name: str, folder: Path, parties: tuple[str, ...] = THREE) -> Party:
    return Party(name, parties, folder)


def undisturbed(folder: Path, parties: tuple[str, ...] = THREE) -> dict[str, int]:
    async def scene() -> dict[str, int]:
        room = MeetingRoom()
        running = [a_party(name, folder, parties).start(room, walk()) for name in parties]
        results = await asyncio.gather(*running)
        return {name: result for name, (result, _) in zip(parties, results, strict=True)}

    return run(scene())


@pytest.mark.parametrize("victim", THREE)
@pytest.mark.parametrize("at", [0, 1, 2, 7, STEPS - 1])
def test_all_go_on_from_the_last_common_checkpoint(victim: str, at: int, tmp_path: Path) -> None:
    truth = undisturbed(tmp_path / "truth")

    async def scene() -> None:
        room = MeetingRoom()
        parties = {name: a_party(name, tmp_path) for name in THREE}
        stuck = asyncio.Event()

        def stop_at(name: str, step: int) -> bool:
            if name == victim and step == at:
                stuck.set()
                return True
            return False

        tasks = {name: party.start(room, walk(stop_at)) for name, party in parties.items()}
        await stuck.wait()
        await kill(parties[victim], tasks[victim])
        tasks[victim] = parties[victim].start(room, walk())
        results = await asyncio.gather(*tasks.values())
        assert {n: r for n, (r, _) in zip(tasks, results, strict=True)} == truth
        assert len({name for _, name in results}) == 1
        went_on = [text for text in parties[victim].texts() if text.startswith("going on from")]
        assert bool(went_on) == (at > 0)
        assert not any(party.folder.joinpath(party.name).exists() for party in parties.values())

    run(scene())


class SlowLines(LoopbackCarrier):
    """Whoever dials waits until the line to that peer is open."""

    def __init__(self, room: MeetingRoom, me: str, *open_to: str) -> None:
        super().__init__(room, me)
        self.lines = {peer: asyncio.Event() for peer in THREE if peer != me}
        for peer in open_to:
            self.lines[peer].set()

    async def dial(self, peer: str) -> Connection:
        await self.lines[peer].wait()
        return await super().dial(peer)


@pytest.mark.parametrize("first_had_met", [True, False])
def test_a_death_of_which_not_all_have_heard_is_no_lie(first_had_met: bool, tmp_path: Path) -> None:
    """Carol's next process reaches alice alone, and dies; the one after reaches bob before alice.

    So alice and bob have heard terms of two processes of hers, for a moment.
    """
    truth = undisturbed(tmp_path / "truth")

    async def scene() -> None:
        room = MeetingRoom()
        parties = {name: a_party(name, tmp_path) for name in THREE}
        alice, bob, carol = parties.values()
        tasks = {}
        for party in (alice, bob):
            tasks[party.name] = party.start(room, walk())
        stuck = walk(stop_at=lambda *_: True)
        if first_had_met:
            task = carol.start(room, stuck)
            await until(lambda: carol.endpoint.links["bob"].process != "")
            await kill(carol, task)
        task = carol.start(room, stuck, SlowLines(room, "carol", "alice"))
        second = carol.endpoint.process
        await until(lambda: alice.endpoint.links["carol"].process == second)
        await kill(carol, task)
        lines = SlowLines(room, "carol", "bob")
        tasks["carol"] = carol.start(room, walk(), lines)
        await until(lambda: bob.endpoint.links["carol"].process == carol.endpoint.process)
        await asyncio.sleep(0.1)  # bob and alice compare what they have heard
        lines.lines["alice"].set()
        results = await asyncio.gather(*tasks.values())
        assert {n: r for n, (r, _) in zip(tasks, results, strict=True)} == truth

    run(scene())


def test_who_shows_different_processes_to_others_is_found_out_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "RESTART", 0.1)

    async def honest(session: Session) -> None:
        session.links["carol"].process = f"what carol has shown {session.me}"
        await session.broadcast("vote", {"x": 1})

    async def liar(session: Session) -> None:
        await session.send("alice", "vote", {"x": 2})
        await session.send("bob", "vote", {"x": 3})
        await asyncio.get_running_loop().create_future()

    programs = {"alice": honest, "bob": honest, "carol": liar}
    with pytest.raises(ChannelError, match="have heard different 'vote' from carol"):
        meet(programs, dict.fromkeys(THREE, Protocol({})))


def marked(party: Party, *marks: tuple[int, str]) -> None:
    """Checkpoints of this party, each saved in an attempt."""
    for step, attempt in marks:
        names = {"name": "0" * 64, "attempt": attempt * 64}
        subject = {"me": party.name, "parties": list(party.parties), "brings": {}}
        session = {**subject, "terms": dict(party.protocol.terms), **names}
        numbers = np.array([step, int(attempt, 16)])
        party.checkpoints.save(Checkpoint(step, session, {"numbers": numbers}))


def where_they_go_on(folder: Path, **marks: list[tuple[int, str]]) -> dict[str, Any]:
    """The step from which each goes on, and in which attempt its state was saved."""
    names = tuple(marks)

    async def look(session: Session) -> tuple[int, int]:
        state = session.state or {"numbers": [0, 0]}
        return session.step, int(state["numbers"][1])

    async def scene() -> dict[str, Any]:
        room = MeetingRoom()
        parties = [a_party(name, folder, names) for name in names]
        for party in parties:
            marked(party, *marks[party.name])
        results = await asyncio.gather(*(party.start(room, look) for party in parties))
        return dict(zip(names, results, strict=True))

    return run(scene())


def test_a_step_that_was_saved_in_two_attempts_is_not_a_common_one(tmp_path: Path) -> None:
    """Who died before it had removed its own later checkpoint has another one than the others."""
    steps = where_they_go_on(
        tmp_path, alice=[(4, "a"), (5, "a")], bob=[(4, "a"), (5, "b")], carol=[(4, "a")]
    )
    assert set(steps.values()) == {(4, 10)}


def test_first_checkpoints_of_two_attempts_mean_the_start(tmp_path: Path) -> None:
    steps = where_they_go_on(tmp_path, alice=[(1, "a")], bob=[(1, "b")], carol=[])
    assert set(steps.values()) == {(0, 0)}


def saved(folder: Path, step: int, **session: Any) -> CheckpointFolder:
    checkpoints = CheckpointFolder(folder)
    checkpoints.save(Checkpoint(step, {"name": "ab" * 32, **session}, {"x": np.arange(step)}))
    return checkpoints


def test_two_checkpoints_are_kept_and_nobody_else_can_read_them(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        checkpoints = saved(tmp_path / "c", step)
    assert sorted(checkpoints.read()) == [3, 4]
    assert checkpoints.read()[4].state["x"].tolist() == [0, 1, 2, 3]
    modes = {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "c").iterdir()}
    assert modes == {0o600}
    checkpoints.clear()
    assert not (tmp_path / "c").exists()


def test_a_damaged_checkpoint_counts_as_absent(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    checkpoints = saved(tmp_path, 2)
    file = tmp_path / "checkpoint-2"
    raw = bytearray(file.read_bytes())
    raw[-3] ^= 1
    file.write_bytes(raw)
    assert sorted(checkpoints.read()) == [1]
    file.write_bytes(raw[: len(MARK) + 10])
    events: list[Event] = []
    assert sorted(checkpoints.read(events.append)) == [1]
    assert [event.text for event in events if isinstance(event, Warned)] == [
        f"{file} is damaged, so it is left out"
    ]


def test_a_checkpoint_of_another_version_is_refused_and_kept(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    file = tmp_path / "checkpoint-1"
    raw = file.read_bytes().replace(MARK, b"tacit checkpoint 2\n")
    file.write_bytes(raw)
    with pytest.raises(DataError, match="is a checkpoint of another version of tacit"):
        checkpoints.read()
    assert file.read_bytes() == raw


def test_a_pipe_or_a_device_is_no_checkpoint(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    os.mkfifo(tmp_path / "checkpoint-9")
    with pytest.raises(DataError, match="checkpoint-9: it is not a regular file"):
        checkpoints.read()
    (tmp_path / "checkpoint-9").unlink()
    (tmp_path / "checkpoint-9").symlink_to("/dev/zero")
    with pytest.raises(DataError, match="checkpoint-9: it is not a regular file"):
        checkpoints.read()


def test_files_with_other_names_are_no_checkpoints(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 7)
    for name in ("checkpoint-007", "checkpoint-0", "checkpoint-\u0667", "checkpoint-x"):
        (tmp_path / name).write_bytes(b"mine")
    assert sorted(checkpoints.read()) == [7]
    checkpoints.clear()
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("names", [{"name": "zz"}, {"attempt": 7}, {"attempt": "ab"}])
def test_a_checkpoint_whose_session_has_no_proper_name_is_refused(
    names: dict[str, Any], tmp_path: Path
) -> None:
    for name in THREE:
        party = a_party(name, tmp_path)
        marked(party, (1, "a"))
        (stored,) = party.checkpoints.read().values()
        session = {**stored.session, **names}
        party.checkpoints.save(Checkpoint(1, session, stored.state))
    with pytest.raises(DataError, match="are of another session"):
        resumed(tmp_path)


def test_a_secret_is_refused_by_a_checkpoint(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    with pytest.raises(DataError, match=r"no bytes, since .* got key of type bytes") as caught:
        checkpoints.save(Checkpoint(2, {}, {"key": b"a secret"}))
    assert "a secret" not in str(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint-1"]


def interrupted(folder: Path, victim: str, at: int) -> None:
    """All are stopped when the victim has got so far."""

    async def scene() -> None:
        room = MeetingRoom()
        parties = [a_party(name, folder) for name in THREE]
        stuck = asyncio.Event()

        def stop_at(name: str, step: int) -> bool:
            if name == victim and step == at:
                stuck.set()
                return True
            return False

        tasks = [party.start(room, walk(stop_at)) for party in parties]
        await stuck.wait()
        for task in tasks:
            await stopped(task)

    run(scene())


def resumed(folder: Path, protocol: Protocol | None = None) -> list[Any]:
    async def scene() -> list[Any]:
        room = MeetingRoom()
        parties = [a_party(name, folder) for name in THREE]
        for party in parties:
            party.protocol = protocol or party.protocol
        tasks = [party.start(room, walk()) for party in parties]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                await stopped(task)

    return run(scene())


def test_all_may_stop_and_go_on_later(tmp_path: Path) -> None:
    truth = undisturbed(tmp_path / "truth")
    interrupted(tmp_path, "bob", 5)
    assert {n: r for n, (r, _) in zip(THREE, resumed(tmp_path), strict=True)} == truth


def test_a_party_whose_checkpoints_are_gone_is_told_and_the_others_keep_theirs(
    tmp_path: Path,
) -> None:
    interrupted(tmp_path, "bob", 5)
    lost = a_party("bob", tmp_path).checkpoints
    lost.clear()
    with pytest.raises(ChannelError, match=r"no checkpoint that all have: .*bob has none"):
        resumed(tmp_path)
    assert a_party("alice", tmp_path).steps()


def test_checkpoints_of_other_terms_are_refused_and_kept(tmp_path: Path) -> None:
    interrupted(tmp_path, "bob", 5)
    with pytest.raises(DataError, match="are of another session, with other terms or data"):
        resumed(tmp_path, Protocol({"steps": STEPS, "more": 1}))
    with pytest.raises(DataError, match="are of another session, with other terms or data"):
        resumed(tmp_path, Protocol({"steps": STEPS}, {"rows": 1}))
    assert a_party("alice", tmp_path).steps()


def test_a_checkpoint_while_messages_are_under_way_is_refused(tmp_path: Path) -> None:
    async def hasty(session: Session) -> None:
        await session.send_all("n", {"x": 1})
        await session.checkpoint({"x": 1})
        await session.receive_all("n")
        await session.checkpoint({"x": 2})

    async def scene() -> None:
        room = MeetingRoom()
        parties = [a_party(name, tmp_path, THREE[:2]) for name in THREE[:2]]
        tasks = [party.start(room, hasty) for party in parties]
        with pytest.raises(ChannelError, match="messages were under way"):
            await asyncio.gather(*tasks)
        for task in tasks:
            await stopped(task)

    run(scene())


def test_starts_between_checkpoints_are_counted_and_those_before_forgotten() -> None:
    async def scene() -> None:
        room = MeetingRoom()
        endpoint = Endpoint("alice", ["bob"], room.carrier("alice"), purpose="x")
        endpoint._restarts = 9
        endpoint.note_step(3)
        assert endpoint._restarts == 0
        endpoint._restarts = 9
        for step in (1, 2, 3):  # no further than before
            endpoint.note_step(step)
        assert endpoint._restarts == 9

    run(scene())


def test_who_goes_back_to_an_old_checkpoint_again_and_again_is_stopped(tmp_path: Path) -> None:
    """Otherwise a peer could have a step repeated as often as it likes."""
    has_asked = asyncio.Event()
    answered = []

    async def answer(session: Session) -> None:
        while session.step < 3:
            await session.receive("bob", "question")
            answered.append(session.step)
            await session.checkpoint({"n": session.step})

    async def ask(session: Session) -> None:
        while session.step < 2:
            await session.send("alice", "question", {})
            await session.checkpoint({"n": session.step})
        await session.settle()
        has_asked.set()
        await asyncio.get_running_loop().create_future()

    async def scene() -> None:
        room = MeetingRoom()
        answering = a_party("alice", tmp_path, THREE[:2]).start(room, answer)
        while not answering.done():
            bob = a_party("bob", tmp_path, THREE[:2])
            asking = bob.start(room, ask)
            waiting = asyncio.create_task(has_asked.wait())
            await asyncio.wait({waiting, answering}, return_when=asyncio.FIRST_COMPLETED)
            await stopped(waiting)
            has_asked.clear()
            await kill(bob, asking)
            (tmp_path / "bob" / "checkpoint-2").unlink(missing_ok=True)
            assert len(answered) < 5 * endpoints.RESTARTS
        with pytest.raises(
            ChannelError, match="have started again more than 10 times, bob the last"
        ):
            await answering

    run(scene())
    assert answered.count(1) == 1 + endpoints.RESTARTS


def test_what_a_death_left_half_written_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    checkpoints = CheckpointFolder(folder)
    checkpoints.save(Checkpoint(1, {}, {"x": 1}))
    (folder / ".checkpoint-2.ab_cd123").write_bytes(b"tacit")
    checkpoints.drop_after(1)
    assert [path.name for path in folder.iterdir()] == ["checkpoint-1"]
    (folder / ".checkpoint-3.ab_cd123").write_bytes(b"tacit")
    checkpoints.clear()
    assert not folder.exists()
