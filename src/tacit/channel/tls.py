"""Connections between machines: TLS 1.3 in which both sides show a certificate.

Both certificates are of the consortium's authority. A certificate holds the party's name, and is
checked against the name of the party that is wanted, not against the machine's address. Whoever is
refused hears why, and so does the side that refuses.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tacit.channel.connection import Complain, Connection, Welcome
from tacit.channel.consortium import Address
from tacit.channel.credentials import Credentials
from tacit.channel.frames import Buffer, ChannelError
from tacit.channel.lobby import Guest, Lobby
from tacit.channel.peer_identity import identify
from tacit.channel.proxy import choose_proxy, connect
from tacit.channel.tasks import stop
from tacit.channel.tls_reasons import UnprovenError, ending, translated
from tacit.core.errors import system_reason

HANDSHAKE = 10.0  # seconds
FIRST_RECORD = 2.0  # seconds until a side that dials says something
BACKLOG = 64  # connections that the system has accepted and we have not
BUFFER = 1 << 20  # bytes that a reader takes in advance
CHUNK = 1 << 18  # bytes that it takes at a time
PAUSE = 0.1  # seconds until the next connection is accepted, where one could not be


class TlsStream:
    """TLS over a TCP stream.

    asyncio's own TLS drops the alert by which a side that is refused hears why.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.context = context
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.has_answered = False
        self.error: ssl.SSLError | None = None  # that came behind data

    async def shake_hands(
        self, peer: str | None, on_first_record: Callable[[], None] = lambda: None
    ) -> None:
        """As the side that dials this peer or, without one, as the side that listens."""
        self.engine = self.context.wrap_bio(
            self.incoming, self.outgoing, server_side=peer is None, server_hostname=peer
        )
        try:
            async with asyncio.timeout(HANDSHAKE):
                if peer is None:
                    await self._hear_first_record()
                    on_first_record()
                while not self._has_shaken_hands():
                    await self._fetch()
        except ssl.SSLEOFError:
            self.abort()
            raise ConnectionResetError("the other side closed it") from None
        except ssl.SSLError:
            self.writer.close()  # the alert goes out first
            raise
        except BaseException:
            self.abort()
            raise

    async def _hear_first_record(self) -> None:
        """Whoever dials speaks at once; our answer shows that its first record is whole."""
        async with asyncio.timeout(FIRST_RECORD):
            while not self.has_answered and not self._has_shaken_hands():
                await self._fetch()

    def _has_shaken_hands(self) -> bool:
        """Goes on with the handshake; whether that is over."""
        try:
            self.engine.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._flush()
        return True

    async def read(self, most: int, /) -> bytes:
        """Some bytes; none where the stream has ended."""
        if self.error is not None:
            raise self.error
        while True:
            data = self._decrypted(most)
            if data is not None:
                return data
            await self._fetch()

    def _decrypted(self, most: int) -> bytes | None:
        """What has come; nothing where the stream has ended, None where more has to come."""
        data = bytearray()
        try:
            while len(data) < most:
                record = self.engine.read(most - len(data))
                if not record:
                    break
                data += record
        except ssl.SSLWantReadError:
            self._flush()
            return bytes(data) or None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            pass
        except ssl.SSLError as error:
            if not data:
                raise
            self.error = error
        return bytes(data)

    async def _fetch(self) -> None:
        data = await self.reader.read(CHUNK)
        if data:
            self.incoming.write(data)
        else:
            self.incoming.write_eof()

    def write(self, data: Buffer, /) -> None:
        left = memoryview(data)
        try:
            while left:
                written = self.engine.write(left)
                left = left[written:]
        except ssl.SSLWantReadError:
            self.abort()  # TLS 1.3 never asks for it after the handshake; but nothing may get lost
        except ssl.SSLError:
            return  # it is over; whoever reads hears why
        self._flush()

    def _flush(self) -> None:
        data = self.outgoing.read()
        if data:
            self.has_answered = True
            self.writer.write(data)

    async def drain(self) -> None:
        await self.writer.drain()

    def abort(self) -> None:
        self.writer.transport.abort()

    def peer_certificate(self) -> bytes:
        """What the other side has shown."""
        return self.engine.getpeercert(binary_form=True) or b""


class TlsConnection(Connection):
    """A refusal of our certificate comes with the first bytes.

    In TLS 1.3 the handshake is over before it.
    """

    async def _fetch(self) -> None:
        try:
            await super()._fetch()
        except ssl.SSLError as error:
            raise ending(error, self.peer) from None


