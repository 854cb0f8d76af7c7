"""What leaves a party, byte by byte: two real processes, the wire between them recorded, opened and searched."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from consortia import folder
from cryptography import x509
from loops import run
from meetings import Links, dialler, listener
from processes import Process, free_port
from wiretap import (
    CERTIFICATE,
    CERTIFICATE_REQUEST,
    CERTIFICATE_VERIFY,
    FINISHED,
    SIDES,
    TLS_1_3,
    Capture,
    Opened,
    Tap,
    certificates,
    decrypt,
    key_canaries,
    leaks,
    open_capture,
    spellings,
    versions,
)

from tacit.channel.consortium import Address

ROWS = 300
DRIVER = Path(__file__).with_name("party_with_keylog.py")
CANARIES = {
    "alice": {
        "identifier": "Ärztin  Zoë-CANARY-4711",
        "common identifier": "Gemeinsam Ñ CANARY 0815",
        "long number": 748_915_234_786_123,
        "diagnosis": "G35.9-canary-sclerosis",
        "weight": 86.123456789,
        "income": 4_218_733_911_027,
    },
    "bob": {
        "identifier": "OTHER Straße canary 99",
        "common identifier": "gemeinsam ñ  canary 0815 ",
        "long number": 551_234_998_761_002,
        "balance": -73_311.0078125,
        "note": "overdrawn-canary-since-March",
    },
}


def plant(place: Path) -> None:
    """Tables whose people are known: two canaries of its own, one of both, and others."""
    for name, own in CANARIES.items():
        planted = [own["identifier"], own["common identifier"], own["long number"]]
        table = pd.DataFrame({"nin": [*planted, *(f"person {name} {k}" for k in range(ROWS - 3))]})
        for column in own.keys() - {"identifier", "common identifier", "long number"}:
            table[column] = own[column]
        table.to_csv(place / f"{name}.csv", index=False)


@dataclass
class Recording:
    capture: Capture
    opened: dict[str, Opened]
    keylogs: dict[str, str]
    said: str
    common: pd.DataFrame


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Alice listens and bob dials, through the tap."""
    place = tmp_path_factory.mktemp("wiretap")
    plant(place)
    port = free_port()
    logs = {name: place / f"{name}.keys" for name in CANARIES}
    with Tap(port) as tap:
        options = {"alice": ["--with", "bob", "--listen", f"127.0.0.1:{port}"]}
        options["bob"] = ["--with", "alice", "--connect", f"127.0.0.1:{tap.port}"]
        parties = [
            Process(
                name,
                place,
                options[name],
                [str(DRIVER), "psi"],
                {"TACIT_TEST_KEYLOG": str(logs[name])},
            )
            for name in CANARIES
        ]
        try:
            codes = [party.result() for party in parties]
        finally:
            for party in parties:
                party.end()
    said = "".join(party.said for party in parties)
    assert codes == [0, 0], said
    (capture,) = [one for one in tap.captures if one.listener]
    keylogs = {name: path.read_text() for name, path in logs.items()}
    opened = open_capture(capture, keylogs["alice"])
    return Recording(capture, opened, keylogs, said, pd.read_csv(place / "alice-common.csv"))


def test_the_recording_is_of_a_run_that_worked(recording: Recording) -> None:
    assert recording.common["nin"].tolist() == ["Gemeinsam Ñ CANARY 0815"]


def test_both_sides_speak_tls_1_3_and_nothing_older(recording: Recording) -> None:
    assert versions(recording.opened["dialler"].handshake[0]) == [TLS_1_3]
    assert versions(recording.opened["listener"].handshake[0]) == [TLS_1_3]


def test_both_sides_show_and_prove_a_certificate(recording: Recording) -> None:
    dialled, listened = (recording.opened[side].handshake for side in SIDES)
    assert CERTIFICATE_REQUEST in [kind for kind, _ in listened]
    for party, messages in (("bob", dialled), ("alice", listened)):
        kinds = [kind for kind, _ in messages]
        assert kinds.index(CERTIFICATE) < kinds.index(CERTIFICATE_VERIFY) < kinds.index(FINISHED)
        shown = certificates(dict(messages)[CERTIFICATE])
        known = x509.load_pem_x509_certificate((folder() / "good" / f"{party}.pem").read_bytes())
        assert x509.load_der_x509_certificate(shown[0]) == known


def test_the_secrets_of_either_side_open_the_same_bytes(recording: Recording) -> None:
    assert decrypt(recording.capture, recording.keylogs["bob"]) == decrypt(
        recording.capture, recording.keylogs["alice"]
    )


