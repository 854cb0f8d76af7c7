"""Progress that prints nothing: the base of the displays."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tacit.core.events import Event
from tacit.records.tally import Tally


class Silence:
    """Listens, so that the folder's name is known, and prints nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.tally = Tally(clock)

    @property
    def folder(self) -> str:
        """Where the study runs; empty before it starts."""
        return self.tally.folder

    def on_event(self, event: Event) -> None:
        self.tally.add(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
