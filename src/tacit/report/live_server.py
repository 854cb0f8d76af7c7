"""The live view: the report of a study that is still running, served to this machine alone."""

from __future__ import annotations

import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tacit.core.errors import StudyError
from tacit.report.page import render
from tacit.report.study_tables import StudyTables

WATCHED = ("history.jsonl", "outline.json", "study.yaml", "data.json", "assessments")
OUR_NAMES = ("127.0.0.1", "localhost")


def open_server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server for the study in this folder, on localhost; port 0 takes a free one.

    Call its `serve_forever`.
    """
    StudyTables(folder)  # says what is missing before a port is taken
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
        host = self.headers.get("Host") or ""
        name = host.rsplit(":", 1)[0]
        path = self.path.split("?")[0]
        if name not in OUR_NAMES:  # a page elsewhere whose name was pointed here
            self.send_error(403, "only for this machine")
        elif path != "/":
            self.send_error(404, "there is one page, /")
        else:
            self._answer()

    def _answer(self) -> None:
        tag = self._tag()
        if self.headers.get("If-None-Match") == tag:
            self.send_response(304)
            self.end_headers()
            return
        try:
            page = render(StudyTables(self.folder), live=True, tag=tag)
        except Exception as error:  # a file that is being written: the next request may succeed
            self.send_error(503, "not now", _first_line(error))
            return
        self._send_page(page.encode(), tag)

    def _send_page(self, body: bytes, tag: str) -> None:
        headers = {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "ETag": tag,
        }
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _tag(self) -> str:
        """Changes with the study's files."""
        versions = []
        for name in WATCHED:
            path = self.folder / name
            if path.exists():
                stat = path.stat()
                versions.append((stat.st_size, stat.st_mtime_ns))
        digest = hashlib.sha256(repr(versions).encode()).hexdigest()
        return f'"{digest[:16]}"'

    def log_message(self, format: str, *arguments: Any) -> None:
        """Says nothing: library code never prints."""


def _first_line(error: Exception) -> str:
    """An error's text as a header can carry it, or its kind where it has none."""
    lines = str(error).encode("ascii", "replace").decode().splitlines()
    return lines[0] if lines else type(error).__name__
