"""What travels comes back as it was, and nothing else is believed."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.channel.connection import Connection
from tacit.channel.frames import (
    HEADER,
    LARGEST,
    LONGEST_NAME,
    MAGIC,
    VERSION,
    ChannelError,
    Frame,
    GarbageError,
    Header,
    Kind,
    VersionError,
)
from tacit.channel.greeting import LEAP, LONGEST, Hello

NAMES = st.text(st.characters(max_codepoint=127), max_size=LONGEST_NAME)
FRAMES = st.builds(
    Frame, st.sampled_from(Kind), NAMES, st.integers(0, 2**64 - 1), st.binary(max_size=300)
)


class Nowhere:
    """Takes whatever is written."""

    def write(self, data: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def abort(self) -> None: ...


def read_all(raw: bytes, largest: int = LARGEST) -> list[Frame]:
    """The frames in these bytes, as a connection reads them."""

    async def read() -> list[Frame]:
        reader = asyncio.StreamReader()
        reader.feed_data(raw)
        reader.feed_eof()
        connection = Connection(reader, Nowhere(), "bob", "here")
        connection.largest = largest
        frames = []
        with suppress(ConnectionResetError):
            while True:
                frames += await connection.read_all()
        assert not connection._buffer, "a frame was cut"
        return frames

    return asyncio.run(read())


def packed(
    magic: bytes = MAGIC,
    version: int = VERSION,
    kind: int = 2,
    name: int = 0,
    number: int = 0,
    length: int = 0,
) -> bytes:
    return HEADER.pack(magic, version, kind, name, number, length)


@given(st.lists(FRAMES, max_size=4))
def test_frames_come_back_as_they_were(frames: list[Frame]) -> None:
    assert read_all(b"".join(frame.encode() for frame in frames)) == frames


@given(FRAMES, st.data())
def test_a_frame_that_is_cut_is_a_connection_that_broke(frame: Frame, data: st.DataObject) -> None:
    raw = frame.encode()
    with pytest.raises(AssertionError, match="a frame was cut"):
        read_all(raw[: data.draw(st.integers(1, len(raw) - 1))])


@given(st.binary(min_size=HEADER.size, max_size=HEADER.size))
def test_random_headers_are_refused(raw: bytes) -> None:
    with pytest.raises(GarbageError, match="not a message of tacit"):
        Header.parse(raw if raw[:4] != MAGIC else bytes(HEADER.size))


@pytest.mark.parametrize("version", [0, 1, 255])
def test_another_version_says_so(version: int) -> None:
    expected = (
        f"speaks version {version} of the channel and this side 2; install the same tacit on both"
    )
    with pytest.raises(VersionError, match=expected):
        Header.parse(packed(version=version, kind=200, name=9999, length=2**32 - 1))


@pytest.mark.parametrize("kind", [0, 8, 255])
def test_an_unknown_kind_is_garbage(kind: int) -> None:
    with pytest.raises(GarbageError, match=f"unknown kind {kind}"):
        Header.parse(packed(kind=kind))


@pytest.mark.parametrize(
    ("name", "length"), [(LONGEST_NAME + 1, 0), (0, LARGEST + 1), (65535, 2**32 - 1)]
)
def test_nothing_is_read_on_the_word_of_an_announcement_that_is_too_large(
    name: int, length: int
) -> None:
    with pytest.raises(
        GarbageError, match=f"announced a message of {length} bytes with a name of {name}"
    ):
        read_all(packed(name=name, length=length))


def test_a_connection_may_take_less_than_the_largest_frame() -> None:
    assert read_all(Frame(Kind.DATA, data=bytes(10)).encode(), largest=10)
    with pytest.raises(GarbageError, match=r"11 bytes .* at most 10 and 64"):
        read_all(Frame(Kind.DATA, data=bytes(11)).encode(), largest=10)


def test_a_name_that_is_not_ascii_is_garbage() -> None:
    with pytest.raises(GarbageError, match="name is not ASCII"):
        read_all(packed(name=2) + "é".encode())


@pytest.mark.parametrize(
    ("name", "data"), [("n" * (LONGEST_NAME + 1), b""), ("n", bytes(LARGEST + 1)), ("é", b"")]
)
def test_a_frame_that_no_peer_would_take_cannot_be_made(name: str, data: bytes) -> None:
    with pytest.raises(ValueError):
        Frame(Kind.DATA, name, 0, data)


HELLO = {"sender": "bob", "receiver": "alice", "process": "p", "epoch": 0, "purpose": "psi"}


def parse(said: object, kind: Kind = Kind.HELLO) -> Hello:
    data = said if isinstance(said, bytes) else json.dumps(said).encode()
    return Hello.parse(Frame(kind, data=data))


def test_a_hello_comes_back_as_it_was() -> None:
    hello = Hello("bob", "alice", "ab" * 16, 7, "psi")
    assert Hello.parse(hello.frame()) == hello


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\xff\xfe\xfd",
        b"not json",
        b"[" * LONGEST,
        b'{"a":' * (LONGEST // 5),
        [],
        None,
        "hello",
        {},
        {**HELLO, "more": 1},
        {key: value for key, value in HELLO.items() if key != "epoch"},
        {**HELLO, "epoch": True},
        {**HELLO, "epoch": "0"},
        {**HELLO, "epoch": 0.0},
        {**HELLO, "epoch": None},
        {**HELLO, "epoch": [0]},
        {**HELLO, "sender": 3},
        {**HELLO, "sender": ["bob"]},
        {**HELLO, "process": None},
        {**HELLO, "purpose": {"psi": 1}},
        json.dumps(HELLO).encode().replace(b": 0", b": NaN"),
        json.dumps(HELLO).encode().replace(b": 0", b": " + b"9" * 4000),
    ],
)
def test_what_is_not_a_hello_is_garbage(said: object) -> None:
    with pytest.raises(GarbageError, match="introduced itself"):
        parse(said)


@pytest.mark.parametrize(
    "wrong", [{"epoch": -1}, {"epoch": 1 << 62}, {"process": ""}, {"process": "p" * 65}]
)
def test_a_hello_with_impossible_values_is_garbage(wrong: dict[str, object]) -> None:
    with pytest.raises(GarbageError, match="impossible epoch or process"):
        parse(HELLO | wrong)


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.TAKEN, Kind.BEAT, Kind.BYE])
def test_another_frame_in_the_place_of_a_hello_is_garbage(kind: Kind) -> None:
    with pytest.raises(GarbageError, match="did not introduce itself"):
        parse(HELLO, kind)


def test_a_huge_hello_is_garbage() -> None:
    with pytest.raises(GarbageError, match="did not introduce itself"):
        parse(b" " * LONGEST + json.dumps(HELLO).encode())


@given(st.binary(max_size=400))
def test_random_bytes_are_never_a_hello(raw: bytes) -> None:
    with pytest.raises(GarbageError):
        parse(raw)


def check(**changed: object) -> None:
    connection = Connection(
        asyncio.StreamReader(loop=asyncio.new_event_loop()), Nowhere(), "bob", "here"
    )
    connection.reader._loop.close()
    ours = Hello("alice", "bob", "q", 5, "psi")
    Hello(**(HELLO | changed)).check(connection, ours, ["bob", "carol"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sender": "carol"}, "says that it is 'carol', and its certificate says bob"),
        ({"receiver": "carol"}, "wanted 'carol', and this is alice"),
        ({"purpose": "fuse"}, "runs 'fuse', and alice runs 'psi'; run the same on both sides"),
        ({"epoch": 5 + LEAP + 1}, "introduced itself with an impossible epoch"),
        ({"epoch": (1 << 32) - 1}, "introduced itself with an impossible epoch"),
    ],
)
def test_whoever_is_not_who_it_says_or_is_wrong_here_is_refused(
    changed: dict[str, object], message: str
) -> None:
    check()
    check(epoch=5 + LEAP)
    with pytest.raises(ChannelError) as caught:
        check(**changed)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text", ["one\ntwo\r\nthree", "\x1b[2J\x1b[31mred", "bell\a nul\0", "\u202eright to left"]
)
def test_what_a_peer_says_when_it_refuses_is_one_line_that_a_terminal_can_show(text: str) -> None:
    with pytest.raises(ChannelError, match="refused us: ") as caught:
        parse(text.encode(), Kind.REFUSED)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("why", ["no", "x" * 600, "é" * 600, "half a pair: \ud800"])
def test_whatever_the_reason_is_a_refusal_carries_it(why: str) -> None:
    words = Frame.refusing(why).words
    assert words.startswith(why[:10])
    assert len(words) <= 500
    assert "�" not in words[:-1]


def test_a_name_that_is_not_ascii_is_refused_behind_other_frames_too() -> None:
    good = Frame(Kind.DATA, "a", 1, b"x").encode()
    with pytest.raises(GarbageError, match="a message whose name is not ASCII"):
        read_all(good + packed(name=1, length=0) + b"\xe9" + good)