class TlsCarrier:
    """A party's carrier between machines.

    It listens at `listen`, if given, and dials the peers in `connect`. `pins` are fingerprints of
    parties' keys: a party of these is refused with any other key.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        listen: Address | None,
        connect: Mapping[str, Address],
        pins: Mapping[str, str] | None = None,
        proxy: str | None = None,
    ) -> None:
        self.address = listen
        self.connect = dict(connect)
        self.pins = dict(pins or {})
        self.proxies = {peer: choose_proxy(proxy, to.host) for peer, to in connect.items()}
        self.dialling_context = make_context(ssl.PROTOCOL_TLS_CLIENT, credentials)
        self.listening_context = make_context(ssl.PROTOCOL_TLS_SERVER, credentials)
        self.socket: socket.socket | None = None
        self.lobby = Lobby()
        self.tasks: set[asyncio.Task[None]] = set()

    def dials(self, peer: str) -> bool:
        return peer in self.connect

    def where(self, peer: str) -> str:
        proxy = self.proxies.get(peer)
        way = f" through the proxy {proxy.address}" if proxy is not None else ""
        return f"{self.connect.get(peer, self.address)}{way}"

    async def listen(self, welcome: Welcome, complain: Complain) -> None:
        if self.address is None:
            return
        try:
            self.socket = await _listening_socket(self.address)
        except OSError as error:
            raise ChannelError(
                f"cannot listen at {self.address}: {system_reason(error)}; "
                "is another process using it? if so, listen at another address, "
                "which the other parties have to be told",
                parameters=("listen",),
            ) from None
        port = self.socket.getsockname()[1]
        self.address = Address(self.address.host, port)
        self._begin(self._accept(self.socket, welcome, complain))

    async def _accept(self, listening: socket.socket, welcome: Welcome, complain: Complain) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, origin = await loop.sock_accept(listening)
            except OSError:  # out of file descriptors, or gone before we came to it
                await asyncio.sleep(PAUSE)
                continue
            self._begin(self._take(sock, origin, welcome, complain))

    async def _take(
        self, sock: socket.socket, origin: Any, welcome: Welcome, complain: Complain
    ) -> None:
        """Welcomes a connection that came in, once it has shown a certificate.

        It has a place in the lobby until it is admitted, and may lose it.
        """
        task = asyncio.current_task()
        assert task is not None
        where = f"{origin[0]}:{origin[1]}"
        guest = self.lobby.enter(origin[0], task.cancel)
        try:
            stream = await self._secured(sock, guest)
            connection = TlsConnection(stream, stream, "", where)
            connection.admit = partial(self.lobby.free, guest)
            try:
                connection.peer = identify(stream.peer_certificate(), self.pins)
                await welcome(connection)
            except ChannelError as error:
                complain(f"refused {where}: it {error}")
                await connection.refuse(str(error))
            finally:
                stream.abort()
        except ssl.SSLError as error:
            complain(f"refused {where}: it {translated(error)}")
        except (OSError, TimeoutError):
            complain(f"refused {where}: it connected and did not finish a TLS handshake")
        finally:
            self.lobby.free(guest)

    async def _secured(self, sock: socket.socket, guest: Guest) -> TlsStream:
        """TLS over a socket that came in."""
        # asyncio sets this for other sockets, but not for those from sock_accept.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader, writer = await asyncio.open_connection(sock=sock, limit=BUFFER)
        stream = TlsStream(reader, writer, self.listening_context)
        await stream.shake_hands(None, guest.note_speech)
        return stream

    async def dial(self, peer: str) -> Connection:
        """A new connection; an UnprovenError where somebody answered, but not as the peer."""
        address = self.connect[peer]
        async with asyncio.timeout(HANDSHAKE):
            reader, writer = await connect(address, self.proxies.get(peer), BUFFER)
        stream = TlsStream(reader, writer, self.dialling_context)
        try:
            await stream.shake_hands(peer)
        except ssl.SSLError as error:
            raise UnprovenError(str(translated(error, peer))) from None
        connection = TlsConnection(stream, stream, peer, str(address))
        try:
            identify(stream.peer_certificate(), self.pins, peer)
        except ChannelError as error:
            await connection.refuse(str(error))
            raise UnprovenError(str(error)) from None
        return connection

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close(self) -> None:
        await stop(*self.tasks)
        if self.socket is not None:
            self.socket.close()


def make_context(side: int, credentials: Credentials) -> ssl.SSLContext:
    """TLS 1.3 for one side, which shows our certificate and asks for one of our authority."""
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.hostname_checks_common_name = False
    credentials.load_into(context)
    if side == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # nobody resumes, and a ticket would outlive its session
    return context


async def _listening_socket(address: Address) -> socket.socket:
    loop = asyncio.get_running_loop()
    candidates = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    family, _, _, _, socket_address = candidates[0]
    sock = socket.create_server(socket_address[:2], family=family, backlog=BACKLOG)
    sock.setblocking(False)
    return sock
