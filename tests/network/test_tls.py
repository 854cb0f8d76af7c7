"""Over real sockets and real certificates.

Whoever belongs to the session gets through, and everyone else hears why not.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from consortia import Identity, client_context, folder, identity, server_context
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from loops import run, stopped, until
from meetings import (
    PATIENT,
    Links,
    Party,
    Proxy,
    anonymous,
    dialler,
    exchange,
    failure,
    gives_up,
    hurry,
    listener,
)

from tacit.channel import lobby, tls
from tacit.channel.connection import Connection
from tacit.channel.consortium import Address
from tacit.channel.frames import HEADER, MAGIC, VERSION, ChannelError, Frame, Kind
from tacit.channel.timing import Timing
from tacit.channel.tls import TlsCarrier
from tacit.channel.tls_reasons import NAMELESS

pytestmark = pytest.mark.usefixtures("_in_a_hurry")


@pytest.fixture
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@asynccontextmanager
async def waiting_alice(timing: Timing = PATIENT) -> AsyncIterator[tuple[Party, Address]]:
    """Alice waits for bob; in the end bob comes and, whatever happened before, both finish."""
    alice = listener("alice", "bob", timing=timing)
    running = asyncio.create_task(alice.endpoint.run(exchange()))
    try:
        address = await alice.address()
        yield alice, address
        assert not running.done()
        bob = dialler("bob", {"alice": address})
        assert await bob.endpoint.run(exchange())
        assert await running
    finally:
        await stopped(running)


def test_both_sides_have_checked_a_certificate_under_tls_1_3() -> None:
    async def show(links: Links) -> tuple[str | None, Any]:
        (link,) = links.values()
        await link.send("x", b"")
        await link.receive("x")
        assert link.connection is not None
        engine = link.connection.writer.engine  # type: ignore[attr-defined]
        assert engine.context.verify_mode is ssl.CERT_REQUIRED
        return engine.version(), engine.getpeercert()["subjectAltName"]

    async def scene() -> None:
        alice = listener("alice", "bob")
        running = asyncio.create_task(alice.endpoint.run(show))
        bob = dialler("bob", {"alice": await alice.address()})
        assert bob.carrier.dialling_context.check_hostname
        assert await bob.endpoint.run(show) == ("TLSv1.3", (("DNS", "alice"),))
        assert await running == ("TLSv1.3", (("DNS", "bob"),))

    run(scene())


def test_three_parties_meet() -> None:
    async def program(links: Links) -> list[bytes]:
        for link in links.values():
            await link.send("x", link.me.encode())
        return [await link.receive("x") for link in links.values()]

    async def scene() -> None:
        alice = listener("alice", "bob", "carol")
        bob = listener("bob", "alice", "carol")
        tasks = [asyncio.create_task(alice.endpoint.run(program))]
        bob.carrier.connect["alice"] = await alice.address()
        tasks.append(asyncio.create_task(bob.endpoint.run(program)))
        carol = dialler("carol", {"alice": await alice.address(), "bob": await bob.address()})
        assert await carol.endpoint.run(program) == [b"alice", b"bob"]
        assert await asyncio.gather(*tasks) == [[b"bob", b"carol"], [b"alice", b"carol"]]

    run(scene())


# a dialler that is wrong here


def only_tls_1_2(context: ssl.SSLContext) -> None:
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2


def unchanged(_carrier: TlsCarrier) -> None:
    pass


def without_certificate(carrier: TlsCarrier) -> None:
    carrier.dialling_context = client_context(None)


def dialling_tls_1_2(carrier: TlsCarrier) -> None:
    carrier.dialling_context = client_context(identity("bob"), only_tls_1_2)


def listening_tls_1_2(carrier: TlsCarrier) -> None:
    only_tls_1_2(carrier.listening_context)


@dataclass
class Wrong:
    """A party that is wrong here, and what both sides hear about it."""

    me: str
    seen: str  # by the side that listens
    heard: str  # by the side that dials
    shown: Identity | None = None
    change: Callable[[TlsCarrier], None] = unchanged
    proven: bool = True  # that it was alice who refused


OTHER = "showed a certificate from another authority than our ca.pem"
COMPARE = "refused our certificate, which is from another authority than its own; compare ca.pem"
RENEW = "refused our certificate, which has expired; renew it with: tacit cert issue"
EARLY = "showed a certificate that is not valid yet (is a clock wrong?)"
SESSION = "is not part of this session, which is between alice, bob"
IMPOSTOR = "says that it is 'bob', and its certificate says carol"
DIALLERS = {
    "no certificate": Wrong(
        "bob",
        "refused HERE: it showed no certificate",
        "alice at HERE refused us, since we showed no certificate",
        change=without_certificate,
    ),
    "another authority": Wrong(
        "mallory",
        f"refused HERE: it {OTHER}",
        f"alice at HERE {COMPARE}",
        identity("mallory", "other"),
    ),
    "another authority's bob": Wrong(
        "bob",
        f"refused HERE: it {OTHER}",
        f"alice at HERE {COMPARE}",
        identity("bob", "other"),
    ),
    "expired": Wrong(
        "bob",
        "refused HERE: it showed a certificate that has expired",
        f"alice at HERE {RENEW}",
        identity("bob", "expired"),
    ),
    "not valid yet": Wrong(
        "bob",
        f"refused HERE: it {EARLY}",
        "alice at HERE refused our certificate",
        identity("bob", "early"),
    ),
    "not of this session": Wrong(
        "carol",
        f"refused carol at HERE: it {SESSION}",
        f"alice at HERE refused us: {SESSION}",
    ),
    "carol says that she is bob": Wrong(
        "bob",
        f"refused carol at HERE: it {IMPOSTOR}",
        f"alice at HERE refused us: {IMPOSTOR}",
        identity("carol"),
    ),
    "TLS 1.2": Wrong(
        "bob",
        "refused HERE: it speaks an older TLS than 1.3",
        "speaks an older TLS than 1.3",
        change=dialling_tls_1_2,
        proven=False,
    ),
}


@pytest.mark.parametrize("case", DIALLERS)
def test_a_dialler_without_a_right_to_it_is_refused_and_both_hear_why(case: str) -> None:
    wrong = DIALLERS[case]

    async def scene() -> None:
        async with waiting_alice() as (alice, address):
            bad = dialler(wrong.me, {"alice": address}, shown=wrong.shown)
            wrong.change(bad.carrier)
            if wrong.proven:
                assert await failure(bad.endpoint.run(exchange())) == wrong.heard
            else:
                await gives_up(bad, wrong.heard)
        assert set(alice.warnings) == {wrong.seen}

    run(scene())


def test_a_dialler_that_meets_another_party_than_it_wanted_says_so() -> None:
    async def scene() -> None:
        async with waiting_alice() as (alice, address):
            lost = dialler("bob", {"carol": address})
            await gives_up(lost, "is not carol, according to its certificate; check the address")
        assert set(alice.warnings) == {"refused HERE: it refused our certificate"}

    run(scene())


def with_names(*names: str) -> Identity:
    """A certificate of the right authority with these names, as no `tacit cert issue` makes it."""
    good = folder() / "good"
    bob = x509.load_pem_x509_certificate((good / "bob.pem").read_bytes())
    signer: Any = serialization.load_pem_private_key((good / "ca.key").read_bytes(), None)
    builder = x509.CertificateBuilder(
        bob.issuer,
        bob.subject,
        bob.public_key(),
        x509.random_serial_number(),
        bob.not_valid_before_utc,
        bob.not_valid_after_utc,
    )
    if names:
        entries = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        builder = builder.add_extension(entries, critical=False)
    certificate = builder.sign(signer, hashes.SHA256())
    file = folder() / f"names-{len(names)}.pem"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Identity(good / "ca.pem", file, good / "bob.key")


@pytest.mark.parametrize("names", [(), ("bob", "carol")])
def test_a_certificate_has_to_hold_one_name(names: tuple[str, ...]) -> None:
    async def scene() -> None:
        async with waiting_alice() as (alice, address):
            bad = dialler("bob", {"alice": address}, shown=with_names(*names))
            heard = await failure(bad.endpoint.run(exchange()))
            assert heard == f"alice at HERE refused us: {NAMELESS}"
        assert alice.warnings == [f"refused HERE: it {NAMELESS}"]

    run(scene())


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: alice\r\n\r\n",
        b"hello?\n" * 3,
        bytes(200),
        b"\x16\x03\x01\xff\xff" + bytes(300),
    ],
)
def test_who_does_not_speak_tls_is_refused(said: bytes) -> None:
    async def scene() -> None:
        async with waiting_alice() as (alice, address):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(said)
            assert b"TACT" not in await reader.read()  # an alert at most, and the end
            writer.close()
            await writer.wait_closed()
        (warning,) = alice.warnings
        assert warning.startswith("refused HERE: it ")
        assert warning.isprintable()

    run(scene())


def test_who_connects_and_says_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timeouts are short for the strangers alone: bob may take as long as he needs."""

    async def scene() -> None:
        async with waiting_alice() as (alice, address):
            monkeypatch.setattr(tls, "HANDSHAKE", 0.1)
            reader, writer = await asyncio.open_connection(address.host, address.port)
            assert await reader.read() == b""
            writer.close()
            monkeypatch.setattr(tls, "HANDSHAKE", 60.0)
            alice.endpoint.timing = replace(PATIENT, greeting=0.1)
            context = client_context(identity("bob"))
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, server_hostname="alice"
            )
            assert await reader.read() == Frame(Kind.BEAT).encode()  # alice's, and nothing more
            writer.transport.abort()
            alice.endpoint.timing = PATIENT
        assert alice.warnings == [
            "refused HERE: it connected and did not finish a TLS handshake",
            "bob at HERE connected and did not say who it is",
        ]

    run(scene())


