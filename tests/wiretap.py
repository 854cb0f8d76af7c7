"""Listens on the wire between two parties, and searches what left them for what must not.

A `Tap` stands between a dialler and a listener and records every byte. `decrypt` opens the
recording with the secrets that a side wrote to a key log; it is RFC 8446 and nothing of ours.
`leaks` searches for canaries, values planted in a party's data, in every spelling in which they
could plausibly leave: `spellings`.

    with Tap(port) as tap:
        ...  # the dialler connects to tap.port
    sent = decrypt(tap.captures[0], keylog)  # by each side: {"dialler": ..., "listener": ...}
    assert not leaks(sent, {"identifier": "Ana Muñoz"})
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
    """A TCP proxy on this machine, in its own threads; `captures` has an entry per connection."""

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
        thread = threading.Thread(target=work, args=inputs, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                self._sockets.append(near)
                try:
                    far = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    near.close()
                    continue
                self._sockets.append(far)
                capture = Capture()
                self.captures.append(capture)
                self._start(self._pass, near, far, capture.dialler)
                self._start(self._pass, far, near, capture.listener)

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, record: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                record += data
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


# opening: RFC 8446

# types of handshake messages
CLIENT_HELLO = 1
SERVER_HELLO = 2
CERTIFICATE = 11
CERTIFICATE_REQUEST = 13
CERTIFICATE_VERIFY = 15
FINISHED = 20
KEY_UPDATE = 24
# types of records
HANDSHAKE = 22
APPLICATION = 23

SUPPORTED_VERSIONS = 43  # an extension
TLS_1_3 = 0x0304
RECORD_HEADER = 5  # bytes
MESSAGE_HEADER = 4  # bytes
Suite = tuple[Any, int, Any]  # the cipher, the length of its key in bytes, the hash
SUITES: dict[int, Suite] = {
    0x1301: (AESGCM, 16, hashes.SHA256()),
    0x1302: (AESGCM, 32, hashes.SHA384()),
    0x1303: (ChaCha20Poly1305, 32, hashes.SHA256()),
}
SECRETS = {"dialler": "CLIENT", "listener": "SERVER"}  # how a key log names the sides


@dataclass
class Opened:
    """One side's handshake messages, as (type, content), and the application data that it sent."""

    handshake: list[tuple[int, bytes]] = field(default_factory=list)
    application: bytes = b""


def decrypt(capture: Capture, keylog: str) -> dict[str, bytes]:
    """The application data that each side sent."""
    return {side: opened.application for side, opened in open_capture(capture, keylog).items()}


def open_capture(capture: Capture, keylog: str) -> dict[str, Opened]:
    """Everything that each side sent, with a key log as SSLKEYLOGFILE has it.

    A record that cannot be decrypted is an error.
    """
    sides = capture.sides()
    client_kind, client_hello = _first_messages(sides["dialler"])[0]
    server_kind, server_hello = _first_messages(sides["listener"])[-1]
    assert (client_kind, server_kind) == (CLIENT_HELLO, SERVER_HELLO)
    secrets = _secrets(keylog, client_hello[2:34])
    suite_number = int.from_bytes(_after_session(server_hello)[:2], "big")
    suite = SUITES[suite_number]
    opened = {}
    for side, raw in sides.items():
        handshake_secret = secrets[f"{SECRETS[side]}_HANDSHAKE_TRAFFIC_SECRET"]
        traffic_secret = secrets[f"{SECRETS[side]}_TRAFFIC_SECRET_0"]
        opened[side] = _open(raw, suite, handshake_secret, traffic_secret)
    return opened


def versions(message: tuple[int, bytes]) -> list[int]:
    """The TLS versions that a ClientHello offers, or the one that a ServerHello selects."""
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
        content = rest[4 : 4 + length]
        rest = rest[4 + length :]
        if number == SUPPORTED_VERSIONS:
            listed = content[1:] if kind == CLIENT_HELLO else content
            return [version for (version,) in struct.iter_unpack("!H", listed)]
    return []


