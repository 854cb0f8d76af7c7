"""HTTP proxies, through which many hospitals and banks have to connect: the method CONNECT.

RFC 9110, section 9.3.6. The proxy passes bytes on, and TLS is between the parties as without it.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import urllib.request
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from tacit.channel.consortium import Address
from tacit.core.errors import DataError, StudyError, system_reason

NONE = "none"
USUAL_PORT = 3128
LONGEST_STATUS = 100  # letters that are shown
EXAMPLE = "expected an address such as http://proxy.example:3128, or none"


@dataclass(frozen=True)
class Proxy:
    """A proxy, with the name and password that it asks for, if it does."""

    address: Address
    credentials: str | None = field(default=None, repr=False)  # "name:password"

    @classmethod
    def parse(cls, text: str) -> Proxy:
        """The proxy in `host:port` or `http://name:password@host:port`.

        >>> Proxy.parse("http://proxy.example:3128").address
        Address(host='proxy.example', port=3128)
        """
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            address = Address(parts.hostname or "", parts.port or USUAL_PORT)
            address = Address.parse(str(address))
        except (ValueError, DataError):  # the text is not shown: it may hold a password
            raise StudyError(f"proxy: {EXAMPLE}", parameters=("proxy",)) from None
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise StudyError(
                f"proxy: {EXAMPLE}; in a password, write % / # and ? as %25 %2F %23 and %3F",
                parameters=("proxy",),
            )
        if parts.scheme != "http":
            raise StudyError(
                f"proxy: {parts.scheme}:// is not supported; {EXAMPLE}", parameters=("proxy",)
            )
        credentials = None
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return cls(address, credentials)

    async def connect(self, target: Address, limit: int) -> Stream:
        """A stream to the target, through this proxy."""
        host, port = self.address.host, self.address.port
        try:
            reader, writer = await asyncio.open_connection(host, port, limit=limit)
        except OSError as error:
            raise ConnectionRefusedError(
                f"the proxy {self.address} cannot be reached: {system_reason(error)}"
            ) from None
        try:
            writer.write(self._request(target))
            self._check(await _read_answer(reader))
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer

    def _request(self, target: Address) -> bytes:
        name = target.host.encode("idna").decode()
        address = Address(name, target.port)
        lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
        if self.credentials is not None:
            raw = self.credentials.encode("utf-8", "surrogateescape")
            code = base64.b64encode(raw).decode()
            lines.append(f"Proxy-Authorization: Basic {code}")
        return "\r\n".join([*lines, "", ""]).encode()

    def _check(self, answer: bytes) -> None:
        """Refuses an answer that is not a success."""
        first_line = answer.split(b"\r\n", 1)[0].decode("ascii", "replace")
        version, _, status = first_line.partition(" ")
        if version.startswith("HTTP/") and status.startswith("2"):
            return
        shown = "".join(letter for letter in status if letter.isprintable())[:LONGEST_STATUS]
        hint = ""
        if status.startswith("407"):
            hint = "; give the proxy as http://name:password@host:port"
        raise ConnectionRefusedError(f"the proxy {self.address} said {shown or 'nothing'}{hint}")


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _read_answer(reader: asyncio.StreamReader) -> bytes:
    """What the proxy says before it passes bytes on."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise ConnectionRefusedError("the proxy closed it, or does not speak HTTP") from None


def choose_proxy(setting: str | None, host: str) -> Proxy | None:
    """The proxy on the way to this host.

    It is the one that is set, or that of the environment (HTTPS_PROXY, NO_PROXY); `none` is none.
    This machine itself is never reached through a proxy of the environment.
    """
    if setting is not None:
        return None if setting.lower() == NONE else Proxy.parse(setting)
    url = urllib.request.getproxies_environment().get("https")
    if not url or _is_this_machine(host) or _is_bypassed(host):
        return None
    return Proxy.parse(url)


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_bypassed(host: str) -> bool:
    """Whether NO_PROXY names the host; typeshed does not know the function on all systems."""
    bypass: Any = vars(urllib.request)["proxy_bypass_environment"]
    return bool(bypass(host))


async def connect(target: Address, proxy: Proxy | None, limit: int) -> Stream:
    """A stream to an address, directly or through a proxy; `limit` is what is read in advance."""
    if proxy is None:
        return await asyncio.open_connection(target.host, target.port, limit=limit)
    return await proxy.connect(target, limit)