async def connections(address: Address, count: int, **tls_settings: Any) -> list[Any]:
    """Connections whose other side says nothing more."""
    opened = []
    for _ in range(count):
        opened.append(await asyncio.open_connection(address.host, address.port, **tls_settings))
    return opened


def drop(opened: list[Any]) -> None:
    for _, writer in opened:
        writer.transport.abort()


def test_140_who_say_nothing_do_not_keep_a_peer_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """They could hold every place for ten seconds, and come back; here, for ever."""
    monkeypatch.setattr(tls, "FIRST_RECORD", 600.0)
    monkeypatch.setattr(tls, "HANDSHAKE", 600.0)

    async def scene() -> None:
        async with waiting_alice() as (alice, address):
            silent = await connections(address, 140)
            await asyncio.sleep(0.05)
            assert 0 < len(alice.carrier.lobby.guests) <= lobby.PLACES
        drop(silent)  # when bob has been let in

    run(scene())


def test_a_member_of_another_session_cannot_take_many_places() -> None:
    """Its certificate is right; until its hello is, it has a place in the lobby and no more."""

    async def scene() -> None:
        async with waiting_alice() as (alice, address):
            context = client_context(identity("carol"))
            silent = await connections(address, 40, ssl=context, server_hostname="alice")
            await asyncio.sleep(0.05)
            assert len(alice.carrier.tasks) <= lobby.PLACES_OF_AN_ADDRESS + 1  # and the listener
            drop(silent)

    run(scene())


