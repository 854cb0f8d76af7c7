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
from tacit.channel.tasks import stop

HANDSHAKE = 10.0  # seconds
PENDING = 64  # connections that have not shown a certificate yet
BUFFER, CHUNK = 1 << 20, 1 << 18  # bytes that a reader takes in advance, and at a time
NAMELESS = (
    "showed a certificate without a party's name, or with several; make it with: tacit cert issue"
)

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


class TlsStream:
    """TLS over a TCP stream. asyncio's own drops the alert by which a side that is refused hears why."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext
    ) -> None:
        self.source, self.stream, self.context = reader, writer, context
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()

    async def shake_hands(self, peer: str | None) -> None:
        """As the side that dials this peer or, without one, as the side that listens."""
        self.engine = self.context.wrap_bio(
            self.incoming, self.outgoing, server_side=peer is None, server_hostname=peer
        )
        try:
            async with asyncio.timeout(HANDSHAKE):
                while not self._begun():
                    await self._fetch()
        except ssl.SSLEOFError:
            self.abort()
            raise ConnectionResetError("the other side closed it") from None
        except ssl.SSLError:
            self.stream.close()  # the alert goes out first
            raise
        except BaseException:
            self.abort()
            raise

    def _begun(self) -> bool:
        try:
            self.engine.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._flush()
        return True

    async def read(self, most: int, /) -> bytes:
        """Some bytes; none where the stream has ended."""
        while True:
            try:
                return self.engine.read(most)
            except ssl.SSLWantReadError:
                self._flush()
                await self._fetch()
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                return b""

    async def _fetch(self) -> None:
        if data := await self.source.read(CHUNK):
            self.incoming.write(data)
        else:
            self.incoming.write_eof()

    def write(self, data: bytes, /) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[self.engine.write(left) :]
        except (
            ssl.SSLWantReadError
        ):  # never after the handshake of TLS 1.3; nothing may be lost in silence
            self.abort()
        except ssl.SSLError:
            return  # it is over; whoever reads hears why
        self._flush()

    def _flush(self) -> None:
        if data := self.outgoing.read():
            self.stream.write(data)

    async def drain(self) -> None:
        await self.stream.drain()

    def abort(self) -> None:
        self.stream.transport.abort()


class Encrypted(Connection):
    """A refusal of our certificate comes with the first read: in TLS 1.3 the handshake is over before it."""

    async def read(self) -> Frame:
        try:
            return await super().read()
        except ssl.SSLError as error:
            raise _translated(error, self.peer) from None


class TlsCarrier:
    """A party's carrier between machines.

    It listens at `listen`, if given, and dials the peers in `connect`.
    """

    def __init__(
        self,
        ca: Path,
        certificate: Path,
        key: Path,
        *,
        listen: Address | None,
        connect: Mapping[str, Address],
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
            remedy = "does it run already? else name another with --listen"
            raise ChannelError(
                f"cannot listen at {self.address}: {_reason(error)}; {remedy}"
            ) from None
        self.address = Address(self.address.host, self.socket.getsockname()[1])
        self._begin(self._accept(self.socket, welcome, complain))

    async def _accept(self, listening: socket.socket, welcome: Welcome, complain: Complain) -> None:
        loop, free = asyncio.get_running_loop(), asyncio.Semaphore(PENDING)
        while True:
            await free.acquire()
            try:
                sock, origin = await loop.sock_accept(listening)
            except OSError:  # out of file descriptors, or gone before we came to it
                free.release()
                await asyncio.sleep(0.1)
                continue
            self._begin(self._take(sock, f"{origin[0]}:{origin[1]}", free, welcome, complain))

    async def _take(
        self,
        sock: socket.socket,
        place: str,
        free: asyncio.Semaphore,
        welcome: Welcome,
        complain: Complain,
    ) -> None:
        try:
            sock.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
            )  # asyncio forgets it for those from sock_accept
            wire = TlsStream(
                *await asyncio.open_connection(sock=sock, limit=BUFFER), self.contexts[1]
            )
            await wire.shake_hands(None)
        except ssl.SSLError as error:
            return complain(f"refused {place}: it {_translated(error)}")
        except (OSError, TimeoutError):
            return complain(f"refused {place}: it connected and did not finish a TLS handshake")
        finally:
            free.release()
        connection = Encrypted(wire, wire, _name(wire), place)
        try:
            if connection.peer:
                await welcome(connection)
            else:
                complain(f"refused {place}: it {NAMELESS}")
                await connection.refuse(NAMELESS)
        finally:
            wire.abort()

    async def dial(self, peer: str) -> Connection:
        address = self.connect[peer]
        async with asyncio.timeout(HANDSHAKE):
            streams = await asyncio.open_connection(address.host, address.port, limit=BUFFER)
        wire = TlsStream(*streams, self.contexts[0])
        try:
            await wire.shake_hands(peer)
        except ssl.SSLError as error:
            raise _translated(error, peer) from None
        return Encrypted(wire, wire, peer, str(address))

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close(self) -> None:
        await stop(*self.tasks)
        if self.socket is not None:
            self.socket.close()


def _context(purpose: ssl.Purpose, ca: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    side = (
        ssl.PROTOCOL_TLS_CLIENT if purpose is ssl.Purpose.SERVER_AUTH else ssl.PROTOCOL_TLS_SERVER
    )
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(ca)
    context.load_cert_chain(certificate, key)
    return context


async def _bound(address: Address) -> socket.socket:
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM
    )
    family, *_, place = found[0]
    sock = socket.create_server(place[:2], family=family, backlog=PENDING)
    sock.setblocking(False)
    return sock


def _reason(error: OSError) -> str:
    """Without the address, which Python adds for some."""
    return (error.strerror or str(error)).split(" (")[0]


def _name(wire: TlsStream) -> str:
    """The one name in the other side's certificate, or nothing."""
    shown: Any = wire.engine.getpeercert() or {}
    names = [value for kind, value in shown.get("subjectAltName", ()) if kind == "DNS"]
    return str(names[0]) if len(names) == 1 else ""


def _translated(error: ssl.SSLError, peer: str = "") -> Exception:
    """The error in words; one that is about certificates will not go away by trying again."""
    said = f"{error.reason or ''} {getattr(error, 'verify_message', '')} {error}"
    if "Hostname mismatch" in said:
        return ChannelError(f"is another party than {peer}, by its certificate; check the address")
    for mark, words in REASONS.items():
        if mark in said:
            return ChannelError(words)
    text = (error.reason or str(error)).lower().replace("_", " ")
    return (
        ChannelError(text)
        if isinstance(error, ssl.SSLCertVerificationError)
        else ConnectionResetError(text)
    )
