"""The command line in this process, by the function that the command `tacit` calls."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from tacit.cli.main import main
from tacit.core.registry import FAMILIES


@dataclass(frozen=True)
class Done:
    """How a command ended, and its output."""

    returncode: int
    stdout: str
    stderr: str


def tacit(*arguments: str, cwd: Path, **environment: str) -> Done:
    """Runs `tacit` with these arguments in a folder; it sees pipes and no terminal."""
    stdout = pipe()
    stderr = pipe()
    with (
        own_modules(),
        mock.patch.object(sys, "argv", ["tacit", *arguments]),
        mock.patch.dict(os.environ, {"NO_COLOR": "1", **environment}),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            main()
        except SystemExit as exit:
            code = exit.code
    return Done(int(code or 0), text_of(stdout), text_of(stderr))


def pipe() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def text_of(stream: io.TextIOWrapper) -> str:
    stream.flush()
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode()


@contextlib.contextmanager
def own_modules() -> Iterator[None]:
    """Forgets, at the end, the user's modules that were imported and the classes they registered.

    A real command ends with its process, and the next one may import another module of that name.
    """
    path = list(sys.path)
    modules = set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if not is_library(name):
                del sys.modules[name]
        for family in FAMILIES.values():
            for name, cls in list(family.members.items()):
                if cls.__module__ not in sys.modules:
                    del family.members[name]


def is_library(name: str) -> bool:
    """Whether a module is installed, or tacit's own: those are imported once for all tests."""
    file = getattr(sys.modules[name], "__file__", None)
    if file is None:
        return True
    source = str(Path(__file__).parents[1])
    return file.startswith((source, sys.prefix, sys.base_prefix))


def new_process(*arguments: str, cwd: Path) -> Done:
    """Runs `tacit` as a user does, in a process of its own: for what depends on that."""
    command = [sys.executable, "-m", "tacit", *arguments]
    process = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    return Done(process.returncode, process.stdout, process.stderr)