def test_who_does_not_say_its_first_record_is_dropped_long_before_a_handshake_must_end() -> None:
    async def scene() -> None:
        async with waiting_alice() as (alice, address):
            silent = await connections(address, 2)
            _, half = silent[1]
            half.write(b"\x16\x03\x01\x02\x00\x01")  # of a record
            async with asyncio.timeout(tls.HANDSHAKE / 2):
                for reader, _ in silent:
                    assert await reader.read() == b""
            assert alice.carrier.lobby.guests == []
            drop(silent)

    run(scene())


def test_a_full_lobby_drops_one_that_has_said_nothing() -> None:
    left = []
    room = lobby.Lobby()
    for number in range(lobby.PLACES):
        guest = room.enter(f"10.0.0.{number // 10}", partial(left.append, number))
        guest.has_spoken = number % 8 != 0
    room.enter("10.0.9.9", partial(left.append, "another"))
    assert len(left) == 1
    assert left[0] % 8 == 0


def test_an_address_has_few_places_and_those_of_others_are_safe_from_it() -> None:
    room = lobby.Lobby()
    rightful = room.enter("10.0.9.9", list)
    for number in range(500):
        room.enter("10.0.0.1", list).has_spoken = number % 2 == 0
    places = Counter(guest.address for guest in room.guests)
    assert places == {"10.0.9.9": 1, "10.0.0.1": lobby.PLACES_OF_AN_ADDRESS}
    assert rightful in room.guests


@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.{}"])
def test_who_has_said_something_outlasts_any_number_of_silent_ones(address: str) -> None:
    left = []
    room = lobby.Lobby()
    rightful = room.enter("10.0.0.1", partial(left.append, "rightful"))
    rightful.note_speech()
    for number in range(5000):
        room.enter(address.format(number), list)
    assert left == []


