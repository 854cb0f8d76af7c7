"""Parties that meet over real sockets on this machine."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from consortia import LOOPBACK, Identity, identity

from tacit.channel import endpoint as endpoints
from tacit.channel.consortium import Address
from tacit.channel.endpoint import Endpoint, Timing
from tacit.channel.link import Link
from tacit.channel.tls import TlsCarrier
from tacit.core.events import Event, Warned

Links = Mapping[str, Link]
QUICK = Timing(beat=0.05, silence=2, away=20, answer=40, greeting=5)


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("SHORTEST", 0.01), ("LONGEST", 0.05), ("FAREWELL", 0.3)):
        monkeypatch.setattr(endpoints, name, seconds)


@dataclass
class Party:
    network: TlsCarrier
    endpoint: Endpoint
    told: list[Event]

    @property
    def warnings(self) -> list[str]:
        return [anonymous(event.text) for event in self.told if isinstance(event, Warned)]

    async def address(self) -> Address:
        """Where it listens, as soon as it does."""
        while self.network.socket is None:
            await asyncio.sleep(0.001)
        assert self.network.address is not None
        return self.network.address


def anonymous(text: str) -> str:
    """Ports differ from run to run."""
    return re.sub(r"127\.0\.0\.1:\d+", "HERE", text)


def listener(
    me: str,
    *peers: str,
    shown: Identity | None = None,
    timing: Timing = QUICK,
    at: Address = LOOPBACK,
) -> Party:
    return _party(me, peers, (shown or identity(me)).network(listen=at), timing)


def dialler(
    me: str, peers: Mapping[str, Address], *, shown: Identity | None = None, timing: Timing = QUICK
) -> Party:
    return _party(me, tuple(peers), (shown or identity(me)).network(connect=peers), timing)


def _party(me: str, peers: tuple[str, ...], network: TlsCarrier, timing: Timing) -> Party:
    told: list[Event] = []
    return Party(
        network,
        Endpoint(me, peers, network, purpose="test", timing=timing, on_event=told.append),
        told,
    )


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

        _, came = await asyncio.gather(send(), receive())
        return came == [message(link.peer, number) for number in range(count)]

    return program


class Proxy:
    """Between two sides: `broken` cuts all connections now, `silent` keeps them and passes nothing on."""

    def __init__(self, target: Address) -> None:
        self.target, self.silent, self.count = target, False, 0
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Proxy:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = Address("127.0.0.1", self.server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        while any(
            not task.done() for task in self._tasks
        ):  # cancelled ones would be reported by asyncio's server
            self.cut()
            await asyncio.sleep(0.01)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.count += 1
        self._writers.append(writer)
        with suppress(OSError):
            there, onward = await asyncio.open_connection(self.target.host, self.target.port)
            self._writers.append(onward)
            await asyncio.gather(self._pass(reader, onward), self._pass(there, writer))
        writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 14):
                if not self.silent:
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()
