"""A side of a connection is one party, with the key that the consortium file has for it."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from pathlib import Path

import pytest
from consortia import folder, identity, with_names
from cryptography import x509
from loops import run, stopped, until
from meetings import PATIENT, Party, anonymous, exchange, gives_up, hurry

from tacit.channel import connection
from tacit.channel.certificates import create_authority, create_request, issue
from tacit.channel.consortium import Address, Consortium, default_member
from tacit.channel.credentials import Credentials, describe
from tacit.channel.endpoint import Endpoint
from tacit.channel.frames import ChannelError
from tacit.channel.meeting import meet
from tacit.channel.peer_identity import identify
from tacit.channel.tls import TlsCarrier
from tacit.channel.tls_reasons import NAMELESS, OTHER_KEY, mismatch
from tacit.channel.x509_files import certificate_der, read_certificate
from tacit.core.errors import DataError
from tacit.core.events import Event, Warned

pytestmark = pytest.mark.usefixtures("_in_a_hurry")
BOB = x509.DNSName("bob")
ALICE = x509.DNSName("alice")
BESIDE = {
    "another party": x509.DNSName("carol"),
    "an address": x509.IPAddress(ip_address("127.0.0.1")),
    "a page": x509.UniformResourceIdentifier("https://alice.example"),
    "a mailbox": x509.RFC822Name("alice@alice.example"),
}


@pytest.fixture
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    monkeypatch.setattr(connection, "REFUSAL", 0.3)


async def a_listener_is_refused(listening: TlsCarrier, dialling: TlsCarrier, why: str) -> list[str]:
    """What alice, who waits for bob, says where he refuses her, and goes on dialling."""
    alice = party("alice", "bob", listening)
    running = asyncio.create_task(alice.endpoint.run(exchange()))
    try:
        dialling.connect["alice"] = await alice.address()
        await gives_up(party("bob", "alice", dialling), why)
        assert not running.done()
        await until(lambda: alice.warnings)
    finally:
        await stopped(running)
    return sorted(set(alice.warnings))


def party(me: str, peer: str, carrier: TlsCarrier) -> Party:
    events: list[Event] = []
    endpoint = Endpoint(me, [peer], carrier, purpose="test", timing=PATIENT, on_event=events.append)
    return Party(carrier, endpoint, events)


async def refusal(listening: TlsCarrier, dialling: TlsCarrier) -> tuple[list[str], str]:
    """What alice, who waits for bob, and bob say where one of them refuses the other."""
    alice = party("alice", "bob", listening)
    running = asyncio.create_task(alice.endpoint.run(exchange()))
    try:
        dialling.connect["alice"] = await alice.address()
        with pytest.raises(ChannelError) as caught:
            await party("bob", "alice", dialling).endpoint.run(exchange())
        assert not running.done()
    finally:
        await stopped(running)
    return alice.warnings, anonymous(str(caught.value))


LOOPBACK = Address("127.0.0.1", 0)


@pytest.mark.parametrize("beside", BESIDE)
def test_a_listener_has_one_name_and_nothing_beside_it(beside: str) -> None:
    shown = with_names("alice", ALICE, BESIDE[beside])
    alice = shown.carrier(listen=LOOPBACK)
    seen = run(a_listener_is_refused(alice, identity("bob").carrier(), NAMELESS))
    assert seen == [f"refused bob at HERE: it refused us: {NAMELESS}"]


@pytest.mark.parametrize("beside", BESIDE)
def test_a_dialler_has_one_name_and_nothing_beside_it(beside: str) -> None:
    shown = with_names("bob", BOB, BESIDE[beside])
    seen, heard = run(refusal(identity("alice").carrier(listen=LOOPBACK), shown.carrier()))
    assert heard == f"alice at HERE refused us: {NAMELESS}"
    assert seen == [f"refused HERE: it {NAMELESS}"]


def test_a_common_name_is_no_name_when_dialling() -> None:
    shown = with_names("alice")  # its common name is alice
    alice = shown.carrier(listen=LOOPBACK)
    seen = run(a_listener_is_refused(alice, identity("bob").carrier(), mismatch("alice")))
    assert seen == ["refused HERE: it refused our certificate"]


def der(file: Path) -> bytes:
    return certificate_der(read_certificate(file))


@pytest.mark.parametrize("name", ["*", "Alice", "alice.example", "a\x1b[2J", "ca "])
def test_what_cannot_name_a_party_is_no_name(name: str) -> None:
    shown = with_names("alice", x509.DNSName(name))
    with pytest.raises(ChannelError, match="without a party's name"):
        identify(der(shown.certificate), {})


def test_bytes_that_are_no_certificate_are_refused_in_words() -> None:
    whole = der(identity("alice").certificate)
    for damaged in (b"", whole[:-1], whole + b"\0", bytes(len(whole))):
        with pytest.raises(ChannelError, match="showed a certificate that cannot be read"):
            identify(damaged, {})


# keys that are pinned


def pin_of(file: Path) -> str:
    return describe(file).key_fingerprint


@pytest.fixture
def stolen(tmp_path: Path) -> Credentials:
    """Bob's certificate, valid and of the right authority, for a key that he does not use now."""
    good = folder() / "good"
    for name in ("ca.pem", "ca.key"):
        (tmp_path / name).write_bytes((good / name).read_bytes())
    (tmp_path / "ca.key").chmod(0o600)
    issue(tmp_path, "bob", with_key=True)
    return Credentials.read(tmp_path / "ca.pem", tmp_path / "bob.pem", tmp_path / "bob.key")