@pytest.mark.parametrize("has_spoken", [False, True])
def test_whoever_comes_may_stay_whatever_stream_follows(has_spoken: bool) -> None:
    """Were it always the oldest, a steady stream would keep out whoever has a longer line."""
    kept = 0
    for _ in range(50):
        room = lobby.Lobby()
        first = room.enter("10.0.0.1", list)
        first.has_spoken = has_spoken
        for number in range(2 * lobby.PLACES):
            room.enter(f"10.0.1.{number}", list).has_spoken = has_spoken
        kept += first in room.guests
    assert 0 < kept < 50  # 18 of them; none, or all, once in 10^9


def test_no_session_ticket_is_issued() -> None:
    async def scene() -> None:
        async with waiting_alice() as (_, address):
            context = client_context(identity("bob"))
            tickets = []
            ((reader, writer),) = await connections(
                address, 1, ssl=context, server_hostname="alice"
            )
            await reader.readexactly(20)  # with the first record a ticket would have come
            engine = writer.get_extra_info("ssl_object")
            tickets.append(engine.session is not None and engine.session.has_ticket)
            assert tickets == [False]
            writer.transport.abort()

    run(scene())


class Nowhere:
    """Takes whatever is written."""

    def write(self, data: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def abort(self) -> None: ...


def test_records_of_two_bytes_cost_two_bytes() -> None:
    """A frame of 4 MB may come in records of two bytes; each cost 62 bytes of memory."""

    async def scene() -> int:
        size = 100_000
        reader = asyncio.StreamReader()
        connection = Connection(reader, Nowhere(), "bob", "here")
        reading = asyncio.create_task(connection.read())
        raw = Frame(Kind.DATA, "x", 0, bytes(size)).encode()
        tracemalloc.start()
        for start in range(0, len(raw) - 2, 2):
            reader.feed_data(raw[start : start + 2])
            await asyncio.sleep(0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        reader.feed_data(raw[-2:])
        assert len((await reading).data) == size
        return peak

    assert run(scene()) < 1 << 20


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_another_version_of_the_frames_is_told_to_both(version: int) -> None:
    why = f"speaks version {version} of the channel and this side 2; install the same tacit on both"

    async def scene() -> None:
        async with waiting_alice() as (alice, address):
            reader, writer = await asyncio.open_connection(
                address.host,
                address.port,
                ssl=client_context(identity("bob")),
                server_hostname="alice",
            )
            writer.write(HEADER.pack(MAGIC, version, Kind.HELLO, 0, 0, 0))
            answer = await reader.readuntil(b"both")
            refusal = Frame(Kind.REFUSED, data=why.encode())
            assert answer == Frame(Kind.BEAT).encode() + refusal.encode()
            writer.transport.abort()
        assert alice.warnings == [f"refused bob at HERE: it {why}"]

    run(scene())


# a listener that is wrong here


@dataclass
class Impostor:
    """Listens where alice should be."""

    address: Address
    connections: int = 0
    heard: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def impostor(
    context: ssl.SSLContext | None, say: bytes | None, *, hang_up: bool = False
) -> AsyncIterator[Impostor]:
    """It says this to whoever dials, or nothing; then it waits, or hangs up after an answer."""
    writers = []
    tasks = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listening.connections += 1
        writers.append(writer)
        tasks.add(asyncio.current_task())
        if say is not None:
            writer.write(say)
        with suppress(OSError):
            while data := await reader.read(1 << 12):
                listening.heard.append(data)
                if hang_up:
                    break
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    listening = Impostor(Address("127.0.0.1", server.sockets[0].getsockname()[1]))
    try:
        yield listening
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


LISTENERS = {
    "another authority": Wrong(
        "alice",
        f"refused HERE: it {COMPARE}",
        OTHER,
        identity("alice", "other"),
    ),
    "expired": Wrong(
        "alice",
        f"refused HERE: it {RENEW}",
        "showed a certificate that has expired",
        identity("alice", "expired"),
    ),
    "not valid yet": Wrong(
        "alice",
        "refused HERE: it refused our certificate",
        EARLY,
        identity("alice", "early"),
    ),
    "carol's certificate": Wrong(
        "alice",
        "refused HERE: it refused our certificate",
        "is not alice, according to its certificate; check the address",
        identity("carol"),
    ),
    "TLS 1.2": Wrong(
        "alice",
        "refused HERE: it speaks an older TLS than 1.3",
        "speaks an older TLS than 1.3",
        change=listening_tls_1_2,
    ),
}


UNFINISHED = "refused HERE: it connected and did not finish a TLS handshake"


@pytest.mark.parametrize("case", LISTENERS)
def test_a_listener_that_is_not_who_was_wanted_is_refused_and_both_hear_why(case: str) -> None:
    wrong = LISTENERS[case]

    async def scene() -> None:
        bad = listener("alice", "bob", shown=wrong.shown)
        wrong.change(bad.carrier)
        running = asyncio.create_task(bad.endpoint.run(exchange()))
        bob = dialler("bob", {"alice": await bad.address()})
        await gives_up(bob, wrong.heard)
        await until(lambda: wrong.seen in bad.warnings)
        await stopped(running)
        assert set(bad.warnings) <= {wrong.seen, UNFINISHED}  # his last try may end with him
        async with waiting_alice():  # and bob still gets through to her
            pass

    run(scene())


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"220 mail.example ESMTP\r\n"]
)
def test_a_listener_that_does_not_speak_tls_is_refused(said: bytes) -> None:
    async def scene() -> None:
        async with impostor(None, said) as listening:
            bob = dialler("bob", {"alice": listening.address})
            await gives_up(bob, "does not speak TLS")

    run(scene())