def frames(raw: bytes) -> list[tuple[int, str, int, bytes]]:
    """Kind, name, number and data of each frame, read by the format's own words."""
    found = []
    while raw:
        magic, version, kind, named, number, length = struct.unpack("!4sBBHQI", raw[:20])
        assert (magic, version) == (b"TACT", 1)
        found.append(
            (
                kind,
                raw[20 : 20 + named].decode("ascii"),
                number,
                raw[20 + named : 20 + named + length],
            )
        )
        assert len(found[-1][3]) == length
        raw = raw[20 + named + length :]
    return found


def test_what_left_each_party_is_what_the_protocol_sends_and_no_more(recording: Recording) -> None:
    for side, place in (
        ("dialler", 1),
        ("listener", 0),
    ):  # bob's and alice's, in the consortium file
        sent = frames(recording.opened[side].application)
        assert {kind for kind, *_ in sent} <= {1, 2, 3, 4, 6}  # no refusal
        sizes = Counter[str]()
        for kind, name, _, data in sent:
            sizes[name if kind == 2 else ""] += len(data)
        assert sizes["(done)"] == 0
        assert sizes[f"set {place}"] == 32 * ROWS  # a group element per identifier
        assert sizes["tags"] == 8 * ROWS  # 40 bits, and 17 for 300 x 300 pairs, in whole bytes
        assert sizes.keys() == {"", "terms", f"set {place}", "tags", "(done)"}
        assert sizes["terms"] < 600
        assert sizes[""] < 300  # the hello; counts and beats are in the headers


def test_no_canary_is_on_the_wire_or_in_what_was_encrypted(recording: Recording) -> None:
    recorded = {f"{side}'s ciphertext": raw for side, raw in recording.capture.sides().items()}
    recorded |= {
        f"{side}'s messages": opened.application for side, opened in recording.opened.items()
    }
    recorded |= {
        f"{side}'s handshake": b"".join(m for _, m in one.handshake)
        for side, one in recording.opened.items()
    }
    for party, canaries in CANARIES.items():
        assert leaks(recorded, canaries) == []
        assert leaks(recorded, key_canaries(folder() / "good" / f"{party}.key")) == []


def test_what_a_party_says_on_its_terminal_holds_no_canary(recording: Recording) -> None:
    for canaries in CANARIES.values():
        assert leaks({"the terminal": recording.said.encode()}, canaries) == []


# the search itself


def test_the_search_finds_what_a_conversation_leaks_on_purpose(tmp_path: Path) -> None:
    """The identifier, its SHA-256, a packed number and a private key, over the same TLS through the same tap."""
    secret = CANARIES["bob"]
    key = folder() / "good" / "bob.key"

    async def careless(links: Links) -> None:
        link = links["alice"]
        await link.send("a", b"x" + str(secret["identifier"]).casefold().encode() + b"y")
        await link.send("b", hashlib.sha256(str(secret["note"]).encode()).hexdigest().encode())
        await link.send("c", struct.pack("<d", secret["balance"]))
        await link.send("d", key.read_bytes())

    async def careful(links: Links) -> None:
        for name in "abcd":
            await links["bob"].receive(name)

    async def scene() -> list[str]:
        alice = listener("alice", "bob")
        for context in alice.network.contexts:
            context.keylog_filename = str(tmp_path / "keys")
        running = asyncio.create_task(alice.endpoint.run(careful))
        with Tap((await alice.address()).port) as tap:
            await dialler("bob", {"alice": Address("127.0.0.1", tap.port)}).endpoint.run(careless)
            await running
        found = leaks(
            decrypt(tap.captures[0], (tmp_path / "keys").read_text()), secret | key_canaries(key)
        )
        assert (
            leaks(tap.captures[0].sides(), secret | key_canaries(key)) == []
        )  # TLS hides it from others
        return found

    found = run(scene())
    for expected in (
        "identifier, folded in utf-8: in what dialler",
        "balance, packed <d: in what dialler",
    ):
        assert any(line.startswith(expected) for line in found), found
    assert any(
        line.startswith("note, sha256 of as it is in utf-8, hex: in what dialler") for line in found
    )
    assert any(line.startswith("bob.key") for line in found)
    assert not any("listener" in line for line in found)


@pytest.mark.parametrize("coding", ["utf-8", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("change", [str, str.upper, str.lower, str.casefold])
def test_spellings_cover_codings_and_capitals(coding: str, change: type[str]) -> None:
    text = "Zoë Canary 4711"
    assert change(text).encode(coding) in spellings(text).values()


@pytest.mark.parametrize("before", range(6))
def test_base64_is_found_at_any_place_of_a_longer_text(before: int) -> None:
    import base64

    raw = base64.b64encode(b"\xfb" * before + b"Zoe Canary 4711" + b"\xfe" * 5)
    assert any("base64" in line for line in leaks({"text": raw}, {"name": "Zoe Canary 4711"}))
