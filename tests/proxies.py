"""A real HTTP proxy: it passes bytes on after CONNECT, and can be as unkind as those of others."""

from __future__ import annotations

import asyncio
import base64
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

CHUNK = 1 << 16  # bytes
GLANCES = 10  # looks at the lines within the time after which idle ones are forgotten


@dataclass(eq=False)
class Line:
    """A connection through the proxy."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    active: float = field(default_factory=time.monotonic)  # when bytes passed

    def cut(self) -> None:
        self.near.transport.abort()
        self.far.transport.abort()


class HttpProxy:
    """`idle` is after how many seconds without bytes it forgets a line, as firewalls do.

    With `credentials`, "name:password", it asks everybody for these.
    """

    def __init__(self, *, idle: float | None = None, credentials: str | None = None) -> None:
        self.idle = idle
        self.credentials = credentials
        self.requests: list[str] = []  # the first lines
        self.answers: list[int] = []
        self.refusals = 0  # so many of the next requests are answered 502
        self.forgotten = 0  # lines that were idle
        self.passed = 0  # bytes
        self.lines: set[Line] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> HttpProxy:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        if self.idle is not None:
            self._forgetting = asyncio.create_task(self._forget_idle(self.idle))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        if self.idle is not None:
            self._forgetting.cancel()
            await asyncio.gather(self._forgetting, return_exceptions=True)
        # Other tasks are not cancelled, since asyncio's server would report that.
        while any(not task.done() for task in self._tasks):
            self.cut()
            await asyncio.sleep(0.01)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Breaks all lines."""
        for line in list(self.lines):
            line.cut()

    async def _forget_idle(self, idle: float) -> None:
        now = time.monotonic()
        while True:
            await asyncio.sleep(idle / GLANCES)
            before = now
            now = time.monotonic()
            if now - before > idle / 2:
                continue  # we were asleep, and have not seen what came
            for line in list(self.lines):
                if now - line.active > idle:
                    self.forgotten += 1
                    line.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.requests.append(first)
        if not self._is_allowed(headers):
            return await self._say(writer, 407, "Proxy Authentication Required")
        if self.refusals:
            self.refusals -= 1
            return await self._say(writer, 502, "Bad Gateway")
        _, target, _ = first.split(" ")
        host, _, port = target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            return await self._say(writer, 503, "Service Unavailable")
        await self._say(writer, 200, "Connection established")
        line = Line(writer, far_writer)
        self.lines.add(line)
        try:
            ways = self._pass(reader, line, far_writer), self._pass(far_reader, line, writer)
            await asyncio.gather(*ways)
        finally:
            self.lines.discard(line)
            line.cut()

    def _is_allowed(self, headers: list[str]) -> bool:
        if self.credentials is None:
            return True
        code = base64.b64encode(self.credentials.encode()).decode()
        return f"Proxy-Authorization: Basic {code}" in headers

    async def _say(self, writer: asyncio.StreamWriter, status: int, words: str) -> None:
        self.answers.append(status)
        writer.write(f"HTTP/1.1 {status} {words}\r\n\r\n".encode())
        await writer.drain()

    async def _pass(
        self, reader: asyncio.StreamReader, line: Line, writer: asyncio.StreamWriter
    ) -> None:
        """Passes bytes on in one direction; the end of one is that of the line."""
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                line.active = time.monotonic()
                self.passed += len(data)
                writer.write(data)
                await writer.drain()
        line.cut()
