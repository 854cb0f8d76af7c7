"""Where a study can run: the devices that were named, and the cores, memory and threads of this machine."""

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
    """The devices that a text such as `cuda:0,cuda:1` names; refuses those that this machine does not have."""
    names = tuple(part.strip() for part in str(device).split(","))
    for name in names:
        _check_name(name, device)
        if name != "cpu" and not elsewhere:
            _check_gpu(name)
    if len(names) > 1 and "cpu" in names:
        raise StudyError(
            f"device: several devices are GPUs, got {device!r}; to spread work over cores, use workers"
        )
    if elsewhere and (len(names) > 1 or ":" in names[0]):
        raise StudyError(
            f"device: on Ray every worker takes one of its node's; use cpu or cuda, got {device!r}"
        )
    return names


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory(device: str) -> int | None:
    """Bytes that are free on a device, or in this machine's memory; None where nobody says."""
    if device != "cpu":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # no Linux
        return None
    return next(
        (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None
    )


def shared_memory() -> int | None:
    """Bytes that processes can still share; a container has 64 MB unless told otherwise. None: no limit is known."""
    place = Path("/dev/shm")
    if not place.is_dir():
        return None
    room = os.statvfs(place)
    return room.f_bavail * room.f_frsize


@contextmanager
def computing_with(threads: int | None) -> Iterator[None]:
    """Within it, torch and NumPy compute with that many threads, on which it depends how sums round; None: as is."""
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


def _check_name(name: str, given: Any) -> None:
    kind, colon, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (kind == "cpu" and colon) or (colon and not number.isdigit()):
        raise StudyError(f"device: expected cpu or cuda, got {given!r}")


def _check_gpu(name: str) -> None:
    if not torch.cuda.is_available():
        raise StudyError("device: torch finds no GPU here; use cpu")
    number = name.partition(":")[2]
    if number and int(number) >= torch.cuda.device_count():
        raise StudyError(
            f"device: this machine has {torch.cuda.device_count()} GPUs, from cuda:0; got {name!r}"
        )
