"""A link delivers each message once and in order, and keeps little.

It believes nothing that no honest peer would send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from loops import run, stopped

from tacit.channel.connection import Connection
from tacit.channel.frames import (
    HEADER,
    LARGEST,
    Buffer,
    ChannelError,
    Frame,
    GarbageError,
    Header,
    Kind,
)
from tacit.channel.link import NAMES, OVERHEAD, WINDOW, Link, RestartError

EIGHTH = bytes(WINDOW // 8 - OVERHEAD)  # eight of these fill the window of a name


class Sink:
    """Keeps what is written, as frames."""

    def __init__(self) -> None:
        self.raw = bytearray()
        self.writes = 0
        self.broken = False

    def write(self, data: Buffer, /) -> None:
        self.raw += data
        self.writes += 1

    async def drain(self) -> None:
        if self.broken:
            raise ConnectionResetError

    def abort(self) -> None:
        self.broken = True

    def frames(self, kind: Kind = Kind.DATA) -> list[Frame]:
        frames = []
        raw = bytes(self.raw)
        while raw:
            header = Header.parse(raw[: HEADER.size])
            end_of_name = HEADER.size + header.name_length
            end = end_of_name + header.length
            frames.append(header.frame(raw[HEADER.size : end_of_name], raw[end_of_name:end]))
            raw = raw[end:]
        return [frame for frame in frames if frame.kind is kind]


def connect(link: Link) -> tuple[Connection, Sink]:
    sink = Sink()
    connection = Connection(asyncio.StreamReader(), sink, link.peer, "here")
    link.attach(connection, "process")
    return connection, sink


def a_link(answer: float = 5.0) -> Link:
    return Link("alice", "bob", answer)


def data(number: int, name: str = "x", content: bytes = b"") -> Frame:
    return Frame(Kind.DATA, name, number, content)


def taken(number: int, name: str = "x") -> Frame:
    return Frame(Kind.TAKEN, name, number)


def take(link: Link, frame: Frame) -> None:
    """As if the frame had come over the connection."""
    link._take(frame)
    link._wake()


async def settled() -> None:
    """Everything that can go on without another event has gone on."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_sender_waits_when_the_window_is_full_and_other_names_do_not() -> None:
    async def scene() -> None:
        link = a_link()
        _, sink = connect(link)
        sent = 0

        async def send() -> None:
            nonlocal sent
            for _ in range(24):
                await link.send("x", EIGHTH)
                sent += 1

        sending = asyncio.create_task(send())
        await settled()
        assert sent == len(sink.frames()) == 8
        await link.send("y", b"goes")  # would wait for ever, were it one window
        take(link, taken(3))
        await settled()
        assert sent == 8 + 3
        while sent < 24:
            take(link, taken(sent))
            await settled()
        await sending
        numbers = [frame.number for frame in sink.frames() if frame.name == "x"]
        assert numbers == list(range(24))

    run(scene())


def test_thousands_of_small_messages_fit_into_the_window() -> None:
    """A line of 50 ms from end to end and back carries 2,000 a second only if 100 are under way."""

    async def scene() -> None:
        link = a_link()
        _, sink = connect(link)
        for _ in range(10_000):
            await link.send("x", b"small")
        await settled()
        assert len(sink.frames()) == 10_000

    run(scene())


