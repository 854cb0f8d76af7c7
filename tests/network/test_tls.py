"""Over real sockets and real certificates: who belongs to the session gets through, and everyone else hears why not."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from consortia import Identity, client_context, folder, identity, server_context
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from loops import run
from meetings import QUICK, Links, Party, Proxy, anonymous, dialler, exchange, hurry, listener

from tacit.channel import tls
from tacit.channel.consortium import Address
from tacit.channel.endpoint import Timing
from tacit.channel.frames import HEADER, MAGIC, VERSION, ChannelError, Frame, Kind

pytestmark = pytest.mark.usefixtures("_in_a_hurry")


@pytest.fixture
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@asynccontextmanager
async def waiting_alice(timing: Timing = QUICK) -> AsyncIterator[tuple[Party, Address]]:
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
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def failure(work: Awaitable[Any]) -> str:
    with pytest.raises(ChannelError) as caught:
        await work
    assert "\n" not in str(caught.value)
    return anonymous(str(caught.value))


def test_both_sides_have_checked_a_certificate_under_tls_1_3() -> None:
    async def show(links: Links) -> tuple[str | None, Any]:
        (link,) = links.values()
        await link.send("x", b"")
        await link.receive("x")
        assert link.connection is not None
        secured = link.connection.writer.engine  # type: ignore[attr-defined]
        assert secured.context.verify_mode is ssl.CERT_REQUIRED
        return secured.version(), secured.getpeercert()["subjectAltName"]

    async def scene() -> None:
        alice = listener("alice", "bob")
        running = asyncio.create_task(alice.endpoint.run(show))
        bob = dialler("bob", {"alice": await alice.address()})
        assert bob.network.contexts[0].check_hostname
        assert await bob.endpoint.run(show) == ("TLSv1.3", (("DNS", "alice"),))
        assert await running == ("TLSv1.3", (("DNS", "bob"),))

    run(scene())


def test_three_parties_meet() -> None:
    async def program(links: Links) -> list[bytes]:
        for link in links.values():
            await link.send("x", link.me.encode())
        return [await link.receive("x") for link in links.values()]

    async def scene() -> None:
        alice, bob = listener("alice", "bob", "carol"), listener("bob", "alice", "carol")
        tasks = [asyncio.create_task(alice.endpoint.run(program))]
        bob.network.connect["alice"] = await alice.address()
        tasks.append(asyncio.create_task(bob.endpoint.run(program)))
        carol = dialler("carol", {"alice": await alice.address(), "bob": await bob.address()})
        assert await carol.endpoint.run(program) == [b"alice", b"bob"]
        assert await asyncio.gather(*tasks) == [[b"bob", b"carol"], [b"alice", b"carol"]]

    run(scene())


# a dialler that is wrong here


def only_tls_1_2(context: ssl.SSLContext) -> None:
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2


OTHER = "showed a certificate of another authority than our ca.pem"
SESSION = "is not part of this session, which is between alice, bob"
DIALLERS = {
    "no certificate": (
        ("bob", None, lambda network: network.contexts.__setitem__(0, client_context(None))),
        "refused HERE: it showed no certificate",
        "alice at HERE refused us, since we showed no certificate",
    ),
    "another authority": (
        ("mallory", identity("mallory", "other"), None),
        f"refused HERE: it {OTHER}",
        "alice at HERE refused our certificate, which is of another authority than its own; compare ca.pem",
    ),
    "another authority's bob": (
        ("bob", identity("bob", "other"), None),
        f"refused HERE: it {OTHER}",
        "alice at HERE refused our certificate, which is of another authority than its own; compare ca.pem",
    ),
    "expired": (
        ("bob", identity("bob", "expired"), None),
        "refused HERE: it showed a certificate that has expired",
        "alice at HERE refused our certificate, which has expired; renew it with: tacit cert issue",
    ),
    "not valid yet": (
        ("bob", identity("bob", "early"), None),
        "refused HERE: it showed a certificate that is not valid yet (does a clock go wrong?)",
        "alice at HERE refused our certificate",
    ),
    "not of this session": (
        ("carol", None, None),
        f"refused carol at HERE: it {SESSION}",
        f"alice at HERE refused us: {SESSION}",
    ),
    "carol says that she is bob": (
        ("bob", identity("carol"), None),
        "refused carol at HERE: it says that it is 'bob', and its certificate says carol",
        "alice at HERE refused us: says that it is 'bob', and its certificate says carol",
    ),
    "TLS 1.2": (
        (
            "bob",
            None,
            lambda network: network.contexts.__setitem__(
                0, client_context(identity("bob"), only_tls_1_2)
            ),
        ),
        "refused HERE: it speaks an older TLS than 1.3",
        "alice at HERE speaks an older TLS than 1.3",
    ),
}


@pytest.mark.parametrize("case", DIALLERS)
def test_a_dialler_without_a_right_to_it_is_refused_and_both_hear_why(case: str) -> None:
    (me, shown, change), seen, heard = DIALLERS[case]

    async def scene() -> None:
        async with waiting_alice() as (alice, address):
            bad = dialler(me, {"alice": address}, shown=shown)
            if change is not None:
                change(bad.network)
            assert await failure(bad.endpoint.run(exchange())) == heard
        assert alice.warnings == [seen]

    run(scene())


def test_a_dialler_that_meets_another_party_than_it_wanted_says_so() -> None:
    async def scene() -> None:
        async with waiting_alice() as (alice, address):
            lost = dialler("bob", {"carol": address})
            heard = await failure(lost.endpoint.run(exchange()))
            assert (
                heard
                == "carol at HERE is another party than carol, by its certificate; check the address"
            )
        assert alice.warnings == ["refused HERE: it refused our certificate"]

    run(scene())


def with_names(*names: str) -> Identity:
    """A certificate of the right authority which holds these names, as no `tacit cert issue` makes it."""
    place, good = folder() / f"names-{len(names)}.pem", folder() / "good"
    found = x509.load_pem_x509_certificate((good / "bob.pem").read_bytes())
    signer = serialization.load_pem_private_key((good / "ca.key").read_bytes(), None)
    builder = x509.CertificateBuilder(
        found.issuer, found.subject, found.public_key(), x509.random_serial_number(),
        found.not_valid_before_utc, found.not_valid_after_utc,
    )  # fmt: skip
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([*map(x509.DNSName, names)]), critical=False
        )
    place.write_bytes(
        builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )  # type: ignore[arg-type]
    return Identity(good / "ca.pem", place, good / "bob.key")


@pytest.mark.parametrize("names", [(), ("bob", "carol")])
def test_a_certificate_has_to_hold_one_name(names: tuple[str, ...]) -> None:
    async def scene() -> None:
        async with waiting_alice() as (alice, address):
            bad = dialler("bob", {"alice": address}, shown=with_names(*names))
            assert (
                await failure(bad.endpoint.run(exchange()))
                == f"alice at HERE refused us: {tls.NAMELESS}"
            )
        assert alice.warnings == [f"refused HERE: it {tls.NAMELESS}"]

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
    monkeypatch.setattr(tls, "HANDSHAKE", 0.2)

    async def scene() -> None:
        async with waiting_alice(Timing(beat=0.05, away=20, greeting=0.2)) as (alice, address):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            assert await reader.read() == b""
            writer.close()
            monkeypatch.setattr(tls, "HANDSHAKE", 10.0)
            context = client_context(identity("bob"))
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, server_hostname="alice"
            )
            assert await reader.read() == Frame(Kind.BEAT).encode()  # alice's, and nothing more
            writer.transport.abort()
        assert alice.warnings == [
            "refused HERE: it connected and did not finish a TLS handshake",
            "bob at HERE connected and did not say who it is",
        ]

    run(scene())


def test_many_who_say_nothing_do_not_keep_a_peer_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE", 0.5)

    async def scene() -> None:
        async with waiting_alice() as (_, address):
            silent = [
                await asyncio.open_connection(address.host, address.port)
                for _ in range(2 * tls.PENDING)
            ]
        for _, writer in silent:
            writer.close()

    run(scene())


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_another_version_of_the_frames_is_told_to_both(version: int) -> None:
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
            why = f"speaks version {version} of the channel and this side 1; install the same tacit on both"
            assert (
                answer
                == Frame(Kind.BEAT).encode() + Frame(Kind.REFUSED, data=why.encode()).encode()
            )
            writer.transport.abort()
        assert alice.warnings == [f"refused bob at HERE: it {why}"]

    run(scene())


# a listener that is wrong here


@asynccontextmanager
async def impostor(
    context: ssl.SSLContext | None, say: bytes | None, heard: list[bytes] | None = None
) -> AsyncIterator[Address]:
    """Listens where alice should be; says this, or nothing, and waits."""
    writers, tasks = [], set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        tasks.add(asyncio.current_task())
        if say is not None:
            writer.write(say)
        with suppress(OSError):
            while data := await reader.read(1 << 12):
                if heard is not None:
                    heard.append(data)
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


LISTENERS: dict[str, tuple[Callable[[], Identity], Any, str, str]] = {
    "another authority": (
        lambda: identity("alice", "other"), None,
        "refused HERE: it refused our certificate, which is of another authority than its own; compare ca.pem",
        f"alice at HERE {OTHER}",
    ),
    "expired": (
        lambda: identity("alice", "expired"), None,
        "refused HERE: it refused our certificate, which has expired; renew it with: tacit cert issue",
        "alice at HERE showed a certificate that has expired",
    ),
    "not valid yet": (
        lambda: identity("alice", "early"), None,
        "refused HERE: it refused our certificate",
        "alice at HERE showed a certificate that is not valid yet (does a clock go wrong?)",
    ),
    "carol's certificate": (
        lambda: identity("carol"), None,
        "refused HERE: it refused our certificate",
        "alice at HERE is another party than alice, by its certificate; check the address",
    ),
    "TLS 1.2": (
        lambda: identity("alice"), lambda network: only_tls_1_2(network.contexts[1]),
        "refused HERE: it speaks an older TLS than 1.3",
        "alice at HERE speaks an older TLS than 1.3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LISTENERS)
def test_a_listener_that_is_not_who_was_wanted_is_refused_and_both_hear_why(case: str) -> None:
    shown, change, seen, heard = LISTENERS[case]

    async def scene() -> None:
        bad = listener("alice", "bob", shown=shown())
        if change is not None:
            change(bad.network)
        running = asyncio.create_task(bad.endpoint.run(exchange()))
        address = await bad.address()
        assert await failure(dialler("bob", {"alice": address}).endpoint.run(exchange())) == heard
        await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert bad.warnings == [seen]
        async with waiting_alice():  # and bob still gets through to her
            pass

    run(scene())


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"220 mail.example ESMTP\r\n"]
)
def test_a_listener_that_does_not_speak_tls_is_refused(said: bytes) -> None:
    async def scene() -> None:
        async with impostor(None, said) as address:
            heard = await failure(dialler("bob", {"alice": address}).endpoint.run(exchange()))
            assert heard == "alice at HERE does not speak TLS"

    run(scene())


def test_a_listener_with_another_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []

    async def scene() -> None:
        newer = HEADER.pack(MAGIC, 9, Kind.BEAT, 0, 0, 0)
        async with impostor(server_context(identity("alice")), newer, heard) as address:
            said = await failure(dialler("bob", {"alice": address}).endpoint.run(exchange()))
            assert (
                said
                == "alice at HERE speaks version 9 of the channel and this side 1; install the same tacit on both"
            )

    run(scene())
    assert b"".join(heard) == Frame(Kind.REFUSED, data=b"another version").encode()


@pytest.mark.parametrize("secured", [False, True])
def test_a_listener_that_says_nothing_is_tried_again(
    secured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE", 0.2)

    async def scene() -> None:
        timing = Timing(beat=0.05, away=0.6, greeting=0.2)
        async with impostor(
            server_context(identity("alice")) if secured else None, None
        ) as address:
            bob = dialler("bob", {"alice": address}, timing=timing)
            heard = await failure(bob.endpoint.run(exchange()))
            assert (
                heard
                == "alice could not be reached at HERE within 0.6 s (no answer); start all sides again"
            )

    run(scene())


def test_a_conversation_that_ends_in_the_middle_of_a_greeting_leaves_no_socket() -> None:
    async def scene() -> None:
        async with impostor(server_context(identity("alice")), None) as address:
            bob = dialler("bob", {"alice": address})
            running = asyncio.create_task(bob.endpoint.run(exchange()))
            await asyncio.sleep(0.2)  # greeting, by now
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run(scene())


def test_an_address_that_is_taken_says_so() -> None:
    async def scene() -> None:
        async with waiting_alice() as (_, address):
            second = listener("alice", "bob", at=address)
            heard = await failure(second.endpoint.run(exchange()))
            assert (
                heard
                == "cannot listen at HERE: Address already in use; does it run already? else name another with --listen"
            )

    run(scene())


# lines that break


@pytest.mark.parametrize("seed", range(3))
def test_a_conversation_survives_a_line_that_breaks(seed: int) -> None:
    chance = random.Random(seed)

    async def scene() -> None:
        alice = listener("alice", "bob")
        program = exchange(400, 2000)
        running = [asyncio.create_task(alice.endpoint.run(program))]
        async with Proxy(await alice.address()) as proxy:
            bob = dialler("bob", {"alice": proxy.address})
            running.append(asyncio.create_task(bob.endpoint.run(program)))
            for _ in range(6):
                await asyncio.sleep(0.002 + chance.random() * 0.04)
                proxy.cut()
            assert await asyncio.gather(*running) == [True, True]
            assert proxy.count > 1
        assert alice.endpoint.epoch == bob.endpoint.epoch == 0

    run(scene())


def test_a_line_that_falls_silent_is_noticed_and_made_again() -> None:
    timing = Timing(beat=0.05, silence=0.4, away=20, greeting=1)

    async def scene() -> None:
        alice = listener("alice", "bob", timing=timing)
        program = exchange(400, 20_000)
        running = [asyncio.create_task(alice.endpoint.run(program))]
        async with Proxy(await alice.address()) as proxy:
            bob = dialler("bob", {"alice": proxy.address}, timing=timing)
            running.append(asyncio.create_task(bob.endpoint.run(program)))
            while proxy.count == 0 or bob.endpoint.links["alice"].connection is None:
                await asyncio.sleep(0.005)
            proxy.silent = True
            while bob.endpoint.links["alice"].connection is not None:
                await asyncio.sleep(0.01)
            proxy.silent = False
            assert await asyncio.gather(*running) == [True, True]
            assert proxy.count > 1
        why = "(it has been silent for 0.4 s); waiting up to 20 s for it to come back"
        assert why in str(
            bob.warnings + alice.warnings
        )  # who notices first hangs up, and the other sees that

    run(scene())
