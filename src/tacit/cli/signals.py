"""SIGTERM, as a cluster's scheduler sends it, stops a command as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


class Terminated(KeyboardInterrupt):
    """Raised where the process was when SIGTERM came."""


def exit_code(stop: KeyboardInterrupt) -> int:
    """The exit code after Ctrl-C or SIGTERM."""
    return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


@contextmanager
def terminable() -> Iterator[None]:
    """Within it, SIGTERM raises Terminated."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread only
        return
    came = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True
        if not _in_event_loop():
            raise Terminated
        # asyncio ends its work in order after SIGINT; an exception here would tear it apart
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        if came:
            raise Terminated from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _in_event_loop() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