def test_a_stranger_who_answers_in_the_place_of_the_peer_does_not_end_the_conversation() -> None:
    """A proxy says 502 while a line is made again; then the peer is back."""

    async def scene() -> None:
        alice = listener("alice", "bob")
        waiting = asyncio.create_task(alice.endpoint.run(exchange()))
        async with impostor(None, b"HTTP/1.1 502 Bad Gateway\r\n\r\n") as stranger:
            bob = dialler("bob", {"alice": stranger.address})
            running = asyncio.create_task(bob.endpoint.run(exchange()))
            await until(lambda: stranger.connections > 2)
        bob.carrier.connect["alice"] = await alice.address()
        assert await running
        assert await waiting
        note = "waiting for alice to answer at HERE (does not speak TLS)"
        assert bob.notes.count(note) == 1

    run(scene())


@asynccontextmanager
async def injecting(target: Address, to_dialler: bool) -> AsyncIterator[tuple[Address, list[Any]]]:
    """A middleman who passes all on; what is put into the list comes from him, in plain text."""
    writers: list[Any] = []
    tasks = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        try:
            far_reader, far_writer = await asyncio.open_connection(target.host, target.port)
        except OSError:  # alice has gone by then
            return writer.transport.abort()
        writers.append(writer if to_dialler else far_writer)

        async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await source.read(1 << 14):
                    sink.write(data)
            sink.transport.abort()

        await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))
        return None

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1]), writers
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


def has_heard(party: Party) -> bool:
    """Whether a message of the one peer has come."""
    (link,) = party.endpoint.links.values()
    return any(stream.next for stream in link._incoming.values())


@pytest.mark.parametrize("to_dialler", [True, False])
@pytest.mark.parametrize("said", [b"HTTP/1.1 502 Bad Gateway\r\n\r\n", b"\x15\x03\x03\0\2\2\x30"])
def test_plain_text_in_an_established_line_breaks_the_line_and_not_the_conversation(
    said: bytes, to_dialler: bool
) -> None:
    """A proxy whose other side has gone says 502; the second one is an alert of anybody's."""

    async def scene() -> None:
        alice = listener("alice", "bob")
        together = asyncio.Event()

        async def program(links: Links) -> bytes:
            (link,) = links.values()
            await link.send("x", b"before")
            await link.receive("x")
            await together.wait()
            await link.send("x", b"after")
            return await link.receive("x")

        waiting = asyncio.create_task(alice.endpoint.run(program))
        async with injecting(await alice.address(), to_dialler) as (address, writers):
            bob = dialler("bob", {"alice": address})
            running = asyncio.create_task(bob.endpoint.run(program))
            await until(lambda: has_heard(bob) and has_heard(alice))
            writers[0].write(said)
            await until(lambda: len(writers) > 1)  # the line was made again
            together.set()
            assert await running == await waiting == b"after"

    run(scene(), limit=60)


