"""What leaves a party, byte by byte.

Two real processes; the wire between them is recorded, opened and searched.
"""

from __future__ import annotations

import asyncio
import base64
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
from processes import Process, dialling, listening
from wiretap import (
    CERTIFICATE,
    CERTIFICATE_REQUEST,
    CERTIFICATE_VERIFY,
    FINISHED,
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
from tacit.channel.frames import VERSION

ROWS = 300
DRIVER = Path(__file__).with_name("party_with_keylog.py")
CANARIES = {
    "alice": {
        "identifier": "Ärztin  Zoë-CANARY-4711",
        "shared identifier": "Gemeinsam Ñ CANARY 0815",
        "long number": 748_915_234_786_123,
        "diagnosis": "G35.9-canary-sclerosis",
        "weight": 86.123456789,
        "income": 4_218_733_911_027,
    },
    "bob": {
        "identifier": "OTHER Straße canary 99",
        "shared identifier": "gemeinsam ñ  canary 0815 ",
        "long number": 551_234_998_761_002,
        "balance": -73_311.0078125,
        "note": "overdrawn-canary-since-March",
    },
}


IDENTIFIERS = ("identifier", "shared identifier", "long number")


def plant(folder: Path) -> None:
    """Writes tables with two canaries of each party's own, one of both, and further people."""
    for name, canaries in CANARIES.items():
        people = [canaries[key] for key in IDENTIFIERS]
        people += [f"person {name} {number}" for number in range(ROWS - len(people))]
        table = pd.DataFrame({"nin": people})
        for column in canaries.keys() - set(IDENTIFIERS):
            table[column] = canaries[column]
        table.to_csv(folder / f"{name}.csv", index=False)


@dataclass
class Recording:
    capture: Capture
    opened: dict[str, Opened]
    keylogs: dict[str, str]
    said: str
    kept: dict[str, bytes]  # the files that say who was met, by name
    rows: pd.DataFrame  # alice's, of people known to both


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Alice listens and bob dials, through the tap."""
    place = tmp_path_factory.mktemp("wiretap")
    plant(place)

    def party(name: str, options: list[str]) -> Process:
        environment = {"TACIT_TEST_KEYLOG": str(place / f"{name}.keys")}
        return Process(name, place, options, [str(DRIVER), "psi"], environment)

    parties = [party("alice", listening())]
    try:
        with Tap(parties[0].port()) as tap:
            parties.append(party("bob", dialling(tap.port)))
            codes = [process.result() for process in parties]
    finally:
        for process in parties:
            process.end()
    said = "".join(process.said for process in parties)
    assert codes == [0, 0], said
    (capture,) = [capture for capture in tap.captures if capture.listener]
    keylogs = {name: (place / f"{name}.keys").read_text() for name in CANARIES}
    opened = open_capture(capture, keylogs["alice"])
    kept = {path.name: path.read_bytes() for path in place.glob("*session*")}
    return Recording(capture, opened, keylogs, said, kept, pd.read_csv(place / "alice-common.csv"))


def test_the_recording_is_of_a_run_that_worked(recording: Recording) -> None:
    assert recording.rows["nin"].tolist() == ["Gemeinsam Ñ CANARY 0815"]


def test_both_sides_speak_tls_1_3_and_nothing_older(recording: Recording) -> None:
    assert versions(recording.opened["dialler"].handshake[0]) == [TLS_1_3]
    assert versions(recording.opened["listener"].handshake[0]) == [TLS_1_3]


def test_both_sides_show_and_prove_a_certificate(recording: Recording) -> None:
    dialled = recording.opened["dialler"].handshake
    listened = recording.opened["listener"].handshake
    assert CERTIFICATE_REQUEST in [kind for kind, _ in listened]
    for party, messages in (("bob", dialled), ("alice", listened)):
        kinds = [kind for kind, _ in messages]
        assert kinds.index(CERTIFICATE) < kinds.index(CERTIFICATE_VERIFY) < kinds.index(FINISHED)
        shown = certificates(dict(messages)[CERTIFICATE])
        file = folder() / "good" / f"{party}.pem"
        certificate = x509.load_pem_x509_certificate(file.read_bytes())
        assert x509.load_der_x509_certificate(shown[0]) == certificate


def test_the_secrets_of_either_side_open_the_same_bytes(recording: Recording) -> None:
    by_bob = decrypt(recording.capture, recording.keylogs["bob"])
    by_alice = decrypt(recording.capture, recording.keylogs["alice"])
    assert by_bob == by_alice


def frames(raw: bytes) -> list[tuple[int, str, bytes]]:
    """Kind, name and data of each frame, read without the code that wrote it."""
    header = struct.Struct("!4sBBHQI")
    read = []
    while raw:
        magic, version, kind, name_length, _, length = header.unpack(raw[: header.size])
        assert (magic, version) == (b"TACT", VERSION)
        end_of_name = header.size + name_length
        end = end_of_name + length
        assert len(raw) >= end
        read.append((kind, raw[header.size : end_of_name].decode("ascii"), raw[end_of_name:end]))
        raw = raw[end:]
    return read


@pytest.mark.parametrize(("side", "index"), [("dialler", 1), ("listener", 0)])
def test_what_left_each_party_is_what_the_protocol_sends_and_no_more(
    side: str, index: int, recording: Recording
) -> None:
    """Bob dials and alice listens; the index is that in the consortium file."""
    sent = frames(recording.opened[side].application)
    assert {kind for kind, _, _ in sent} <= {1, 2, 3, 4, 6}  # no refusal
    sizes = Counter[str]()
    for kind, name, data in sent:
        sizes[name if kind == 2 else ""] += len(data)
    assert sizes["(done)"] == 0
    assert sizes[f"set {index}"] == 32 * ROWS  # a group element per identifier
    assert sizes["tags"] == 8 * ROWS  # 40 bits, and 17 for 300 x 300 pairs, in whole bytes
    assert sizes["commitment"] == sizes["nonce"] == 32
    assert sizes.keys() == {
        "", "(terms)", f"set {index}", "commitment", "nonce", "tags", "(done)",
    }  # fmt: skip
    assert sizes["(terms)"] < 700
    assert sizes[""] < 300  # the hello; counts and beats are in the headers


def test_no_canary_is_on_the_wire_or_in_what_was_encrypted(recording: Recording) -> None:
    recorded = {}
    for side, raw in recording.capture.sides().items():
        recorded[f"{side}'s ciphertext"] = raw
    for side, opened in recording.opened.items():
        recorded[f"{side}'s messages"] = opened.application
        recorded[f"{side}'s handshake"] = b"".join(message for _, message in opened.handshake)
    for party, canaries in CANARIES.items():
        assert leaks(recorded, canaries) == []
        assert leaks(recorded, key_canaries(folder() / "good" / f"{party}.key")) == []


def test_what_a_party_says_on_its_terminal_holds_no_canary(recording: Recording) -> None:
    for canaries in CANARIES.values():
        assert leaks({"the terminal": recording.said.encode()}, canaries) == []


def test_what_a_party_keeps_of_a_session_holds_no_canary(recording: Recording) -> None:
    files = {"-common.csv.session.json", "-sessions.jsonl"}
    assert set(recording.kept) == {name + file for name in ("alice", "bob") for file in files}
    for canaries in CANARIES.values():
        assert leaks(recording.kept, canaries) == []


# the search itself


def test_the_search_finds_what_a_conversation_leaks_on_purpose(tmp_path: Path) -> None:
    """The identifier, a SHA-256, a packed number and a private key, through the same tap."""
    secret = CANARIES["bob"]
    key = folder() / "good" / "bob.key"
    canaries = secret | key_canaries(key)

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
        alice.carrier.listening_context.keylog_filename = str(tmp_path / "keys")
        running = asyncio.create_task(alice.endpoint.run(careful))
        with Tap((await alice.address()).port) as tap:
            bob = dialler("bob", {"alice": Address("127.0.0.1", tap.port)})
            await bob.endpoint.run(careless)
            await running
        (capture,) = tap.captures
        assert leaks(capture.sides(), canaries) == []  # TLS hides it from others
        return leaks(decrypt(capture, (tmp_path / "keys").read_text()), canaries)

    lines = run(scene())
    for expected in (
        "identifier, folded in utf-8: in what dialler",
        "balance, packed <d: in what dialler",
        "note, sha256 of as it is in utf-8, hex: in what dialler",
        "bob.key",
    ):
        assert any(line.startswith(expected) for line in lines), lines
    assert not any("listener" in line for line in lines)


@pytest.mark.parametrize("coding", ["utf-8", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("change", [str, str.upper, str.lower, str.casefold])
def test_spellings_cover_codings_and_capitals(coding: str, change: type[str]) -> None:
    text = "Zoë Canary 4711"
    assert change(text).encode(coding) in spellings(text).values()


@pytest.mark.parametrize("before", range(6))
def test_base64_is_found_at_any_place_of_a_longer_text(before: int) -> None:
    raw = base64.b64encode(b"\xfb" * before + b"Zoe Canary 4711" + b"\xfe" * 5)
    assert any("base64" in line for line in leaks({"text": raw}, {"name": "Zoe Canary 4711"}))
