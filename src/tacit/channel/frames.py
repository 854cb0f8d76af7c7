"""What travels: a fixed header, a name and raw bytes.

Nothing in it is code, and nothing is trusted unchecked.

    0      4        5     6             8       16      20
    | TACT | version | kind | name length | number | length | name | data

Integers are unsigned and big-endian. The first five bytes keep their meaning in every version, so
that an old side and a new one can tell each other that their versions differ.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from tacit.core.errors import TacitError

MAGIC = b"TACT"
VERSION = 2
HEADER = struct.Struct("!4sBBHQI")
LONGEST_NAME = 64  # bytes
LARGEST = 4 << 20  # bytes of data in a frame
LONGEST_WORDS = 500  # bytes of data that are shown as text
Buffer = bytes | bytearray | memoryview


class ChannelError(TacitError):
    """The conversation with another party cannot go on."""


class GarbageError(ChannelError):
    """Bytes that no party of ours sends."""


class VersionError(ChannelError):
    """The other side speaks another version of these frames."""


class Kind(IntEnum):
    HELLO = 1  # who speaks, and which run of which program
    DATA = 2  # a message; the number counts those of its name
    TAKEN = 3  # how many messages of that name the program received, so that more may be sent
    BEAT = 4  # a sign of life
    REFUSED = 5  # why the connection ends, in words
    BYE = 6  # all is done
    BUSY = 7  # another process of yours is talking to us


@dataclass(frozen=True)
class Frame:
    kind: Kind
    name: str = ""
    number: int = 0
    data: bytes | memoryview = b""

    def __post_init__(self) -> None:
        if not self.name.isascii() or len(self.name) > LONGEST_NAME or len(self.data) > LARGEST:
            raise ValueError(
                f"{self.name}: {len(self.data)} bytes; messages have at most {LARGEST}, "
                f"names {LONGEST_NAME} in ASCII"
            )

    @property
    def words(self) -> str:
        """The data as text: one line, short, and without what could command a terminal."""
        text = bytes(self.data[:LONGEST_WORDS]).decode("utf-8", "replace")
        printable = "".join(letter if letter.isprintable() else " " for letter in text)
        return " ".join(printable.split())

    @classmethod
    def refusing(cls, why: str) -> Frame:
        """The frame that ends a connection for this reason."""
        return cls(Kind.REFUSED, data=why[:LONGEST_WORDS].encode("utf-8", "replace"))

    def head(self) -> bytes:
        """What comes before the data.

        >>> Frame(Kind.DATA, "a", 1, b"xy").head().hex(" ", 4)
        '54 41435402 02000100 00000000 00000100 00000261'
        """
        name = self.name.encode("ascii")
        return HEADER.pack(MAGIC, VERSION, self.kind, len(name), self.number, len(self.data)) + name

    def encode(self) -> bytes:
        """All of the frame."""
        return self.head() + bytes(self.data)


@dataclass(frozen=True)
class Header:
    kind: Kind
    name_length: int
    number: int
    length: int

    @staticmethod
    def parse(raw: Buffer, largest: int = LARGEST) -> Header:
        """The header, checked before anything is read or kept on its word."""
        magic, version, kind, name_length, number, length = HEADER.unpack(raw)
        if magic != MAGIC:
            raise GarbageError("sent something that is not a message of tacit")
        if version != VERSION:
            raise VersionError(
                f"speaks version {version} of the channel and this side {VERSION}; "
                "install the same tacit on both"
            )
        if kind not in Kind._value2member_map_:
            raise GarbageError(f"sent a message of unknown kind {kind}")
        if name_length > LONGEST_NAME or length > largest:
            raise GarbageError(
                f"announced a message of {length} bytes with a name of {name_length}; "
                f"at most {largest} and {LONGEST_NAME} are taken"
            )
        return Header(Kind(kind), name_length, number, length)

    def frame(self, name: bytes, data: bytes) -> Frame:
        """The frame with the name and the data that follow the header."""
        if not name.isascii():
            raise GarbageError("sent a message whose name is not ASCII")
        return Frame(self.kind, name.decode("ascii"), self.number, data)
