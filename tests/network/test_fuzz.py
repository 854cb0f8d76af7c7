"""More than 10,000 malformed frames: only a ChannelError or a frame comes out, and honest parties still finish."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import ssl
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from consortia import client_context, identity
from loops import run
from meetings import QUICK, Links, dialler, exchange, hurry, listener

from tacit.channel.consortium import Address
from tacit.channel.frames import HEADER, LARGEST, MAGIC, VERSION, ChannelError, Frame, Header, Kind
from tacit.channel.greeting import Hello
from tacit.channel.link import WINDOW, Link

DIRECT, CONNECTIONS, ENDPOINTS, PER_CONNECTION = 8000, 50, 20, 20
HELLO = {"sender": "bob", "receiver": "alice", "process": "fuzz", "epoch": 0, "purpose": "test"}
REFUSED = MAGIC + bytes([VERSION, Kind.REFUSED])
Chance = random.Random


def valid(chance: Chance) -> bytes:
    kind = chance.choice(list(Kind))
    data = (
        json.dumps(HELLO).encode() if kind is Kind.HELLO else chance.randbytes(chance.randrange(60))
    )
    return Frame(
        kind, chance.choice(["", "x", "terms", "n" * 64]), chance.choice([0, 1, 7]), data
    ).encode()


def header(chance: Chance, **wrong: int) -> bytes:
    fields = {
        "version": VERSION,
        "kind": chance.randrange(1, 7),
        "name": 0,
        "number": 0,
        "length": 0,
    } | wrong
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
    return header(chance, length=length, name=chance.choice([0, 64, 65, 65535])) + chance.randbytes(
        30
    )


def unknown(chance: Chance) -> bytes:
    return header(
        chance, kind=chance.choice([0, 7, 8, 127, 255]), version=chance.choice([1, 1, 0, 2, 255])
    )


def out_of_order(chance: Chance) -> bytes:
    number = chance.choice([1, 2, WINDOW + 1, 2**32, 2**63, 2**64 - 1])
    return Frame(
        chance.choice([Kind.DATA, Kind.TAKEN]), chance.choice("xyz"), number, b"late"
    ).encode()


def not_ascii(chance: Chance) -> bytes:
    name = "".join(chance.choices("é漢\u202e\0", k=chance.randrange(1, 15))).encode()
    return header(chance, kind=chance.choice([2, 3]), name=len(name)) + name


def wrong_moment(chance: Chance) -> bytes:
    kind = chance.choice([Kind.REFUSED, Kind.TAKEN, Kind.BYE, Kind.HELLO, Kind.BEAT, Kind.DATA])
    return Frame(
        kind, chance.choice(["", "x", f"n{chance.randrange(200)}"]), 0, chance.randbytes(40)
    ).encode()


def wrong_hello(chance: Chance) -> bytes:
    said: dict[str, object] = dict(HELLO)
    odd = [
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
    for _ in range(chance.randrange(1, 3)):
        said[chance.choice([*HELLO, "more"])] = chance.choice(odd)
    raw = chance.choice(
        [json.dumps(said).encode(), b"[" * 4000, b'{"a":' * 700, b"\xff\xfe" + chance.randbytes(30)]
    )
    return header(chance, kind=1, length=len(raw)) + raw


SORTS: list[Callable[[Chance], bytes]] = [
    random_bytes, cut, changed, huge, unknown, out_of_order, not_ascii, wrong_moment, wrong_hello
]  # fmt: skip


def malformed(chance: Chance) -> bytes:
    return chance.choice(SORTS)(chance)


def understand(raw: bytes, link: Link) -> None:
    """As a connection, a greeting and a link do; a frame that is not whole yet is waited for, so it is no case here."""
    if len(raw) < HEADER.size:
        return
    found = Header.parse(raw[: HEADER.size])
    begin = HEADER.size + found.name_length
    frame = found.frame(raw[HEADER.size : begin], raw[begin : begin + found.length])
    assert isinstance(frame, Frame)
    for take in (Hello.parse, link._take):
        with suppress(ChannelError):
            take(frame)


def test_only_a_channel_error_or_a_frame_comes_out() -> None:
    chance, link = Chance(1), Link("alice", "bob", 1.0)
    refused: list[str] = []
    for number in range(DIRECT):
        if number % 50 == 0:
            link = Link("alice", "bob", 1.0)
        try:
            understand(malformed(chance), link)
        except ChannelError as error:
            refused.append(str(error))
    assert len(refused) > DIRECT // 3
    assert all(text.isprintable() for text in refused)
    assert len(link._outgoing) <= 64


async def attack(address: Address, who: str, sent: bytes) -> None:
    """Says it all over a connection with a valid certificate, listens for a moment, and hangs up."""
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        context: ssl.SSLContext = client_context(identity(who))
        reader, writer = await asyncio.open_connection(
            address.host, address.port, ssl=context, server_hostname="alice"
        )
        try:
            async with asyncio.timeout(0.2):
                await reader.readexactly(HEADER.size)  # alice's first sign of life
                writer.write(sent)
                while data := await reader.read(1 << 16):
                    if REFUSED in data:  # nothing more will come
                        break
        finally:
            writer.transport.abort()


def open_files() -> int:
    place = Path("/proc/self/fd")
    return len(os.listdir(place)) if place.exists() else 0


class Ledger:
    """Memory, tasks and files after each round; later rounds must not need more."""

    def __init__(self) -> None:
        self.rounds: list[tuple[int, int, int]] = []

    async def note(self) -> None:
        await asyncio.sleep(0.3)  # connections that were dropped are gone by then
        gc.collect()
        self.rounds.append(
            (tracemalloc.get_traced_memory()[0], len(asyncio.all_tasks()), open_files())
        )

    def check(self) -> None:
        first, last = self.rounds[0], self.rounds[-1]
        assert last[0] - first[0] < 300_000, f"bytes in use: {self.rounds}"
        assert last[1] <= first[1], f"tasks: {self.rounds}"
        assert last[2] <= first[2], f"open files: {self.rounds}"


@pytest.fixture(autouse=True)
def _traced(monkeypatch: pytest.MonkeyPatch) -> object:
    hurry(monkeypatch)
    tracemalloc.start()
    yield
    tracemalloc.stop()


def test_an_honest_conversation_completes_after_strangers_have_said_thousands_of_wrong_things() -> (
    None
):
    """Carol belongs to the consortium and not to the session; bob's certificate is good, his first words are not."""

    async def scene() -> None:
        alice, ledger = listener("alice", "bob"), Ledger()
        running = asyncio.create_task(alice.endpoint.run(exchange(50, 1000)))
        address = await alice.address()
        for _ in range(3):
            chance = Chance(2)
            for start in range(0, CONNECTIONS, 5):
                said = [
                    b"".join(malformed(chance) for _ in range(PER_CONNECTION)) for _ in range(5)
                ]
                who = ["carol"] * 4 + ["bob"]
                said[4] = random_bytes(chance).ljust(HEADER.size) + said[4]
                await asyncio.gather(
                    *(attack(address, one, words) for one, words in zip(who, said, strict=True))
                )
                assert not running.done(), (start, running)
            await ledger.note()
        assert alice.endpoint._complaints == 3 * CONNECTIONS  # each of them got as far as alice
        bob = dialler("bob", {"alice": address})
        assert await bob.endpoint.run(exchange(50, 1000))
        assert await running
        assert all(text.isprintable() for text in alice.warnings)
        ledger.check()

    run(scene(), limit=60)


