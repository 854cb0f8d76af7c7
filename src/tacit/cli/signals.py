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
    if threading.current_thread() is not threading.main_thread():  # Python takes signals in the main thread only
        yield
        return
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise Terminated