def certificates(body: bytes) -> list[bytes]:
    """The certificates, in DER, of a Certificate message."""
    chain = []
    rest = body[1 + body[0] + 3 :]
    while rest:
        length = int.from_bytes(rest[:3], "big")
        chain.append(rest[3 : 3 + length])
        rest = rest[3 + length :]
        extensions = int.from_bytes(rest[:2], "big")
        rest = rest[2 + extensions :]
    return chain


def _records(raw: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Type, header and payload; one that the connection's end has cut is left out."""
    while len(raw) >= RECORD_HEADER:
        end = RECORD_HEADER + int.from_bytes(raw[3:5], "big")
        if len(raw) < end:
            return
        yield raw[0], raw[:RECORD_HEADER], raw[RECORD_HEADER:end]
        raw = raw[end:]


def _messages(raw: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Whole messages of a handshake, and what is left."""
    messages = []
    while len(raw) >= MESSAGE_HEADER:
        end = MESSAGE_HEADER + int.from_bytes(raw[1:4], "big")
        if len(raw) < end:
            break
        messages.append((raw[0], raw[MESSAGE_HEADER:end]))
        raw = raw[end:]
    return messages, raw


def _first_messages(raw: bytes) -> list[tuple[int, bytes]]:
    """Those in the clear."""
    payloads = [payload for kind, _, payload in _records(raw) if kind == HANDSHAKE]
    messages, _ = _messages(b"".join(payloads))
    return messages


def _after_session(hello: bytes) -> bytes:
    return hello[35 + hello[34] :]


def _secrets(keylog: str, random: bytes) -> dict[str, bytes]:
    pattern = re.compile(rf"^(\w+) {random.hex()} ([0-9a-f]+)$", re.MULTILINE | re.IGNORECASE)
    return {label: bytes.fromhex(secret) for label, secret in pattern.findall(keylog)}


def _expand(secret: bytes, label: bytes, length: int, algorithm: Any) -> bytes:
    label = b"tls13 " + label
    info = struct.pack("!HB", length, len(label)) + label + b"\0"
    return HKDFExpand(algorithm, length, info).derive(secret)


class _Keys:
    def __init__(self, secret: bytes, suite: Suite) -> None:
        self.secret = secret
        self.suite = suite
        self.number = 0  # of the next record
        cipher, length, algorithm = suite
        self.cipher = cipher(_expand(secret, b"key", length, algorithm))
        self.iv = _expand(secret, b"iv", 12, algorithm)

    def open(self, header: bytes, payload: bytes) -> tuple[int, bytes]:
        number = self.number.to_bytes(12, "big")
        nonce = bytes(a ^ b for a, b in zip(self.iv, number, strict=True))
        self.number += 1
        inner = self.cipher.decrypt(nonce, payload, header).rstrip(b"\0")
        return inner[-1], inner[:-1]

    def next(self) -> _Keys:
        _, _, algorithm = self.suite
        secret = _expand(self.secret, b"traffic upd", algorithm.digest_size, algorithm)
        return _Keys(secret, self.suite)


def _open(raw: bytes, suite: Suite, handshake_secret: bytes, traffic_secret: bytes) -> Opened:
    keys = _Keys(handshake_secret, suite)
    opened = Opened()
    pending = b""  # the beginning of a handshake message
    for kind, header, payload in _records(raw):
        if kind == APPLICATION:
            kind, payload = keys.open(header, payload)
        if kind == APPLICATION:
            opened.application += payload
        elif kind == HANDSHAKE:
            messages, pending = _messages(pending + payload)
            opened.handshake += messages
            kinds = [message_kind for message_kind, _ in messages]
            if FINISHED in kinds:
                keys = _Keys(traffic_secret, suite)
            elif KEY_UPDATE in kinds:
                keys = keys.next()
    return opened


# searching

# Bytes that are looked for: shorter ones, such as a CRC-32 or a packed int32, turn up by chance.
SHORTEST = 6
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

    A hash with fewer than `SHORTEST` bytes, such as CRC-32, is left out: 4 bytes occur by chance
    once in 4 GB, and we search for hundreds of spellings. So is a hash with an unknown salt, which
    no search can find.
    """
    plain = _plain(canary)
    binary = dict(plain)
    for label, content in plain.items():
        for name in HASHES:
            binary[f"{name} of {label}"] = hashlib.new(name, content).digest()
    spelt = dict(binary)
    for label, content in binary.items():
        spelt[f"{label}, hex"] = content.hex().encode()
        spelt[f"{label}, HEX"] = content.hex().upper().encode()
        for form, coded in _base64(content).items():
            spelt[f"{label}, {form}"] = coded
    return {label: content for label, content in spelt.items() if len(content) >= SHORTEST}


def _plain(canary: Canary) -> dict[str, bytes]:
    if isinstance(canary, bytes):
        return {"raw": canary, "raw, backwards": canary[::-1]}
    forms: tuple[str, ...] = ()
    if isinstance(canary, float):
        forms = ("<d", ">d", "<f", ">f")
    elif isinstance(canary, int):
        forms = ("<q", ">q", "<i", ">i", "<d", ">d")
    plain: dict[str, bytes] = {}
    for form in forms:
        with suppress(struct.error, OverflowError):
            plain[f"packed {form}"] = struct.pack(form, canary)
    for label, text in _texts(str(canary)).items():
        for coding in ("utf-8", "utf-16-le", "utf-16-be", "latin-1"):
            with suppress(UnicodeEncodeError):
                plain[f"{label} in {coding}"] = text.encode(coding)
    return _distinct(plain)


def _texts(text: str) -> dict[str, str]:
    folded = text.casefold()
    texts = {
        "as it is": text,
        "upper": text.upper(),
        "lower": text.lower(),
        "folded": folded,
        "collapsed": " ".join(folded.split()),
        "without spaces": "".join(folded.split()),
    }
    normalised = {}
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        for label, spelling in texts.items():
            normalised[f"{label} {form}"] = unicodedata.normalize(form, spelling)  # type: ignore[arg-type]
    return _distinct(texts | normalised)


def _distinct(contents: dict[str, Any]) -> dict[str, Any]:
    """Each content once, under its first label."""
    labels: dict[Any, str] = {}
    for label, content in contents.items():
        labels.setdefault(content, label)
    return {label: content for content, label in labels.items()}


def _base64(content: bytes) -> dict[str, bytes]:
    """As it looks in a longer text, at each of the three positions where it may begin.

    Letters that its neighbours change are cut.
    """
    coded = {}
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + content)
        begin = (0, 2, 3)[shift]
        end = (shift + len(content)) // 3 * 4
        inner = text[begin:end]
        coded[f"base64+{shift}"] = inner
        coded[f"base64url+{shift}"] = inner.translate(bytes.maketrans(b"+/", b"-_"))
    return _distinct(coded)


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
    canaries = {f"{path.name} number": number}
    for name, form in formats.items():
        der = key.private_bytes(serialization.Encoding.DER, form, serialization.NoEncryption())
        canaries[f"{path.name} {name}"] = der
    for k, line in enumerate(lines):
        canaries[f"{path.name} line {k}"] = line
    return canaries


def leaks(recorded: Mapping[str, bytes], canaries: Mapping[str, Canary]) -> list[str]:
    """Where a canary was found, as sentences; none is what a test wants."""
    sentences = []
    for name, canary in canaries.items():
        for label, content in spellings(canary).items():
            for where, raw in recorded.items():
                at = raw.find(content)
                if at >= 0:
                    sentences.append(f"{name}, {label}: in what {where} has at byte {at}")
    return sentences