def test_messages_without_data_fill_the_window_too() -> None:
    async def scene() -> None:
        link = a_link()
        connect(link)
        for _ in range(WINDOW // OVERHEAD):
            await link.send("x", b"")
        sending = asyncio.create_task(link.send("x", b""))
        await settled()
        assert not sending.done()
        await stopped(sending)

    run(scene())


def test_messages_that_are_sent_at_once_leave_in_one_piece() -> None:
    async def scene() -> None:
        link = a_link()
        _, sink = connect(link)
        for _ in range(100):
            await link.send("x", b"small")
        await settled()
        assert sink.writes == 1

    run(scene())


def test_what_was_taken_in_one_moment_is_told_once() -> None:
    async def scene() -> None:
        link = a_link()
        _, sink = connect(link)
        for number in range(100):
            link._take(data(number))
        for _ in range(100):
            await link.receive("x")
        await settled()
        assert [frame.number for frame in sink.frames(Kind.TAKEN)] == [100]

    run(scene())


def test_an_array_may_be_changed_once_it_is_sent() -> None:
    async def scene() -> None:
        link = a_link()
        buffer = bytearray(b"before")
        await link.send("x", memoryview(buffer))
        await link.send("x", memoryview(buffer).toreadonly())  # of a table, for example
        buffer[:] = b"after!"
        _, sink = connect(link)
        await settled()
        assert [frame.data for frame in sink.frames()] == [b"before", b"before"]

    run(scene())


def test_what_was_not_taken_goes_over_the_next_connection_and_what_was_taken_does_not() -> None:
    async def scene() -> None:
        link = a_link()
        await link.send("x", b"0")  # before there is any connection
        _, first = connect(link)
        await link.send("x", b"1")
        await link.send("y", b"2")
        link._take(taken(1))
        link._take(data(0, "z", b"theirs"))
        assert await link.receive("z") == b"theirs"
        await settled()
        _, second = connect(link)
        await settled()
        assert first.broken
        assert [frame.data for frame in first.frames()] == [b"0", b"1", b"2"]
        assert [frame.data for frame in second.frames()] == [b"1", b"2"]
        assert [(frame.name, frame.number) for frame in second.frames(Kind.TAKEN)] == [("z", 1)]

    run(scene())


def test_duplicates_are_dropped() -> None:
    async def scene() -> None:
        link = a_link()
        for number in (0, 1, 0, 1, 2, 1):
            link._take(data(number, content=bytes([number])))
        assert [await link.receive("x") for _ in range(3)] == [b"\0", b"\1", b"\2"]
        link._take(data(2))
        assert not link._incoming["x"].waiting

    run(scene())


def refused(*frames: Frame) -> str:
    link = a_link()
    with pytest.raises(GarbageError) as caught:  # noqa: PT012  (the last of many is the one)
        for frame in frames:
            link._take(frame)
    return str(caught.value)


def test_a_gap_is_garbage() -> None:
    assert refused(data(0), data(2)) == "sent message 2 of 'x' before message 1"
    assert refused(data(2**64 - 1)) == f"sent message {2**64 - 1} of 'x' before message 0"


def test_a_peer_that_ignores_the_window_is_garbage() -> None:
    link = a_link()
    for number in range(8):
        link._take(data(number, content=EIGHTH))
    link._take(data(8, content=bytes(LARGEST)))  # the last one may go beyond
    with pytest.raises(GarbageError, match="keeps sending without waiting for us"):
        link._take(data(9))


def test_every_name_may_fill_its_window_at_the_same_time() -> None:
    """What honest senders may do is never garbage."""
    link = a_link()
    content = bytes(LARGEST)  # one object, so that the test keeps little itself
    for turn in range(2):
        for k in range(NAMES):
            link._take(data(turn, f"n{k}", content))
    assert sum(len(stream.waiting) for stream in link._incoming.values()) == 2 * NAMES


def test_a_peer_that_takes_nothing_is_an_error() -> None:
    """Both sides of a program that sends too much before it receives would wait for ever."""

    async def scene() -> None:
        link = a_link(answer=0.02)
        connect(link)
        for _ in range(8):
            await link.send("x", EIGHTH)
        with pytest.raises(ChannelError) as caught:
            await link.send("x", EIGHTH)
        assert str(caught.value) == "bob has taken no 'x', nor anything else, for 0.02 s"

    run(scene())


def test_what_comes_twice_does_not_prolong_the_wait() -> None:
    link = a_link()
    link._take(data(0))
    link.active = 0.0
    link._take(data(0))
    link._take(taken(0))
    assert link.active == 0.0


def test_a_peer_that_has_left_is_not_waited_for() -> None:
    async def scene() -> None:
        link = a_link()
        connect(link)
        link.ending = True
        link._take(Frame(Kind.BYE))
        with pytest.raises(ChannelError, match="bob has left before it sent 'x'"):
            await link.receive("x")

    run(scene())


def test_too_many_names_are_garbage() -> None:
    frames = [data(0, f"n{k}") for k in range(NAMES + 1)]
    assert refused(*frames) == f"sent messages of more than {NAMES} names"


def test_a_second_hello_is_garbage() -> None:
    assert refused(Frame(Kind.HELLO)) == "introduced itself twice"


@pytest.mark.parametrize("number", [1, 2**64 - 1])
def test_a_peer_cannot_have_taken_what_was_never_sent(number: int) -> None:
    assert refused(taken(number)) == f"says that it took {number} messages 'x', of 0 sent"


def test_names_of_messages_that_were_never_sent_are_not_kept() -> None:
    link = a_link()
    for k in range(10 * NAMES):
        link._take(taken(0, f"n{k}"))
    assert len(link._outgoing) <= NAMES


def test_as_many_names_can_be_sent_as_can_be_received() -> None:
    async def scene() -> None:
        link = a_link()
        names = [f"n{k}" for k in range(NAMES)]
        for name in names:
            await link.send(name, b"")
        for name in names:
            link._take(taken(1, name))
        await link.flush()

    run(scene())


def test_a_peer_that_is_there_and_never_answers_is_an_error() -> None:
    async def scene() -> None:
        link = a_link(answer=0.02)
        connect(link)
        with pytest.raises(ChannelError) as caught:
            await link.receive("tags")
        assert str(caught.value) == "bob has sent no 'tags', nor anything else, for 0.02 s"

    run(scene())


def test_every_call_that_waits_hears_that_the_attempt_is_void() -> None:
    async def scene() -> None:
        link = a_link()
        connect(link)
        for _ in range(8):
            await link.send("x", EIGHTH)
        calls = (link.send("x", b""), link.receive("y"), link.flush())
        waiting = [asyncio.create_task(call) for call in calls]
        await settled()
        link.reset(RestartError("bob has started again"))
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in errors] == [RestartError] * 3
        with pytest.raises(RestartError):
            await link.send("x", b"")
        link.fail(None)
        _, sink = connect(link)
        await link.send("x", b"new")
        await settled()
        assert [(frame.number, frame.data) for frame in sink.frames()] == [(0, b"new")]

    run(scene())


