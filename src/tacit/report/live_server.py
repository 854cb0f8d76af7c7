"""The live view: the report of a study that is still going, served to this machine alone."""

from __future__ import annotations

import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tacit.core.errors import StudyError
from tacit.report.html import render
from tacit.report.tables import Tables

WATCHED = ("history.jsonl", "runs.json", "study.yaml")


def open_server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server for the study in this folder, on localhost; call `serve_forever`. Port 0 takes a free one."""
    Tables(folder)  # says what is missing before a port is taken
    handler = type("Handler", (_Handler,), {"folder": folder})
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or "expected a port from 0 to 65535"
        text = f"cannot listen on port {port}: {reason}; choose another port"
        raise StudyError(text, parameters=("port",)) from None


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    timeout = 30  # seconds that a silent client may hold a thread
    server_version = "tacit"
    sys_version = ""

    def do_GET(self) -> None:
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host not in ("127.0.0.1", "localhost"):  # a page elsewhere whose name was pointed here
            self.send_error(403, "only for this machine")
        elif self.path.split("?")[0] != "/":
            self.send_error(404, "there is one page, /")
        else:
            self._send_page()

    def _send_page(self) -> None:
        tag = self._tag()
        if self.headers.get("If-None-Match") == tag:
            self.send_response(304)
            self.end_headers()
            return
        try:
            body = render(Tables(self.folder), live=True, tag=tag).encode()
        except (
            Exception
        ) as error:  # a file that is being written, or damaged: the next request may find it whole
            said = str(error).encode("ascii", "replace").decode().splitlines() or [
                type(error).__name__
            ]
            self.send_error(503, "not now", said[0])
            return
        self.send_response(200)
        for name, value in (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("ETag", tag),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _tag(self) -> str:
        """Changes with the study's files."""
        stats = [(self.folder / name).stat() for name in WATCHED if (self.folder / name).exists()]
        shown = repr([(stat.st_size, stat.st_mtime_ns) for stat in stats])
        return f'"{hashlib.sha256(shown.encode()).hexdigest()[:16]}"'

    def log_message(self, format: str, *arguments: Any) -> None:
        """Says nothing: library code never prints."""
