"""Whose memory is kept: in a process of our own it is, in somebody else's it is not."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest
from playground import FAST

# 64 MB is more than glibc takes from its heap by its own adjustment (32 MB), and less than we ask
# it to keep, so that one allocation tells whether it was asked.
PROBE = """
import ctypes, json, sys

NAMES = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in NAMES.split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def keeps_freed_memory():
    before = libc.mallinfo2().hblks
    block = libc.malloc(64 << 20)
    mapped = libc.mallinfo2().hblks - before
    libc.free(block)
    return mapped == 0
"""
AS_LIBRARY = """
import tacit
study, folder, workers = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
tacit.run(study, folder, workers=workers, on_event=lambda event: None)
print(keeps_freed_memory())
"""
AS_COMMAND = """
import atexit
from tacit.cli.main import main
atexit.register(lambda: print(keeps_freed_memory()))
settings = [f"{key}={json.dumps(value)}" for key, value in json.loads(sys.argv[1]).items()]
sys.argv[1:] = ["run", *settings, "--out", sys.argv[2], "--quiet"]
main()
"""
AS_WORKER = """
import multiprocessing
from tacit.execution.processes import work
ours, theirs = multiprocessing.Pipe()
ours.send(None)  # no block: its work ends
work(theirs, {}, 1)
print(keeps_freed_memory())
"""

pytestmark = pytest.mark.skipif(
    not (sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "mallinfo2")),
    reason="needs glibc 2.33",
)


def last_line_of(program: str, *arguments: str) -> str:
    """The last line of a new Python process that can probe its memory."""
    command = [sys.executable, "-c", PROBE + program, *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()[-1]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_library_call_leaves_the_callers_memory_as_it_was(tmp_path: Path, workers: str) -> None:
    study = json.dumps({**FAST, "seed": [0, 1]})
    assert last_line_of(AS_LIBRARY, study, str(tmp_path / "a"), workers) == "False"


def test_the_command_line_keeps_freed_memory(tmp_path: Path) -> None:
    study = json.dumps({key: FAST[key] for key in ("dataset", "model", "clients", "rounds")})
    assert last_line_of(AS_COMMAND, study, str(tmp_path / "a")) == "True"


def test_a_worker_keeps_freed_memory() -> None:
    assert last_line_of(AS_WORKER) == "True"