def test_a_receiver_that_is_cancelled_loses_no_message() -> None:
    """The stream is stuck, so that taking a message and saying so takes a while."""

    async def scene() -> None:
        link = a_link()
        _, sink = connect(link)
        stuck = asyncio.Event()
        sink.drain = stuck.wait  # type: ignore[method-assign, assignment]
        messages = []
        for number in range(3):
            link._take(data(number, content=bytes([number])))
        for _ in range(3):
            receiving = asyncio.create_task(link.receive("x"))
            await settled()
            if await stopped(receiving) is None:
                messages.append(receiving.result())
        stuck.set()
        while link._incoming["x"].waiting:
            messages.append(await link.receive("x"))
        assert messages == [b"\0", b"\1", b"\2"]

    run(scene())


@pytest.mark.parametrize("cut", [connect, lambda link: link.reset(RestartError("anew"))])
def test_nothing_is_taken_from_a_connection_that_was_replaced(
    cut: Callable[[Link], object],
) -> None:
    """Its last frames may have come in before: they belong to an attempt that is over."""

    async def scene() -> None:
        link = a_link()
        old, _ = connect(link)
        attending = asyncio.create_task(link.attend(old))
        await settled()
        old.reader.feed_data(data(0, content=b"stale").encode())  # the reader runs after us
        cut(link)
        await settled()
        assert attending.done()
        assert not any(stream.waiting for stream in link._incoming.values())

    run(scene())


def test_a_large_message_on_a_slow_line_is_a_sign_of_life() -> None:
    async def scene() -> None:
        link = a_link()
        connection, _ = connect(link)
        reading = asyncio.create_task(connection.read())
        raw = data(0, content=bytes(1000)).encode()
        chunks = [raw[start : start + 100] for start in range(0, len(raw), 100)]
        for chunk in chunks[:-1]:
            connection.heard = 0.0
            connection.reader.feed_data(chunk)
            await settled()
            assert connection.heard > 0.0
        connection.reader.feed_data(chunks[-1])
        assert (await reading).data == bytes(1000)

    run(scene())


def test_bytes_are_counted_over_all_connections() -> None:
    async def scene() -> None:
        link = a_link()
        _, first = connect(link)
        await link.send("x", b"abc")
        await settled()
        link.detach("test")
        _, second = connect(link)
        await settled()
        assert link.sent == len(first.raw) + len(second.raw)

    run(scene())


def test_a_broken_connection_does_not_disturb_a_sender() -> None:
    async def scene() -> None:
        link = a_link()
        _, sink = connect(link)
        sink.abort()
        await link.send("x", b"kept")
        link._take(data(0, "y", b"known"))
        assert await link.receive("y") == b"known"
        _, second = connect(link)
        await settled()
        assert [frame.data for frame in second.frames()] == [b"kept"]

    run(scene())
