"""Listens on the wire between two parties, and searches what left them for what must not.

A `Tap` stands between a dialler and a listener and records every byte. `decrypt` opens the recording with the secrets
that a side wrote to a key log; it is RFC 8446 and nothing of ours. `leaks` searches for canaries, values planted in a
party's data, in every spelling in which they could plausibly leave: `spellings`.

    with Tap(port) as tap:
        ...                                     # the dialler connects to tap.port
    opened = decrypt(tap.captures[0], keylog)   # {"dialler": bytes that it sent, "listener": bytes that it sent}
    assert not leaks(opened, {"identifier": "Ana Muñoz"})
"""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import struct
import threading
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

SIDES = ("dialler", "listener")


# recording


@dataclass
class Capture:
    """What each side sent over one TCP connection."""

    dialler: bytearray = field(default_factory=bytearray)
    listener: bytearray = field(default_factory=bytearray)

    def sides(self) -> dict[str, bytes]:
        return {side: bytes(getattr(self, side)) for side in SIDES}


class Tap:
    """A TCP proxy on this machine, in threads of its own; `captures` has an entry per connection."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.captures: list[Capture] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Tap:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._server, *self._sockets):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, work: Any, *inputs: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=inputs, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._server.accept()
                self._sockets.append(here)
                try:
                    there = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    here.close()
                    continue
                self._sockets.append(there)
                self.captures.append(Capture())
                self._start(self._pass, here, there, self.captures[-1].dialler)
                self._start(self._pass, there, here, self.captures[-1].listener)

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, record: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                record += data
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


# opening: RFC 8446

CLIENT_HELLO, SERVER_HELLO, CERTIFICATE, CERTIFICATE_REQUEST, CERTIFICATE_VERIFY, FINISHED, KEY_UPDATE = (
    1, 2, 11, 13, 15, 20, 24
)  # fmt: skip
HANDSHAKE, APPLICATION, CHANGE_CIPHER_SPEC = 22, 23, 20
SUPPORTED_VERSIONS, TLS_1_3 = 43, 0x0304
SUITES: dict[int, tuple[Any, int, Any]] = {
    0x1301: (AESGCM, 16, hashes.SHA256()),
    0x1302: (AESGCM, 32, hashes.SHA384()),
    0x1303: (ChaCha20Poly1305, 32, hashes.SHA256()),
}


@dataclass
class Opened:
    """One side's messages of the handshake, as (type, content), and the application data that it sent."""

    handshake: list[tuple[int, bytes]] = field(default_factory=list)
    application: bytes = b""


def decrypt(capture: Capture, keylog: str) -> dict[str, bytes]:
    """The application data that each side sent."""
    return {side: opened.application for side, opened in open_capture(capture, keylog).items()}


def open_capture(capture: Capture, keylog: str) -> dict[str, Opened]:
    """Everything, with a key log as SSLKEYLOGFILE has it. A record that cannot be decrypted is an error."""
    hellos = {side: _first_messages(raw) for side, raw in capture.sides().items()}
    client, server = hellos["dialler"][0], hellos["listener"][-1]
    assert (client[0], server[0]) == (CLIENT_HELLO, SERVER_HELLO)
    secrets = _secrets(keylog, client[1][2:34])
    suite = SUITES[int.from_bytes(_after_session(server[1])[:2], "big")]
    names = {"dialler": "CLIENT", "listener": "SERVER"}
    return {
        side: _open(
            raw,
            suite,
            secrets[f"{names[side]}_HANDSHAKE_TRAFFIC_SECRET"],
            secrets[f"{names[side]}_TRAFFIC_SECRET_0"],
        )
        for side, raw in capture.sides().items()
    }


def versions(message: tuple[int, bytes]) -> list[int]:
    """The TLS versions that a ClientHello offers, or the one that a ServerHello selects, by supported_versions."""
    kind, body = message
    rest = _after_session(body)
    if kind == CLIENT_HELLO:
        rest = rest[2 + int.from_bytes(rest[:2], "big") :]  # cipher suites
        rest = rest[1 + rest[0] :]  # compression
    else:
        rest = rest[3:]
    rest = rest[2:]  # length of the extensions
    while rest:
        number, length = struct.unpack("!HH", rest[:4])
        content, rest = rest[4 : 4 + length], rest[4 + length :]
        if number == SUPPORTED_VERSIONS:
            listed = content[1:] if kind == CLIENT_HELLO else content
            return [version for (version,) in struct.iter_unpack("!H", listed)]
    return []


