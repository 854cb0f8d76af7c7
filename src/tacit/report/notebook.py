"""Progress in a notebook: one display, updated in place."""

from __future__ import annotations

import html
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from tacit.core.events import Event, RunFinished, StudyStarted, Warned
from tacit.core.own_code import outside
from tacit.records.tally import Tally

PAUSE = 0.25  # seconds from one drawing to the next


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel. IPython is asked only if it is loaded, as it is in every kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class Notebook:
    """Shows a bar and a line of text; cautions become Python's warnings, as everywhere in Python."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.tally, self.drawn = Tally(clock), float("-inf")
        self.handle: Any = None

    def on_event(self, event: Event) -> None:
        if isinstance(event, Warned):
            warnings.warn(event.text, stacklevel=outside())
            return
        self.tally.add(event)
        now = self.tally.clock()
        if isinstance(event, StudyStarted | RunFinished) or now - self.drawn >= PAUSE:
            self.drawn = now
            self._draw()

    def _draw(self) -> None:
        from IPython.display import HTML, display  # only in a kernel, which has it

        page = HTML(self.page())
        if self.handle is None:
            self.handle = display(page, display_id=True)
        else:
            self.handle.update(page)

    def page(self) -> str:
        """The bar and the text."""
        bar = f'<progress value="{self.tally.done}" max="{max(1, self.tally.rounds)}" style="width: 20em"></progress>'
        return f"<div>{bar} {html.escape(self.tally.text())}</div>"
