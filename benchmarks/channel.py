"""The channel between two processes with mutual TLS: tacit's links, grpc.aio, and a bare TLS socket.

"MB/s" is 200 messages of 1 MB, each answered by four bytes; "round trip" a message of four bytes and its answer, median
of 1,000. The bare socket blocks, frames nothing and answers once: what OpenSSL and the loopback allow from Python. gRPC
carries raw bytes, without protobuf; it is left out where grpcio is not installed. They take turns; medians.

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
from tacit.channel.endpoint import Endpoint
from tacit.channel.link import Link
from tacit.channel.tls import TlsCarrier

MESSAGE, MANY, TRIPS = b"x" * (1 << 20), 200, 1000
SHORT = b"four"
Figures = tuple[float, float]  # MB/s and milliseconds


async def timed(
    send: Callable[[bytes], Awaitable[Any]], receive: Callable[[], Awaitable[Any]]
) -> Figures:
    async def answers() -> None:
        for _ in range(MANY):
            await receive()

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(answers())
        for _ in range(MANY):
            await send(MESSAGE)
    rate, trips = MANY * len(MESSAGE) / 1e6 / (time.perf_counter() - start), []
    for _ in range(TRIPS):
        start = time.perf_counter()
        await send(SHORT)
        await receive()
        trips.append(time.perf_counter() - start)
    return rate, 1e3 * statistics.median(trips)


def tacit_side(me: str, port: int, folder: Path) -> Figures:
    peer, here = {"alice": "bob", "bob": "alice"}[me], Address("127.0.0.1", port)
    files = [folder / name for name in ("ca.pem", f"{me}.pem", f"{me}.key")]
    carrier = TlsCarrier(
        *files,
        listen=here if me == "alice" else None,
        connect={"alice": here} if me == "bob" else {},
    )

    async def program(links: Mapping[str, Link]) -> Figures:
        link = links[peer]
        if me == "bob":
            return await timed(lambda data: link.send("m", data), lambda: link.receive("m"))
        for _ in range(MANY + TRIPS):
            await link.send("m", (await link.receive("m"))[:4])
        return 0.0, 0.0

    return asyncio.run(Endpoint(me, [peer], carrier, purpose="benchmark").run(program))


def grpc_side(me: str, port: int, folder: Path) -> Figures:
    import grpc

    ca, own, key = ((folder / name).read_bytes() for name in ("ca.pem", f"{me}.pem", f"{me}.key"))
    options = [
        ("grpc.max_receive_message_length", 1 << 26),
        ("grpc.ssl_target_name_override", "alice"),
    ]

    class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            async def answer(messages: Any, _: Any) -> Any:
                async for message in messages:
                    yield message[:4]

            return grpc.stream_stream_rpc_method_handler(answer)

    async def serve() -> None:
        server = grpc.aio.server(options=options)
        server.add_generic_rpc_handlers((Echo(),))
        server.add_secure_port(
            f"127.0.0.1:{port}", grpc.ssl_server_credentials([(key, own)], ca, True)
        )
        await server.start()
        await server.wait_for_termination()

    async def dial() -> Figures:
        credentials = grpc.ssl_channel_credentials(ca, key, own)
        async with grpc.aio.secure_channel(
            f"127.0.0.1:{port}", credentials, options=options
        ) as channel:
            call = channel.stream_stream("/tacit/benchmark")(wait_for_ready=True)
            await call.write(SHORT)
            await call.read()
            found = await timed(call.write, call.read)
            await call.done_writing()
            return found

    return asyncio.run(serve() if me == "alice" else dial()) or (0.0, 0.0)


def socket_side(me: str, port: int, folder: Path) -> Figures:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if me == "alice" else ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / f"{me}.pem", folder / f"{me}.key")
    if me == "alice":
        with socket.create_server(("127.0.0.1", port)) as server:
            raw, _ = server.accept()
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with context.wrap_socket(raw, server_side=True) as wire:
                taken, room = 0, memoryview(bytearray(1 << 20))
                while taken < MANY * len(MESSAGE):
                    taken += wire.recv_into(room)
                wire.sendall(SHORT)
                for _ in range(TRIPS):
                    wire.recv_into(room)
                    wire.sendall(SHORT)
        return 0.0, 0.0
    with context.wrap_socket(_dialled(port), server_hostname="alice") as wire:
        start = time.perf_counter()
        for _ in range(MANY):
            wire.sendall(MESSAGE)
        wire.recv(4)
        rate, trips = MANY * len(MESSAGE) / 1e6 / (time.perf_counter() - start), []
        for _ in range(TRIPS):
            start = time.perf_counter()
            wire.sendall(SHORT)
            wire.recv(4)
            trips.append(time.perf_counter() - start)
        return rate, 1e3 * statistics.median(trips)


def _dialled(port: int) -> socket.socket:
    for _ in range(100):
        try:
            raw = socket.create_connection(("127.0.0.1", port))
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return raw
        except ConnectionRefusedError:
            time.sleep(0.05)
    sys.exit("nobody answered")


def measure(side: Callable[[str, int, Path], Figures], folder: Path) -> Figures:
    """One side in a process of its own, the other here."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    other = multiprocessing.get_context("spawn").Process(
        target=side, args=("alice", port, folder), daemon=True
    )
    other.start()
    try:
        return side("bob", port, folder)
    finally:
        other.terminate()
        other.join()


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    sides = {"tacit": tacit_side, "bare TLS socket": socket_side}
    if importlib.util.find_spec("grpc"):
        sides["grpc.aio"] = grpc_side
    found: dict[str, list[Figures]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_authority(folder, "benchmark")
        for party in ("alice", "bob"):
            issue(folder, party)
        for _ in range(repeats):
            for title, side in sides.items():
                found[title].append(measure(side, folder))
    ours = [statistics.median(column) for column in zip(*found["tacit"], strict=True)]
    print(f"medians of {repeats}{'':10}MB/s  against tacit   round trip, ms  against tacit")
    for title, figures in found.items():
        rate, trip = (statistics.median(column) for column in zip(*figures, strict=True))
        print(f"{title:20}{rate:10.0f}{rate / ours[0]:15.2f}{trip:17.3f}{trip / ours[1]:15.2f}")


if __name__ == "__main__":
    main()
