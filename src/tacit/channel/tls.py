"""Connections between machines: TLS 1.3 in which both sides show a certificate of the consortium's authority.

A certificate holds the party's name, and is checked against the name of the party that is wanted, not against the
machine's address. Whoever is refused hears why, and so does the side that refuses.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.channel.connection import Complain, Connection, Welcome
from tacit.channel.consortium import Address
from tacit.channel.frames import ChannelError, Frame
from tacit.channel.stream import Stream
from tacit.channel.tasks import stop

HANDSHAKE = 10.0  # seconds
PENDING = 64  # connections that have not shown a certificate yet

# How OpenSSL names the reasons; the text after it is for the side that sees it.
REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "showed no certificate",
    "certificate has expired": "showed a certificate that has expired",
    "certificate is not yet valid": "showed a certificate that is not valid yet (does a clock go wrong?)",
    "self-signed certificate in certificate chain": "showed a certificate of another authority than our ca.pem",
    "self-signed certificate": "showed a certificate of another authority than our ca.pem",
    "unable to get local issuer certificate": "showed a certificate of another authority than our ca.pem",
    "certificate signature failure": "showed a certificate of another authority than our ca.pem",
    "CERTIFICATE_REQUIRED": "refused us, since we showed no certificate",
    "ALERT_CERTIFICATE_EXPIRED": "refused our certificate, which has expired; renew it with: tacit cert issue",
    "ALERT_UNKNOWN_CA": "refused our certificate, which is of another authority than its own; compare ca.pem",
    "ALERT_BAD_CERTIFICATE": "refused our certificate",
    "ALERT_DECRYPT_ERROR": "refused our certificate, which is of another authority than its own; compare ca.pem",
    "UNSUPPORTED_PROTOCOL": "speaks an older TLS than 1.3",
    "PROTOCOL_VERSION": "speaks an older TLS than 1.3",
    "WRONG_VERSION_NUMBER": "does not speak TLS",
    "HTTP_REQUEST": "does not speak TLS",
}


class Encrypted(Connection):
    """A refusal of our certificate comes with the first read: in TLS 1.3 the handshake is over before it."""

    async def read(self) -> Frame:
        try:
            return await super().read()
        except ssl.SSLError as error:
            raise _translated(error, self.peer) from None


class Network:
    """A party's carrier between machines.

    It listens at `listen`, if given, and dials the peers in `connect`.
    """

    def __init__(
        self, ca: Path, certificate: Path, key: Path, *, listen: Address | None, connect: Mapping[str, Address]
    ) -> None:
        self.address, self.connect = listen, dict(connect)
        self.contexts = [_context(purpose, ca, certificate, key) for purpose in ssl.Purpose]
        self.socket: socket.socket | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    def dials(self, peer: str) -> bool:
        return peer in self.connect

    def where(self, peer: str) -> str:
        return str(self.connect.get(peer, self.address))

    async def listen(self, welcome: Welcome, complain: Complain) -> None:
        if self.address is None:
            return
        try:
            self.socket = await _bound(self.address)
        except OSError as error:
            raise ChannelError(
                f"cannot listen at {self.address}: {error.strerror or error}; name another with --listen"
            ) from None
        self.address = Address(self.address.host, self.socket.getsockname()[1])
        self._begin(self._accept(self.socket, welcome, complain))

    async def _accept(self, listening: socket.socket, welcome: Welcome, complain: Complain) -> None:
        loop, free = asyncio.get_running_loop(), asyncio.Semaphore(PENDING)
        while True:
            try:
                sock, origin = await loop.sock_accept(listening)
            except OSError:  # out of file descriptors, or gone before we came to it
                await asyncio.sleep(0.1)
                continue
            await free.acquire()
            self._begin(self._take(sock, f"{origin[0]}:{origin[1]}", free, welcome, complain))

    async def _take(
        self, sock: socket.socket, place: str, free: asyncio.Semaphore, welcome: Welcome, complain: Complain
    ) -> None:
        try:
            stream = await _accepted(sock, self.contexts[1])
            connection = Encrypted(stream, stream, _peer(stream), place)
        except ssl.SSLError as error:
            return complain(f"refused {place}: it {_translated(error)}")
        except (OSError, TimeoutError):
            return complain(f"refused {place}: it connected and did not begin a TLS handshake")
        except ChannelError as error:
            return complain(f"refused {place}: it {error}")
        finally:
            free.release()
        try:
            await welcome(connection)
        finally:
            connection.abort()

    async def dial(self, peer: str) -> Connection:
        address = self.connect[peer]
        try:
            _, stream = await asyncio.get_running_loop().create_connection(
                Stream,
                address.host,
                address.port,
                ssl=self.contexts[0],
                server_hostname=peer,
                ssl_handshake_timeout=HANDSHAKE,
            )
        except ssl.SSLError as error:
            raise _translated(error, peer) from None
        return Encrypted(stream, stream, peer, str(address))

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close(self) -> None:
        await stop(*self.tasks)
        if self.socket is not None:
            self.socket.close()


def _context(purpose: ssl.Purpose, ca: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    side = ssl.PROTOCOL_TLS_CLIENT if purpose is ssl.Purpose.SERVER_AUTH else ssl.PROTOCOL_TLS_SERVER
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(ca)
    context.load_cert_chain(certificate, key)
    return context


async def _bound(address: Address) -> socket.socket:
    found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    family, *_, place = found[0]
    sock = socket.create_server(place[:2], family=family, backlog=PENDING)
    sock.setblocking(False)
    return sock


async def _accepted(sock: socket.socket, context: ssl.SSLContext) -> Stream:
    """A stream over a socket that was accepted; unlike in asyncio's own server, a failed handshake is told."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio forgets it for sockets from sock_accept
    loop = asyncio.get_running_loop()
    _, stream = await loop.connect_accepted_socket(Stream, sock, ssl=context, ssl_handshake_timeout=HANDSHAKE)
    return stream


def _peer(stream: Stream) -> str:
    """The one name in the other side's certificate."""
    shown = stream.transport.get_extra_info("peercert") if stream.transport else {}
    names = [value for kind, value in shown.get("subjectAltName", ()) if kind == "DNS"]
    if len(names) != 1:
        stream.abort()
        raise ChannelError("showed a certificate without a party's name; make it with: tacit cert issue")
    return str(names[0])


def _translated(error: ssl.SSLError, peer: str = "") -> Exception:
    """The error in words; one that is about certificates will not go away by trying again."""
    said = f"{error.reason or ''} {getattr(error, 'verify_message', '')} {error}"
    if "Hostname mismatch" in said:
        return ChannelError(f"is another party than {peer}, by its certificate; check the address")
    for mark, words in REASONS.items():
        if mark in said:
            return ChannelError(words)
    text = (error.reason or str(error)).lower().replace("_", " ")
    return ChannelError(text) if isinstance(error, ssl.SSLCertVerificationError) else ConnectionResetError(text)
