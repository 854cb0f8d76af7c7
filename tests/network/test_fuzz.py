"""More than 10,000 malformed frames.

Only a ChannelError or a frame comes out, and honest parties still finish.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from consortia import client_context, identity
from loops import run, stopped, until
from meetings import Links, Party, dialler, exchange, hurry, listener

from tacit.channel.consortium import Address
from tacit.channel.frames import HEADER, LARGEST, MAGIC, VERSION, ChannelError, Frame, Header, Kind
from tacit.channel.greeting import Hello
from tacit.channel.link import WINDOW, Link
from tacit.channel.messages import decode, encode
from tacit.channel.statements import read_statement

FUZZ = int(os.environ.get("TACIT_FUZZ", "0"))  # files; there are ten times as many frames
DIRECT = 10 * FUZZ or 8000  # malformed frames that are parsed without a connection
CONNECTIONS = 50
ENDPOINTS = 20
PER_CONNECTION = 20  # malformed frames
AT_ONCE = 5  # connections
ROUNDS = 3
SETTLING = 30.0  # seconds after which what is still there counts as left over
HELLO = {"sender": "bob", "receiver": "alice", "process": "fuzz", "epoch": 0, "purpose": "test"}
Chance = random.Random


def valid(chance: Chance) -> bytes:
    kind = chance.choice(list(Kind))
    if kind is Kind.HELLO:
        data = json.dumps(HELLO).encode()
    else:
        data = chance.randbytes(chance.randrange(60))
    name = chance.choice(["", "x", "terms", "n" * 64])
    number = chance.choice([0, 1, 7])
    return Frame(kind, name, number, data).encode()


def header(chance: Chance, **wrong: int) -> bytes:
    fields = {
        "version": VERSION,
        "kind": chance.randrange(1, 7),
        "name": 0,
        "number": 0,
        "length": 0,
    }
    fields |= wrong
    return HEADER.pack(MAGIC, *fields.values())


def random_bytes(chance: Chance) -> bytes:
    return chance.randbytes(chance.randrange(1, 200))


def cut(chance: Chance) -> bytes:
    raw = valid(chance)
    return raw[: chance.randrange(len(raw))]


def changed(chance: Chance) -> bytes:
    raw = bytearray(valid(chance))
    for _ in range(chance.randrange(1, 5)):
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    return bytes(raw)


def huge(chance: Chance) -> bytes:
    length = chance.choice([LARGEST + 1, 2**31, 2**32 - 1, chance.randrange(LARGEST, 2**32)])
    name = chance.choice([0, 64, 65, 65535])
    return header(chance, length=length, name=name) + chance.randbytes(30)


def unknown(chance: Chance) -> bytes:
    kind = chance.choice([0, 7, 8, 127, 255])
    version = chance.choice([VERSION, VERSION, 0, 1, 255])
    return header(chance, kind=kind, version=version)


def out_of_order(chance: Chance) -> bytes:
    kind = chance.choice([Kind.DATA, Kind.TAKEN])
    number = chance.choice([1, 2, WINDOW + 1, 2**32, 2**63, 2**64 - 1])
    return Frame(kind, chance.choice("xyz"), number, b"late").encode()


def not_ascii(chance: Chance) -> bytes:
    name = "".join(chance.choices("é漢\u202e\0", k=chance.randrange(1, 15))).encode()
    return header(chance, kind=chance.choice([2, 3]), name=len(name)) + name


def wrong_moment(chance: Chance) -> bytes:
    kind = chance.choice([Kind.REFUSED, Kind.TAKEN, Kind.BYE, Kind.HELLO, Kind.BEAT, Kind.DATA])
    name = chance.choice(["", "x", f"n{chance.randrange(200)}"])
    return Frame(kind, name, 0, chance.randbytes(40)).encode()


ODD = [
    None,
    True,
    -1,
    2**32,
    1e300,
    "",
    "x" * 3000,
    [],
    {},
    [[[]]],
    "\ud800",
    "\x1b[2J\n",
    float("nan"),
]


def wrong_hello(chance: Chance) -> bytes:
    hello: dict[str, object] = dict(HELLO)
    for _ in range(chance.randrange(1, 3)):
        hello[chance.choice([*HELLO, "more"])] = chance.choice(ODD)
    spelt = json.dumps(hello).encode()
    binary = b"\xff\xfe" + chance.randbytes(30)
    raw = chance.choice([spelt, b"[" * 4000, b'{"a":' * 700, binary])
    return header(chance, kind=1, length=len(raw)) + raw


SORTS: list[Callable[[Chance], bytes]] = [
    random_bytes,
    cut,
    changed,
    huge,
    unknown,
    out_of_order,
    not_ascii,
    wrong_moment,
    wrong_hello,
]


def malformed(chance: Chance, count: int = 1) -> bytes:
    return b"".join(chance.choice(SORTS)(chance) for _ in range(count))


def understand(raw: bytes, link: Link) -> None:
    """As a connection, a greeting and a link do.

    A frame that is not whole yet is waited for, so it is no case here.
    """
    if len(raw) < HEADER.size:
        return
    head = Header.parse(raw[: HEADER.size])
    begin = HEADER.size + head.name_length
    frame = head.frame(raw[HEADER.size : begin], raw[begin : begin + head.length])
    assert isinstance(frame, Frame)
    with suppress(ChannelError):
        Hello.parse(frame)
    with suppress(ChannelError):
        link._take(frame)


def test_only_a_channel_error_or_a_frame_comes_out() -> None:
    chance = Chance(1)
    link = Link("alice", "bob", 1.0)
    refusals: list[str] = []
    for number in range(DIRECT):
        if number % 50 == 0:
            link = Link("alice", "bob", 1.0)
        try:
            understand(malformed(chance), link)
        except ChannelError as error:
            refusals.append(str(error))
    assert len(refusals) > DIRECT // 3
    assert all(text.isprintable() for text in refusals)
    assert len(link._outgoing) <= 64


def damaged(chance: Chance, raw: bytes) -> bytes:
    """Cut, changed or longer."""
    changed_raw = bytearray(raw)
    for _ in range(chance.randrange(4)):
        changed_raw[chance.randrange(len(changed_raw))] = chance.randrange(256)
    end = chance.choice([len(raw), chance.randrange(len(raw)), len(raw)])
    return bytes(changed_raw[:end]) + chance.randbytes(chance.choice([0, 0, 5]))


def test_messages_and_statements_that_are_damaged_are_refused_or_read() -> None:
    chance = Chance(4)
    table = pd.DataFrame({"n": [1, 2], "name": ["ana", None]})
    whole = encode({"x": np.arange(4.0), "t": table, "rate": 0.1})
    terms = {"terms": {"a": 1}, "brings": {}, "nonce": "0" * 64}
    held = {"session": "ab" * 32, "steps": [1, 2]}
    statement = json.dumps({**terms, "held": held}).encode()
    refusals = []
    for _ in range(DIRECT // 10):
        try:
            decode(damaged(chance, whole), largest=1 << 20)
            read_statement("bob", damaged(chance, statement))
        except ChannelError as error:
            refusals.append(str(error))
    assert len(refusals) > DIRECT // 20
    assert not any("\n" in text for text in refusals)


async def attack(address: Address, sender: str, words: bytes) -> None:
    """Says it all over a connection with a valid certificate, and hangs up."""
    context = client_context(identity(sender))
    reader, writer = await asyncio.open_connection(
        address.host, address.port, ssl=context, server_hostname="alice"
    )
    with suppress(OSError):  # alice may hang up first
        await reader.readexactly(HEADER.size)  # her first sign of life
        writer.write(words)
        writer.close()  # once all of it is sent
        await writer.wait_closed()


def open_files() -> int:
    files = Path("/proc/self/fd")
    return len(os.listdir(files)) if files.exists() else 0


@dataclass
class Ledger:
    """Memory after each round but the first, which must not grow; tasks and files, which must go.

    It is made before the first round.
    """

    tasks: int = field(default_factory=lambda: len(asyncio.all_tasks()))
    files: int = field(default_factory=open_files)
    memory: list[int] = field(default_factory=list)

    async def note(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLING):
                await until(self._is_settled)
        assert self._is_settled(), f"left over: {asyncio.all_tasks()}, {open_files()} open files"
        gc.collect()
        self.memory.append(tracemalloc.get_traced_memory()[0])

    def _is_settled(self) -> bool:
        return len(asyncio.all_tasks()) <= self.tasks and open_files() <= self.files

    def check(self) -> None:
        assert self.memory[-1] - self.memory[1] < 300_000, f"bytes in use: {self.memory}"


@pytest.fixture(autouse=True)
def _traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    hurry(monkeypatch)
    tracemalloc.start()
    yield
    tracemalloc.stop()


async def connect_strangers(address: Address, chance: Chance) -> None:
    """Four of carol's, and one of bob's whose first words are wrong."""
    senders = ["carol"] * (AT_ONCE - 1) + ["bob"]
    words = [malformed(chance, PER_CONNECTION) for _ in senders]
    words[-1] = random_bytes(chance).ljust(HEADER.size) + words[-1]
    attacks = [attack(address, *pair) for pair in zip(senders, words, strict=True)]
    await asyncio.gather(*attacks)


def test_an_honest_conversation_completes_after_strangers_have_said_thousands_of_wrong_things() -> (
    None
):
    """Carol belongs to the consortium, but not to the session; bob's first words are wrong."""

    async def scene() -> None:
        alice = listener("alice", "bob")
        running = asyncio.create_task(alice.endpoint.run(exchange(50, 1000)))
        address = await alice.address()
        await until(lambda: alice.endpoint.links["bob"]._incoming)  # all her tasks have begun
        ledger = Ledger()
        for _ in range(ROUNDS):
            chance = Chance(2)
            for _ in range(CONNECTIONS // AT_ONCE):
                await connect_strangers(address, chance)
                assert not running.done(), running
            await ledger.note()
        complaints = alice.endpoint.conversation.complaints
        assert complaints == ROUNDS * CONNECTIONS  # each of them got as far as alice
        bob = dialler("bob", {"alice": address})
        assert await bob.endpoint.run(exchange(50, 1000))
        assert await running
        assert all(text.isprintable() for text in alice.warnings)
        ledger.check()

    run(scene())


async def wait_for_ever(_links: Links) -> None:
    await asyncio.get_running_loop().create_future()


def has_lost_bob(alice: Party) -> bool:
    return any(text.startswith("lost the connection to bob") for text in alice.warnings)


async def conversation_with_a_madman(chance: Chance) -> bool:
    """Whether it ended for alice; else all of it could be taken as it was, and bob is gone."""
    alice = listener("alice", "bob")
    running = asyncio.create_task(alice.endpoint.run(wait_for_ever))
    hello = Hello.parse(Frame(Kind.HELLO, data=json.dumps(HELLO).encode())).frame()
    words = hello.encode() + malformed(chance, PER_CONNECTION)
    await attack(await alice.address(), "bob", words)
    await until(lambda: running.done() or has_lost_bob(alice))
    ending = await stopped(running)
    assert isinstance(ending, ChannelError | asyncio.CancelledError), ending
    return isinstance(ending, ChannelError)


def test_a_peer_that_introduces_itself_well_and_goes_mad_ends_its_own_conversation_only() -> None:
    async def scene() -> None:
        ledger = Ledger()
        ended = 0
        for _ in range(ROUNDS):
            chance = Chance(3)
            for _ in range(ENDPOINTS // AT_ONCE):
                talks = [conversation_with_a_madman(chance) for _ in range(AT_ONCE)]
                ended += sum(await asyncio.gather(*talks))
            await ledger.note()
        assert ended > ENDPOINTS * ROUNDS * 2 / 3
        alice = listener("alice", "bob")
        running = asyncio.create_task(alice.endpoint.run(exchange()))
        bob = dialler("bob", {"alice": await alice.address()})
        assert await bob.endpoint.run(exchange())
        assert await running
        ledger.check()

    run(scene())
