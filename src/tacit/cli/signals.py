"""SIGTERM, as a cluster's scheduler sends it, stops a study as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(KeyboardInterrupt):
    """Raised where the process was when SIGTERM came."""


@contextmanager
def terminable() -> Iterator[None]:
    """Within it, SIGTERM raises Terminated."""
    if (
        threading.current_thread() is not threading.main_thread()
    ):  # Python takes signals in the main thread only
        yield
        return
    came = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True
        if not _in_a_loop():
            raise Terminated
        signal.raise_signal(
            signal.SIGINT
        )  # asyncio lets its work end in order; an exception would tear it apart

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        if came:
            raise Terminated from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _in_a_loop() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
