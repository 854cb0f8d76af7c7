"""Malformed certificates, keys, requests and authorities end in one line, and never worse.

TACIT_FUZZ says how many files are tried; a seed makes the same ones again.
"""

from __future__ import annotations

import base64
import os
import random
import resource
import ssl
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa, x25519

from tacit.channel.certificates import create_authority, create_request, issue
from tacit.channel.credentials import Credentials, describe
from tacit.channel.peer_identity import identify
from tacit.channel.tls import make_context
from tacit.core.errors import TacitError

COUNT = int(os.environ.get("TACIT_FUZZ", "300"))
SEED = 20
LONGEST = 10.0  # seconds for one file; all take milliseconds
GROWTH = 64 << 20  # bytes over the whole run
SECRET = "a passphrase"
Change = Callable[[random.Random, bytes], bytes]


# what is done to the bytes inside a PEM block


def flip(chance: random.Random, data: bytes) -> bytes:
    """Some bits are others."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 3, 20])):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def put(chance: random.Random, data: bytes) -> bytes:
    """A byte is one that means something: a tag, a length, a sign."""
    changed = bytearray(data)
    value = chance.choice([0x00, 0x02, 0x03, 0x04, 0x05, 0x06, 0x0C, 0x17, 0x30, 0x31, 0x7F])
    changed[chance.randrange(len(changed))] = chance.choice([value, value | 0x80])
    return bytes(changed)


def cut(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data))]


def remove(chance: random.Random, data: bytes) -> bytes:
    start = chance.randrange(len(data))
    return data[:start] + data[start + chance.randrange(1, 40) :]


def insert(chance: random.Random, data: bytes) -> bytes:
    start = chance.randrange(len(data))
    return data[:start] + chance.randbytes(chance.randrange(1, 40)) + data[start:]


def repeat(chance: random.Random, data: bytes) -> bytes:
    """A piece comes again, somewhere else."""
    start = chance.randrange(len(data))
    piece = data[start : start + chance.randrange(1, 200)]
    place = chance.randrange(len(data))
    return data[:place] + piece + data[place:]


def nest(_: random.Random, data: bytes) -> bytes:
    """Sequences in sequences, as deep as their lengths can say."""
    for _ in range(2000):
        data = b"\x30\x80" + data
    return data


def noise(chance: random.Random, _: bytes) -> bytes:
    return chance.randbytes(chance.randrange(600))


CHANGES: list[Change] = [flip, flip, flip, put, put, cut, remove, insert, repeat, nest, noise]


# files


def block(label: str, data: bytes) -> bytes:
    lines = base64.encodebytes(data).decode()
    return f"-----BEGIN {label}-----\n{lines}-----END {label}-----\n".encode()


def content_of(pem: bytes) -> tuple[str, bytes]:
    """A block's label, and the bytes in it."""
    lines = pem.decode().strip().splitlines()
    label = lines[0].removeprefix("-----BEGIN ").removesuffix("-----")
    return label, base64.b64decode("".join(lines[1:-1]))


def changed_file(chance: random.Random, pem: bytes, others: list[bytes]) -> bytes:
    """The file with something wrong in it: in its block, in its text, or with another's."""
    way = chance.random()
    if way < 0.7:
        label, data = content_of(pem)
        for _ in range(chance.choice([1, 1, 2, 4])):
            data = chance.choice(CHANGES)(chance, data or b"\0")
        return block(label, data)
    if way < 0.85:
        return chance.choice(CHANGES)(chance, pem)
    other = chance.choice(others)
    if way < 0.9:
        return other
    if way < 0.95:
        label, _ = content_of(pem)
        return block(label, content_of(other)[1])
    return pem[: chance.randrange(len(pem))] + other[chance.randrange(len(other)) :]


def keys_of_other_kinds() -> list[bytes]:
    keys = [
        rsa.generate_private_key(65537, 1024),
        rsa.generate_private_key(3, 2048),
        ec.generate_private_key(ec.SECP256K1()),
        ec.generate_private_key(ec.BrainpoolP256R1()),
        ed25519.Ed25519PrivateKey.generate(),
        ed448.Ed448PrivateKey.generate(),
        x25519.X25519PrivateKey.generate(),
    ]
    return [
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        for key in keys
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A consortium with alice, who has made her key, and bob, whose key has a passphrase."""
    create_authority(tmp_path, "heart-study")
    create_request(tmp_path, "alice")
    issue(tmp_path, "alice")
    create_request(tmp_path, "bob", passphrase=SECRET)
    issue(tmp_path, "bob")
    return tmp_path


def connect(folder: Path, party: str) -> None:
    files = (folder / "ca.pem", folder / f"{party}.pem", folder / f"{party}.key")
    credentials = Credentials.read(*files, SECRET)
    credentials.expiries()
    make_context(ssl.PROTOCOL_TLS_SERVER, credentials)
    make_context(ssl.PROTOCOL_TLS_CLIENT, credentials)
    credentials.check(party)


def meet_stranger(folder: Path, party: str) -> None:
    """As a certificate comes from the other side, where TLS has already looked at it."""
    lines = (folder / f"{party}.pem").read_bytes().splitlines()
    try:
        der = base64.b64decode(b"".join(lines[1:-1]))
    except ValueError:
        der = b"".join(lines)
    identify(der, {}, party)


def uses(folder: Path, file: str) -> list[Callable[[], object]]:
    """What is done with a file of this name."""
    party = "bob" if file.startswith("bob") else "alice"
    steps: list[Callable[[], object]] = [
        lambda: connect(folder, party),
        lambda: issue(folder, party),
        lambda: create_request(folder, party, passphrase=SECRET if party == "bob" else None),
    ]
    if file.endswith(".pem"):
        steps.append(lambda: describe(folder / file))
        steps.append(lambda: meet_stranger(folder, party))
    return steps


def error_of(use: Callable[[], object]) -> TacitError | None:
    """How it ends; anything but success and our own errors is raised."""
    try:
        use()
    except TacitError as error:
        return error
    return None


def outcome(use: Callable[[], object]) -> str:
    error = error_of(use)
    if error is None:
        return "done"
    text = str(error)
    assert text.isprintable(), text
    assert len(text) < 700, text
    assert error.__context__ is None or error.__suppress_context__, text
    return "refused"


def test_malformed_files_end_in_one_line(
    folder: Path, record_property: Callable[[str, object], None]
) -> None:
    names = ["ca.pem", "ca.key", "alice.pem", "alice.key", "alice.csr", "bob.key", "bob.pem"]
    originals = {path.name: path.read_bytes() for path in folder.iterdir()}
    others = [*originals.values(), *keys_of_other_kinds()]
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(COUNT):
        chance = random.Random(f"{SEED} {number}")
        name = chance.choice(names)
        changed = changed_file(chance, originals[name], others)
        for use in uses(folder, name):
            for file, content in originals.items():
                (folder / file).write_bytes(content)
            (folder / name).write_bytes(changed)
            if chance.random() < 0.5 and not name.endswith(".csr"):
                (folder / "alice.csr").unlink()
            start = time.monotonic()
            try:
                outcomes[f"{name} {outcome(use)}"] += 1
            except BaseException as error:
                raise AssertionError(f"seed {SEED}, file {number}, {name}") from error
            slowest = max(slowest, time.monotonic() - start)
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) << 10
    record_property("slowest, s", slowest)
    record_property("growth, MB", growth / 2**20)
    record_property("outcomes", dict(outcomes))
    assert slowest < LONGEST
    assert growth < GROWTH
    assert {f"{name} refused" for name in names} <= outcomes.keys()