async def wait_for_ever(_links: Links) -> None:
    await asyncio.get_running_loop().create_future()


def test_a_peer_that_introduces_itself_well_and_goes_mad_ends_its_own_conversation_only() -> None:
    async def conversation(chance: Chance) -> bool:
        alice = listener("alice", "bob", timing=QUICK)
        running = asyncio.create_task(alice.endpoint.run(wait_for_ever))
        said = Hello.parse(Frame(Kind.HELLO, data=json.dumps(HELLO).encode())).frame().encode()
        said += b"".join(malformed(chance) for _ in range(PER_CONNECTION))
        await attack(await alice.address(), "bob", said)
        await asyncio.sleep(0.02)
        running.cancel()  # where all of it could be taken as it was
        (ending,) = await asyncio.gather(running, return_exceptions=True)
        assert isinstance(ending, ChannelError | asyncio.CancelledError), ending
        return isinstance(ending, ChannelError)

    async def scene() -> None:
        ledger, ended = Ledger(), 0
        for _ in range(3):
            chance = Chance(3)
            for _ in range(0, ENDPOINTS, 5):
                ended += sum(await asyncio.gather(*(conversation(chance) for _ in range(5))))
            await ledger.note()
        assert ended > 2 * ENDPOINTS  # of three times as many
        alice = listener("alice", "bob")
        running = asyncio.create_task(alice.endpoint.run(exchange()))
        assert await dialler("bob", {"alice": await alice.address()}).endpoint.run(exchange())
        assert await running
        ledger.check()

    run(scene(), limit=60)
