"""The channel between two processes with mutual TLS: tacit, grpc.aio, a bare TLS socket.

"round trip" is the time of a message of four bytes and its answer. "small/s" counts messages of 100
bytes under one name, "MB/s" is the rate of messages of 1 MiB. Both go one way, and are answered
once, when the last one was taken: the clock stops when that answer is there. tacit's links and
gRPC carry raw bytes, gRPC without protobuf; tacit's session carries named NumPy arrays. The bare
socket blocks and frames nothing: it shows what OpenSSL and the system allow from Python. gRPC is
left out where grpcio is not installed.

Longer lines lead through a proxy that keeps every byte for half of the round trip and limits no
rate. It is a third process, and takes its share of the cores. All take turns, and medians are
shown; behind each figure is its ratio to that of tacit's links.

Usage: python benchmarks/channel.py [repeats]
"""

from __future__ import annotations

import asyncio
import importlib.util
import multiprocessing
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.channel.certificates import create_authority, issue
from tacit.channel.consortium import Address
from tacit.channel.credentials import Credentials
from tacit.channel.endpoint import Endpoint, Program
from tacit.channel.link import Link
from tacit.channel.opening import in_session
from tacit.channel.session import Session
from tacit.channel.statements import Protocol
from tacit.channel.tls import TlsCarrier

SHORT = b"four"
SMALL = b"x" * 100
LARGE = b"x" * (1 << 20)
GRPC_OPTIONS = [
    ("grpc.max_receive_message_length", 1 << 26),
    ("grpc.ssl_target_name_override", "alice"),
]


@dataclass(frozen=True)
class Line:
    """How far apart the two are, and how much is sent over that distance."""

    title: str
    delay: float  # seconds that a byte takes in one direction
    trips: int
    small: int = 20_000  # messages
    large: int = 200


LINES = [
    Line("loopback", 0, trips=1000),
    Line("10 ms", 0.005, trips=100),
    Line("50 ms", 0.025, trips=40),
]


class Figures(NamedTuple):
    trip: float  # milliseconds
    small: float  # messages per second
    rate: float  # MB/s


NOTHING = Figures(0, 0, 0)  # alice only answers; bob measures


@dataclass(frozen=True)
class Wire:
    """One side's end of what is measured."""

    send: Callable[[bytes], Awaitable[Any]]
    receive: Callable[[int], Awaitable[Any]]  # the next message, which has so many bytes


# what is measured


async def answer(wire: Wire, line: Line) -> Figures:
    """Alice's side."""
    for _ in range(1 + line.trips):
        await wire.receive(len(SHORT))
        await wire.send(SHORT)
    for message, count in ((SMALL, line.small), (LARGE, line.large)):
        for _ in range(count):
            await wire.receive(len(message))
        await wire.send(SHORT)
    return NOTHING


async def ask(wire: Wire, line: Line) -> Figures:
    """Bob's side."""
    await seconds(wire, SHORT)  # the connection stands before the clock starts
    trips = [await seconds(wire, SHORT) for _ in range(line.trips)]
    small = await seconds(wire, SMALL, line.small)
    large = await seconds(wire, LARGE, line.large)
    trip = 1e3 * statistics.median(trips)
    return Figures(trip, line.small / small, line.large * len(LARGE) / 1e6 / large)


async def seconds(wire: Wire, message: bytes, count: int = 1) -> float:
    """Until so many messages were taken, and the answer to the last one is there."""
    start = time.perf_counter()
    for _ in range(count):
        await wire.send(message)
    await wire.receive(len(SHORT))
    return time.perf_counter() - start


def role(me: str) -> Callable[[Wire, Line], Awaitable[Figures]]:
    return answer if me == "alice" else ask


# tacit


def links_side(me: str, port: int, folder: Path, line: Line) -> Figures:
    async def program(links: Mapping[str, Link]) -> Figures:
        (link,) = links.values()
        wire = Wire(lambda data: link.send("m", data), lambda _: link.receive("m"))
        return await role(me)(wire, line)

    return converse(me, port, folder, program)


def session_side(me: str, port: int, folder: Path, line: Line) -> Figures:
    async def program(session: Session) -> Figures:
        (peer,) = session.links

        async def send(data: bytes) -> None:
            await session.send(peer, "m", {"array": np.frombuffer(data, np.uint8)})

        return await role(me)(Wire(send, lambda _: session.receive(peer, "m")), line)

    protocol = Protocol({"line": line.title})
    return converse(me, port, folder, in_session(program, me, ("alice", "bob"), protocol))


def converse(me: str, port: int, folder: Path, program: Program[Figures]) -> Figures:
    credentials = Credentials.read(folder / "ca.pem", folder / f"{me}.pem", folder / f"{me}.key")
    address = Address("127.0.0.1", port)
    if me == "alice":
        peer = "bob"
        carrier = TlsCarrier(credentials, listen=address, connect={})
    else:
        peer = "alice"
        carrier = TlsCarrier(credentials, listen=None, connect={"alice": address})
    return asyncio.run(Endpoint(me, [peer], carrier, purpose="benchmark").run(program))


# gRPC


def grpc_side(me: str, port: int, folder: Path, line: Line) -> Figures:
    import grpc

    address = f"127.0.0.1:{port}"
    authority = (folder / "ca.pem").read_bytes()
    certificate = (folder / f"{me}.pem").read_bytes()
    key = (folder / f"{me}.key").read_bytes()
    if me == "alice":
        credentials = grpc.ssl_server_credentials([(key, certificate)], authority, True)
        asyncio.run(serve_grpc(address, credentials, line))
        return NOTHING
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    return asyncio.run(dial_grpc(address, credentials, line))