def test_a_listener_with_another_version_is_told() -> None:
    async def scene() -> None:
        newer = HEADER.pack(MAGIC, 9, Kind.BEAT, 0, 0, 0)
        context = server_context(identity("alice"))
        async with impostor(context, newer, hang_up=True) as listening:
            bob = dialler("bob", {"alice": listening.address})
            heard = await failure(bob.endpoint.run(exchange()))
            why = "speaks version 9 of the channel and this side 2; install the same tacit on both"
            assert heard == f"alice at HERE {why}"
            refusal = Frame(Kind.REFUSED, data=b"another version").encode()
            assert listening.heard == [refusal]

    run(scene())


@pytest.mark.parametrize("secured", [False, True])
def test_a_listener_that_says_nothing_is_tried_again(
    secured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = server_context(identity("alice")) if secured else None
    monkeypatch.setattr(tls, "HANDSHAKE", 60.0 if secured else 0.1)
    timing = replace(PATIENT, greeting=0.1)

    async def scene() -> None:
        async with impostor(context, None) as listening:
            bob = dialler("bob", {"alice": listening.address}, timing=timing)
            running = asyncio.create_task(failure(bob.endpoint.run(exchange())))
            await until(lambda: listening.connections > 1)
            bob.lose_patience(away=0.1)
            why = "within 0.1 s (no answer); start all sides again"
            assert await running == f"alice could not be reached at HERE {why}"

    run(scene())


def test_a_conversation_that_ends_in_the_middle_of_a_greeting_leaves_no_socket() -> None:
    async def scene() -> None:
        async with impostor(server_context(identity("alice")), None) as listening:
            bob = dialler("bob", {"alice": listening.address})
            running = asyncio.create_task(bob.endpoint.run(exchange()))
            await until(lambda: listening.connections)  # bob waits for the first words
            await stopped(running)

    run(scene())


def test_an_address_that_is_taken_says_so() -> None:
    async def scene() -> None:
        async with waiting_alice() as (_, address):
            second = listener("alice", "bob", at=address)
            with pytest.raises(ChannelError) as caught:
                await second.endpoint.run(exchange())
            remedy = "is another process using it? if so, listen at another address"
            why = f"cannot listen at HERE: Address already in use; {remedy}"
            assert anonymous(str(caught.value)).startswith(why)
            assert caught.value.parameters == ("listen",)

    run(scene())


# lines that break


@pytest.mark.parametrize("seed", range(3))
def test_a_conversation_survives_a_line_that_breaks(seed: int) -> None:
    """Six lines break, after so many bytes: in a handshake, in a greeting or between messages.

    All six are used up, since together they carry less than what has to pass.
    """
    count, size = 400, 2000
    chance = random.Random(seed)
    budgets = [chance.randrange(100, 6000) for _ in range(3)]
    budgets += [chance.randrange(6000, count * size // 2) for _ in range(3)]
    chance.shuffle(budgets)
    assert sum(budgets) < 2 * count * size

    async def scene() -> None:
        alice = listener("alice", "bob")
        program = exchange(count, size)
        running = [asyncio.create_task(alice.endpoint.run(program))]
        async with Proxy(await alice.address(), budgets) as proxy:
            bob = dialler("bob", {"alice": proxy.address})
            running.append(asyncio.create_task(bob.endpoint.run(program)))
            assert await asyncio.gather(*running) == [True, True]
            assert proxy.used_up == 6
        assert alice.endpoint.epoch == bob.endpoint.epoch == 0

    run(scene())


def test_a_line_that_falls_silent_is_noticed_and_made_again() -> None:
    timing = replace(PATIENT, silence=0.3)

    async def scene() -> None:
        alice = listener("alice", "bob", timing=timing)
        program = exchange(100, 2000)
        running = [asyncio.create_task(alice.endpoint.run(program))]
        async with Proxy(await alice.address(), [100_000], silent=True) as proxy:
            bob = dialler("bob", {"alice": proxy.address}, timing=timing)
            running.append(asyncio.create_task(bob.endpoint.run(program)))
            assert await asyncio.gather(*running) == [True, True]
            assert proxy.used_up == 1
        why = "(it has been silent for 0.3 s); waiting up to 60 s for it to come back"
        assert why in str(bob.warnings + alice.warnings)  # who notices first hangs up

    run(scene())
