"""Parties that meet over real sockets on this machine."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from consortia import LOOPBACK, Identity, identity
from loops import until

from tacit.channel import endpoint as endpoints
from tacit.channel.consortium import Address
from tacit.channel.endpoint import Endpoint
from tacit.channel.frames import ChannelError
from tacit.channel.link import Link
from tacit.channel.timing import Timing
from tacit.channel.tls import TlsCarrier
from tacit.core.events import Event, Noted, Warned

Links = Mapping[str, Link]
# Signs of life are frequent; nothing else depends on how fast this machine is.
PATIENT = Timing(beat=0.05, silence=60, away=60, answer=60, greeting=60)


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries to connect, and the wait for a farewell, are short."""
    monkeypatch.setattr(endpoints, "SHORTEST", 0.01)
    monkeypatch.setattr(endpoints, "LONGEST", 0.05)
    monkeypatch.setattr(endpoints, "FAREWELL", 0.3)


@dataclass
class Party:
    """One side of a conversation, and what it was told."""

    carrier: TlsCarrier
    endpoint: Endpoint
    events: list[Event]

    @property
    def warnings(self) -> list[str]:
        return [anonymous(event.text) for event in self.events if isinstance(event, Warned)]

    @property
    def notes(self) -> list[str]:
        return [anonymous(event.text) for event in self.events if isinstance(event, Noted)]

    async def address(self) -> Address:
        """Where it listens, as soon as it does."""
        await until(lambda: self.carrier.socket is not None)
        assert self.carrier.address is not None
        return self.carrier.address

    def lose_patience(self, away: float) -> None:
        """From now on, it gives up a peer that is away for longer than this."""
        self.endpoint.presence.timing = replace(self.endpoint.timing, away=away)


def anonymous(text: str) -> str:
    """Ports differ from run to run."""
    return re.sub(r"127\.0\.0\.1:\d+", "HERE", text)


def listener(
    me: str,
    *peers: str,
    shown: Identity | None = None,
    timing: Timing = PATIENT,
    at: Address = LOOPBACK,
) -> Party:
    carrier = (shown or identity(me)).carrier(listen=at)
    return _party(me, peers, carrier, timing)


def dialler(
    me: str,
    peers: Mapping[str, Address],
    *,
    shown: Identity | None = None,
    timing: Timing = PATIENT,
    proxy: str | None = None,
) -> Party:
    carrier = (shown or identity(me)).carrier(connect=peers, proxy=proxy)
    return _party(me, tuple(peers), carrier, timing)


def _party(me: str, peers: tuple[str, ...], carrier: TlsCarrier, timing: Timing) -> Party:
    events: list[Event] = []
    endpoint = Endpoint(me, peers, carrier, purpose="test", timing=timing, on_event=events.append)
    return Party(carrier, endpoint, events)


async def failure(work: Awaitable[Any]) -> str:
    """The one line with which it ends."""
    with pytest.raises(ChannelError) as caught:
        await work
    assert "\n" not in str(caught.value)
    return anonymous(str(caught.value))


async def gives_up(bob: Party, why: str) -> None:
    """Bob goes on after each answer that is not the peer's own, until his patience ends."""
    (peer,) = bob.endpoint.links
    running = asyncio.create_task(failure(bob.endpoint.run(exchange())))
    await until(lambda: f"waiting for {peer} to answer at HERE ({why})" in bob.notes)
    bob.lose_patience(away=0.01)
    ending = f"within 0.01 s ({why}); start all sides again"
    assert await running == f"{peer} could not be reached at HERE {ending}"


def exchange(count: int = 5, size: int = 100) -> Callable[[Links], Awaitable[bool]]:
    """Numbered messages in both directions; whether what came is what the other sent."""

    def message(sender: str, number: int) -> bytes:
        return f"{sender} {number} ".encode().ljust(size, b".")

    async def program(links: Links) -> bool:
        (link,) = links.values()

        async def send() -> None:
            for number in range(count):
                await link.send("x", message(link.me, number))

        async def receive() -> list[bytes]:
            return [await link.receive("x") for _ in range(count)]

        _, messages = await asyncio.gather(send(), receive())
        return messages == [message(link.peer, number) for number in range(count)]

    return program


@dataclass
class Line:
    """A connection through a proxy; `left` is how many bytes may still pass, None for any."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    left: int | None

    def allowed(self, data: bytes) -> bytes:
        """As much of these bytes as may still pass."""
        if self.left is None:
            return data
        data = data[: self.left]
        self.left -= len(data)
        return data

    def cut(self) -> None:
        self.near.transport.abort()
        self.far.transport.abort()


class Proxy:
    """Between two sides. Lines are used up after so many bytes, the first after `budgets[0]`.

    A line that is used up breaks or, if the proxy is `silent`, stays and passes nothing on. Lines
    beyond the budgets hold.
    """

    def __init__(
        self, target: Address, budgets: Sequence[int] = (), *, silent: bool = False
    ) -> None:
        self.target = target
        self.budgets = list(budgets)
        self.silent = silent
        self.used_up = 0  # lines
        self._lines: list[Line] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Proxy:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = Address("127.0.0.1", self.server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        # Tasks are not cancelled, since asyncio's server would report that.
        while any(not task.done() for task in self._tasks):
            for line in self._lines:
                line.cut()
            await asyncio.sleep(0.01)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        budget = self.budgets.pop(0) if self.budgets else None
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(
                self.target.host, self.target.port
            )
            line = Line(writer, far_writer, budget)
            self._lines.append(line)
            await asyncio.gather(
                self._pass(reader, far_writer, line), self._pass(far_reader, writer, line)
            )
        writer.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: Line
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 14):
                was_used_up = line.left == 0
                allowed = line.allowed(data)
                if allowed:
                    writer.write(allowed)
                    await writer.drain()
                if line.left == 0 and not was_used_up:
                    self.used_up += 1
                    if not self.silent:
                        line.cut()
        writer.transport.abort()
