"""The devices of a machine, and its cores, memory and threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from tacit.core.errors import StudyError


def devices_of(device: Any, *, elsewhere: bool = False) -> tuple[str, ...]:
    """The devices that a text such as `cuda:0,cuda:1` names.

    Devices that this machine lacks are refused, unless the study is played `elsewhere`, on Ray.
    """
    names = tuple(name.strip() for name in str(device).split(","))
    for name in names:
        _check_name(name, device)
        if name != "cpu" and not elsewhere:
            _check_gpu(name)
    if len(names) > 1 and "cpu" in names:
        text = f"device: only GPUs can be several, got {device!r}"
        raise StudyError(f"{text}; to spread work over cores, use workers", parameters=("device",))
    if elsewhere and (len(names) > 1 or ":" in names[0]):
        text = "device: on Ray every worker takes one device of its node; use cpu or cuda"
        raise StudyError(f"{text}, got {device!r}", parameters=("device",))
    return names


def free_memory(device: str) -> int | None:
    """Bytes that are free on a GPU, or on this machine for `cpu`; None if they cannot be known."""
    if device != "cpu":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # this is not Linux
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            kilobytes = int(line.split()[1])
            return kilobytes * 1024
    return None


def shared_memory() -> int | None:
    """Bytes that processes can still share; None if there is no known limit.

    A container has 64 MB unless it was started with more.
    """
    mount = Path("/dev/shm")
    if not mount.is_dir():
        return None
    room = os.statvfs(mount)
    return room.f_bavail * room.f_frsize


@contextmanager
def computing_with(threads: int | None) -> Iterator[None]:
    """Lets torch and NumPy compute with that many threads inside the `with` block.

    The number changes how sums round. None leaves it as it is.
    """
    if threads is None:
        yield
        return
    before = torch.get_num_threads()
    with threadpool_limits(threads):
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _check_name(name: str, device: Any) -> None:
    """Refuses what is neither `cpu`, `cuda` nor `cuda:NUMBER`; the error shows all of `device`."""
    kind, colon, number = name.partition(":")
    numbered = kind == "cuda" and number.isdigit()
    if kind not in ("cpu", "cuda") or (colon and not numbered):
        raise StudyError(f"device: expected cpu or cuda, got {device!r}", parameters=("device",))


def _check_gpu(name: str) -> None:
    if not torch.cuda.is_available():
        raise StudyError("device: torch finds no GPU here; use cpu", parameters=("device",))
    count = torch.cuda.device_count()
    number = name.partition(":")[2]
    if number and int(number) >= count:
        text = f"device: this machine has {count} GPUs, from cuda:0; got {name!r}"
        raise StudyError(text, parameters=("device",))