def test_a_dialler_with_another_key_than_the_pinned_one_is_refused(stolen: Credentials) -> None:
    pins = {"bob": pin_of(identity("bob").certificate)}
    listening = identity("alice").carrier(listen=LOOPBACK, pins=pins)
    seen, heard = run(refusal(listening, TlsCarrier(stolen, listen=None, connect={})))
    why = OTHER_KEY.format(party="bob")
    assert heard == f"alice at HERE refused us: {why}"
    assert seen == [f"refused HERE: it {why}"]


def test_a_listener_with_another_key_than_the_pinned_one_is_refused() -> None:
    pins = {"alice": pin_of(identity("bob").certificate)}
    dialling = identity("bob").carrier(pins=pins)
    alice = identity("alice").carrier(listen=LOOPBACK)
    why = OTHER_KEY.format(party="alice")
    seen = run(a_listener_is_refused(alice, dialling, why))
    assert seen == [f"refused bob at HERE: it refused us: {why}"]


@pytest.fixture
def consortium(tmp_path: Path) -> Consortium:
    """Alice, who listens, bob and carol, each with a key of its own that is pinned."""
    create_authority(tmp_path, "heart-study")
    members = {}
    for name in ("alice", "bob", "carol"):
        create_request(tmp_path, name)
        certificate = issue(tmp_path, name)
        address = LOOPBACK if name == "alice" else None
        member = default_member(name, tmp_path, address)
        members[name] = member.with_key(pin_of(certificate))
    return Consortium("heart-study", tmp_path / "ca.pem", members)


def test_parties_with_the_pinned_keys_meet(consortium: Consortium) -> None:
    async def scene() -> None:
        _, listening = meet(consortium, "alice", ["bob"])
        assert listening.pins == consortium.pins
        alice = party("alice", "bob", listening)
        running = asyncio.create_task(alice.endpoint.run(exchange()))
        _, dialling = meet(consortium, "bob", ["alice"], connect=await alice.address())
        assert await party("bob", "alice", dialling).endpoint.run(exchange())
        assert await running

    run(scene())


def test_a_member_that_was_taken_out_of_the_file_is_refused(consortium: Consortium) -> None:
    left = {name: consortium.members[name] for name in ("alice", "bob")}

    async def scene() -> tuple[list[str], str]:
        _, listening = meet(Consortium("heart-study", consortium.ca, left), "alice")
        alice = party("alice", "bob", listening)
        running = asyncio.create_task(alice.endpoint.run(exchange()))
        try:
            address = await alice.address()
            _, dialling = meet(consortium, "carol", ["alice"], connect=address)
            with pytest.raises(ChannelError) as caught:
                await party("carol", "alice", dialling).endpoint.run(exchange())
        finally:
            await stopped(running)
        return alice.warnings, anonymous(str(caught.value))

    why = "is not part of this session, which is between alice, bob"
    seen, heard = run(scene())
    assert heard == f"alice at HERE refused us: {why}"
    assert seen == [f"refused carol at HERE: it {why}"]


def test_ones_own_key_that_is_not_the_pinned_one_is_noticed_first(consortium: Consortium) -> None:
    theirs = consortium.members["carol"].key_fingerprint
    assert theirs is not None
    other = consortium.with_member(consortium.members["bob"].with_key(theirs))
    with pytest.raises(DataError, match=r"bob\.pem is for another key than consortium\.yaml has"):
        meet(other, "bob", ["alice"])


def test_a_certificate_that_expires_soon_is_noted_when_a_session_starts(
    consortium: Consortium,
) -> None:
    issue(consortium.ca.parent, "bob", days=5)
    events: list[Event] = []
    meet(consortium, "bob", ["alice"], on_event=events.append)
    (event,) = events
    assert isinstance(event, Warned)
    assert "bob.pem expires on " in event.text
    assert event.text.endswith(" UTC, 4 days from now; renew it: tacit cert issue bob")


def test_a_session_takes_the_passphrase_of_its_partys_key(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TACIT_PASSPHRASE", raising=False)
    folder = consortium.ca.parent
    create_request(folder, "dora", passphrase="five good words")
    dora = default_member("dora", folder).with_key(pin_of(issue(folder, "dora")))
    larger = consortium.with_member(dora)
    meet(larger, "dora", ["alice"], passphrase="five good words")
    for wrong in (None, "four good words"):
        with pytest.raises(DataError, match="passphrase"):
            meet(larger, "dora", ["alice"], passphrase=wrong)