def certificates(body: bytes) -> list[bytes]:
    """The certificates, in DER, of a Certificate message."""
    found, rest = [], body[1 + body[0] + 3 :]
    while rest:
        length = int.from_bytes(rest[:3], "big")
        found.append(rest[3 : 3 + length])
        rest = rest[3 + length :]
        rest = rest[2 + int.from_bytes(rest[:2], "big") :]
    return found


def _records(raw: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Type, header and payload; one that the connection's end has cut is left out."""
    while len(raw) >= 5:
        length = int.from_bytes(raw[3:5], "big")
        if len(raw) < 5 + length:
            return
        yield raw[0], raw[:5], raw[5 : 5 + length]
        raw = raw[5 + length :]


def _messages(raw: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Whole messages of a handshake, and what is left."""
    found = []
    while len(raw) >= 4 and len(raw) >= 4 + (length := int.from_bytes(raw[1:4], "big")):
        found.append((raw[0], raw[4 : 4 + length]))
        raw = raw[4 + length :]
    return found, raw


def _first_messages(raw: bytes) -> list[tuple[int, bytes]]:
    """Those in the clear."""
    return _messages(b"".join(payload for kind, _, payload in _records(raw) if kind == HANDSHAKE))[
        0
    ]


def _after_session(hello: bytes) -> bytes:
    return hello[35 + hello[34] :]


def _secrets(keylog: str, random: bytes) -> dict[str, bytes]:
    found = re.findall(rf"^(\w+) {random.hex()} ([0-9a-f]+)$", keylog, re.MULTILINE | re.IGNORECASE)
    return {label: bytes.fromhex(secret) for label, secret in found}


def _expand(secret: bytes, label: bytes, length: int, algorithm: Any) -> bytes:
    label = b"tls13 " + label
    info = struct.pack("!HB", length, len(label)) + label + b"\0"
    return HKDFExpand(algorithm, length, info).derive(secret)


class _Keys:
    def __init__(self, secret: bytes, suite: tuple[Any, int, Any]) -> None:
        self.secret, self.suite, self.number = secret, suite, 0
        cipher, length, algorithm = suite
        self.cipher = cipher(_expand(secret, b"key", length, algorithm))
        self.iv = _expand(secret, b"iv", 12, algorithm)

    def open(self, header: bytes, payload: bytes) -> tuple[int, bytes]:
        nonce = bytes(a ^ b for a, b in zip(self.iv, self.number.to_bytes(12, "big"), strict=True))
        self.number += 1
        inner = self.cipher.decrypt(nonce, payload, header).rstrip(b"\0")
        return inner[-1], inner[:-1]

    def next(self) -> _Keys:
        algorithm = self.suite[2]
        return _Keys(
            _expand(self.secret, b"traffic upd", algorithm.digest_size, algorithm), self.suite
        )


def _open(raw: bytes, suite: tuple[Any, int, Any], first: bytes, then: bytes) -> Opened:
    keys, opened, pending = _Keys(first, suite), Opened(), b""
    data = []
    for kind, header, payload in _records(raw):
        if kind == APPLICATION:
            kind, payload = keys.open(header, payload)
        if kind == APPLICATION:
            data.append(payload)
        elif kind == HANDSHAKE:
            messages, pending = _messages(pending + payload)
            opened.handshake += messages
            if any(number == FINISHED for number, _ in messages):
                keys = _Keys(then, suite)
            elif any(number == KEY_UPDATE for number, _ in messages):
                keys = keys.next()
    opened.application = b"".join(data)
    return opened


# searching

SHORTEST = 6  # bytes that are looked for: shorter ones, such as a CRC-32 or a packed int32, turn up by chance
HASHES = (
    "md5",
    "sha1",
    "sha224",
    "sha256",
    "sha384",
    "sha512",
    "blake2b",
    "blake2s",
    "sha3_256",
    "sha3_512",
)
Canary = str | int | float | bytes


def spellings(canary: Canary) -> dict[str, bytes]:
    """The bytes by which a value could be recognised: plain, encoded, and hashed without a key.

    A hash with fewer than `SHORTEST` bytes, such as CRC-32, is left out: 4 bytes occur by chance once in 4 GB, and we
    search for hundreds of spellings. So is a hash with an unknown salt, which no search can find.
    """
    plain = _plain(canary)
    found = dict(plain)
    for label, content in plain.items():
        for name in HASHES:
            found[f"{name} of {label}"] = hashlib.new(name, content).digest()
    for label, content in list(found.items()):
        found[f"{label}, hex"] = content.hex().encode()
        found[f"{label}, HEX"] = content.hex().upper().encode()
        found |= {f"{label}, {form}": coded for form, coded in _base64(content).items()}
    return {label: content for label, content in found.items() if len(content) >= SHORTEST}


def _plain(canary: Canary) -> dict[str, bytes]:
    if isinstance(canary, bytes):
        return {"raw": canary, "raw, backwards": canary[::-1]}
    found: dict[str, bytes] = {}
    if isinstance(canary, int | float):
        forms = (
            ("<d", ">d", "<f", ">f")
            if isinstance(canary, float)
            else ("<q", ">q", "<i", ">i", "<d", ">d")
        )
        for form in forms:
            with suppress(struct.error, OverflowError):
                found[f"packed {form}"] = struct.pack(form, canary)
    for label, text in _texts(str(canary)).items():
        for coding in ("utf-8", "utf-16-le", "utf-16-be", "latin-1"):
            with suppress(UnicodeEncodeError):
                found[f"{label} in {coding}"] = text.encode(coding)
    return _distinct(found)


def _texts(text: str) -> dict[str, str]:
    found = {
        "as it is": text,
        "upper": text.upper(),
        "lower": text.lower(),
        "folded": text.casefold(),
    }
    found["collapsed"] = " ".join(text.split()).casefold()
    found["without spaces"] = "".join(text.split()).casefold()
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        found |= {
            f"{label} {form}": unicodedata.normalize(form, one)
            for label, one in list(found.items())[:6]
        }  # type: ignore[arg-type]
    return _distinct(found)


def _distinct(found: dict[str, Any]) -> dict[str, Any]:
    return {label: content for label, content in found.items() if label == _first(found, content)}


def _first(found: dict[str, Any], content: Any) -> str:
    return next(label for label, one in found.items() if one == content)


def _base64(content: bytes) -> dict[str, bytes]:
    """At each of the three places where it may begin in a longer text; letters that neighbours change are cut."""
    found = {}
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + content)
        end = (shift + len(content)) // 3 * 4
        inner = text[(0, 2, 3)[shift] : end]
        found[f"base64+{shift}"] = inner
        found[f"base64url+{shift}"] = inner.translate(bytes.maketrans(b"+/", b"-_"))
    return _distinct(found)


def key_canaries(path: Path) -> dict[str, bytes]:
    """A private key as its file has it, its DER, and the secret number alone."""
    pem = path.read_bytes()
    key: Any = serialization.load_pem_private_key(pem, None)
    number = key.private_numbers().private_value.to_bytes(32, "big")
    lines = [line for line in pem.splitlines() if line and not line.startswith(b"-")]
    formats = {
        "PKCS8": serialization.PrivateFormat.PKCS8,
        "SEC1": serialization.PrivateFormat.TraditionalOpenSSL,
    }
    found = {
        f"{path.name} {name}": key.private_bytes(
            serialization.Encoding.DER, form, serialization.NoEncryption()
        )
        for name, form in formats.items()
    }
    return (
        found
        | {f"{path.name} number": number}
        | {f"{path.name} line {k}": line for k, line in enumerate(lines)}
    )


def leaks(recorded: Mapping[str, bytes], canaries: Mapping[str, Canary]) -> list[str]:
    """Where a canary was found, as sentences; none is what a test wants."""
    return [
        f"{name}, {label}: in what {where} has at byte {at}"
        for name, canary in canaries.items()
        for label, content in spellings(canary).items()
        for where, raw in recorded.items()
        if (at := raw.find(content)) >= 0
    ]
