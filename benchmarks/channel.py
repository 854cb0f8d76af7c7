"""The channel between two processes with mutual TLS: tacit's links, grpc.aio, a bare TLS socket.

"MB/s" is measured with 200 messages of 1 MB, each answered by four bytes. "round trip" is the time
of a message of four bytes and its answer, the median of 1,000. The bare socket blocks, frames
nothing and answers the large messages once, at their end: it shows what OpenSSL and the loopback
interface allow from Python. gRPC carries raw bytes, without protobuf; it is left out where grpcio
is not installed. They take turns, and medians are shown.

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
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from tacit.channel.certificates import create_authority, issue
from tacit.channel.consortium import Address
from tacit.channel.credentials import Credentials
from tacit.channel.endpoint import Endpoint
from tacit.channel.link import Link
from tacit.channel.tls import TlsCarrier

MESSAGE = b"x" * (1 << 20)
MESSAGES = 200
SHORT = b"four"
TRIPS = 1000
Figures = tuple[float, float]  # MB/s and milliseconds
GRPC_OPTIONS = [
    ("grpc.max_receive_message_length", 1 << 26),
    ("grpc.ssl_target_name_override", "alice"),
]
NOTHING = (0.0, 0.0)  # alice only answers; bob measures


async def timed(
    send: Callable[[bytes], Awaitable[Any]], receive: Callable[[], Awaitable[Any]]
) -> Figures:
    async def read_answers() -> None:
        for _ in range(MESSAGES):
            await receive()

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(read_answers())
        for _ in range(MESSAGES):
            await send(MESSAGE)
    rate = megabytes_per_second(time.perf_counter() - start)
    trips = []
    for _ in range(TRIPS):
        start = time.perf_counter()
        await send(SHORT)
        await receive()
        trips.append(time.perf_counter() - start)
    return rate, 1e3 * statistics.median(trips)


def megabytes_per_second(seconds: float) -> float:
    """The rate of all large messages together."""
    return MESSAGES * len(MESSAGE) / 1e6 / seconds


def tacit_side(me: str, port: int, folder: Path) -> Figures:
    address = Address("127.0.0.1", port)
    credentials = Credentials.read(folder / "ca.pem", folder / f"{me}.pem", folder / f"{me}.key")
    if me == "alice":
        peer = "bob"
        carrier = TlsCarrier(credentials, listen=address, connect={})
    else:
        peer = "alice"
        carrier = TlsCarrier(credentials, listen=None, connect={"alice": address})

    async def answer(links: Mapping[str, Link]) -> Figures:
        link = links[peer]
        for _ in range(MESSAGES + TRIPS):
            message = await link.receive("m")
            await link.send("m", message[:4])
        return NOTHING

    async def ask(links: Mapping[str, Link]) -> Figures:
        link = links[peer]
        return await timed(lambda data: link.send("m", data), lambda: link.receive("m"))

    program = answer if me == "alice" else ask
    return asyncio.run(Endpoint(me, [peer], carrier, purpose="benchmark").run(program))


def grpc_side(me: str, port: int, folder: Path) -> Figures:
    import grpc

    address = f"127.0.0.1:{port}"
    authority = (folder / "ca.pem").read_bytes()
    certificate = (folder / f"{me}.pem").read_bytes()
    key = (folder / f"{me}.key").read_bytes()
    if me == "alice":
        credentials = grpc.ssl_server_credentials([(key, certificate)], authority, True)
        asyncio.run(serve_grpc(address, credentials))
        return NOTHING
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    return asyncio.run(dial_grpc(address, credentials))


async def serve_grpc(address: str, credentials: Any) -> None:
    """Answers every message with its first four bytes, until the process is ended."""
    import grpc

    async def answer(messages: Any, _: Any) -> Any:
        async for message in messages:
            yield message[:4]

    class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            return grpc.stream_stream_rpc_method_handler(answer)

    server = grpc.aio.server(options=GRPC_OPTIONS)
    server.add_generic_rpc_handlers((Echo(),))
    server.add_secure_port(address, credentials)
    await server.start()
    await server.wait_for_termination()


async def dial_grpc(address: str, credentials: Any) -> Figures:
    import grpc

    async with grpc.aio.secure_channel(address, credentials, options=GRPC_OPTIONS) as channel:
        call = channel.stream_stream("/tacit/benchmark")(wait_for_ready=True)
        await call.write(SHORT)  # the connection stands before the clock starts
        await call.read()
        figures = await timed(call.write, call.read)
        await call.done_writing()
        return figures


def socket_side(me: str, port: int, folder: Path) -> Figures:
    role = ssl.PROTOCOL_TLS_SERVER if me == "alice" else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(role)
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / f"{me}.pem", folder / f"{me}.key")
    if me == "alice":
        serve_socket(context, port)
        return NOTHING
    with context.wrap_socket(_dial(port), server_hostname="alice") as wire:
        return timed_socket(wire)


def serve_socket(context: ssl.SSLContext, port: int) -> None:
    """Reads all large messages and answers once; then answers every short message."""
    with socket.create_server(("127.0.0.1", port)) as server:
        raw, _ = server.accept()
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(raw, server_side=True) as wire:
            buffer = memoryview(bytearray(1 << 20))
            received = 0
            while received < MESSAGES * len(MESSAGE):
                received += wire.recv_into(buffer)
            wire.sendall(SHORT)
            for _ in range(TRIPS):
                wire.recv_into(buffer)
                wire.sendall(SHORT)


def timed_socket(wire: ssl.SSLSocket) -> Figures:
    start = time.perf_counter()
    for _ in range(MESSAGES):
        wire.sendall(MESSAGE)
    wire.recv(4)
    rate = megabytes_per_second(time.perf_counter() - start)
    trips = []
    for _ in range(TRIPS):
        start = time.perf_counter()
        wire.sendall(SHORT)
        wire.recv(4)
        trips.append(time.perf_counter() - start)
    return rate, 1e3 * statistics.median(trips)


def _dial(port: int) -> socket.socket:
    for _ in range(100):
        try:
            raw = socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.05)
            continue
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return raw
    sys.exit(f"nobody answered on port {port}")


def measure(side: Callable[[str, int, Path], Figures], folder: Path) -> Figures:
    """Alice's side in a process of its own, bob's in this one."""
    port = _free_port()
    context = multiprocessing.get_context("spawn")
    alice = context.Process(target=side, args=("alice", port, folder), daemon=True)
    alice.start()
    try:
        return side("bob", port, folder)
    finally:
        alice.terminate()
        alice.join()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def medians(figures: list[Figures]) -> Figures:
    rates, trips = zip(*figures, strict=True)
    return statistics.median(rates), statistics.median(trips)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    sides = {"tacit": tacit_side, "bare TLS socket": socket_side}
    if importlib.util.find_spec("grpc"):
        sides["grpc.aio"] = grpc_side
    measured: dict[str, list[Figures]] = {title: [] for title in sides}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_authority(folder, "benchmark")
        for party in ("alice", "bob"):
            issue(folder, party, with_key=True)
        for _ in range(repeats):
            for title, side in sides.items():
                measured[title].append(measure(side, folder))
    show(measured, repeats)


def show(measured: dict[str, list[Figures]], repeats: int) -> None:
    print(f"medians of {repeats}{'':10}MB/s  ratio to tacit   round trip, ms  ratio to tacit")
    our_rate, our_trip = medians(measured["tacit"])
    for title, figures in measured.items():
        rate, trip = medians(figures)
        print(f"{title:20}{rate:10.0f}{rate / our_rate:16.2f}{trip:17.3f}{trip / our_trip:16.2f}")


if __name__ == "__main__":
    main()