async def serve_grpc(address: str, credentials: Any, line: Line) -> None:
    """Answers until the process is ended."""
    import grpc

    async def serve(_: Any, context: Any) -> None:
        await answer(Wire(context.write, lambda _: context.read()), line)

    class Service(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            return grpc.stream_stream_rpc_method_handler(serve)

    server = grpc.aio.server(options=GRPC_OPTIONS)
    server.add_generic_rpc_handlers((Service(),))
    server.add_secure_port(address, credentials)
    await server.start()
    await server.wait_for_termination()


async def dial_grpc(address: str, credentials: Any, line: Line) -> Figures:
    import grpc

    async with grpc.aio.secure_channel(address, credentials, options=GRPC_OPTIONS) as channel:
        call = channel.stream_stream("/tacit/benchmark")(wait_for_ready=True)
        figures = await ask(Wire(call.write, lambda _: call.read()), line)
        await call.done_writing()
        return figures


# a bare socket


def socket_side(me: str, port: int, folder: Path, line: Line) -> Figures:
    side = ssl.PROTOCOL_TLS_SERVER if me == "alice" else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(side)
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / f"{me}.pem", folder / f"{me}.key")
    raw = accepted(port) if me == "alice" else dialled(port)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    name = None if me == "alice" else "alice"
    with context.wrap_socket(raw, server_side=me == "alice", server_hostname=name) as secured:
        return asyncio.run(use_socket(me, secured, line))


async def use_socket(me: str, secured: ssl.SSLSocket, line: Line) -> Figures:
    buffer = memoryview(bytearray(len(LARGE)))

    async def send(data: bytes) -> None:
        secured.sendall(data)

    async def receive(size: int) -> None:
        while size:
            size -= secured.recv_into(buffer[:size])

    return await role(me)(Wire(send, receive), line)


def accepted(port: int) -> socket.socket:
    with socket.create_server(("127.0.0.1", port)) as server:
        return server.accept()[0]


def dialled(port: int) -> socket.socket:
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.05)
    sys.exit(f"nobody answered on port {port}")


# a longer line


class Delayed(asyncio.Protocol):
    """One direction of a connection: passes on what comes, a while later."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.chunks: deque[bytes] = deque()
        self.loop = asyncio.get_running_loop()
        self.other: Delayed | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)
        self.loop.call_later(self.delay, self._pass_on)

    def _pass_on(self) -> None:
        if self.other is not None:
            self.other.transport.write(self.chunks.popleft())

    def connection_lost(self, _: Exception | None) -> None:
        if self.other is not None:
            self.loop.call_later(self.delay, self.other.transport.close)


class Entrance(Delayed):
    """The side of the proxy where bob dials; it waits until alice can be had."""

    def __init__(self, delay: float, port: int) -> None:
        super().__init__(delay)
        self.port = port

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.pause_reading()
        self.task = self.loop.create_task(self._lead_on())

    async def _lead_on(self) -> None:
        exit_ = await self._dial()
        self.other = exit_
        exit_.other = self
        self.transport.resume_reading()

    async def _dial(self) -> Delayed:
        while True:
            try:
                _, exit_ = await self.loop.create_connection(
                    lambda: Delayed(self.delay), "127.0.0.1", self.port
                )
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)
            else:
                return exit_


def delay_line(entrance: int, port: int, delay: float) -> None:
    """Leads connections from one port to another until the process is ended."""

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Entrance(delay, port), "127.0.0.1", entrance)
        await server.serve_forever()

    asyncio.run(serve())


# turns

Side = Callable[[str, int, Path, Line], Figures]


def measure(side: Side, folder: Path, line: Line) -> Figures:
    """Alice's side in a process of its own, bob's in this one, and the proxy in a third."""
    port = entrance = free_port()
    with ExitStack() as stack:
        stack.enter_context(process(side, "alice", port, folder, line))
        if line.delay:
            entrance = free_port()
            stack.enter_context(process(delay_line, entrance, port, line.delay))
        return side("bob", entrance, folder, line)


@contextmanager
def process(target: Callable[..., Any], *arguments: Any) -> Any:
    spawn = multiprocessing.get_context("spawn")
    child = spawn.Process(target=target, args=arguments, daemon=True)
    child.start()
    try:
        yield
    finally:
        child.terminate()
        child.join()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    sides: dict[str, Side] = {"tacit's links": links_side, "tacit's session": session_side}
    if importlib.util.find_spec("grpc"):
        sides["grpc.aio"] = grpc_side
    sides["bare TLS socket"] = socket_side
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_authority(folder, "benchmark")
        for party in ("alice", "bob"):
            issue(folder, party, with_key=True)
        for line in LINES:
            show(line, repeats, take_turns(sides, folder, line, repeats))


def take_turns(
    sides: Mapping[str, Side], folder: Path, line: Line, repeats: int
) -> dict[str, list[Figures]]:
    measured: dict[str, list[Figures]] = {title: [] for title in sides}
    for _ in range(repeats):
        for title, side in sides.items():
            measured[title].append(measure(side, folder, line))
    return measured


def show(line: Line, repeats: int, measured: Mapping[str, list[Figures]]) -> None:
    heads = "".join(f"{head:>20}" for head in ("round trip, ms", "small/s", "MB/s"))
    print(f"\n{f'{line.title}, medians of {repeats}':22}{heads}")
    ours = medians(measured["tacit's links"])
    for title, figures in measured.items():
        row = f"{title:22}"
        for figure, our_figure, digits in zip(medians(figures), ours, (2, 0, 0), strict=True):
            row += f"{figure:13,.{digits}f}{figure / our_figure:7.2f}"
        print(row, flush=True)


def medians(figures: list[Figures]) -> Figures:
    return Figures(*map(statistics.median, zip(*figures, strict=True)))


if __name__ == "__main__":
    main()
