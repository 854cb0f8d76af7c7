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
    """Whether this is a Jupyter kernel. Every kernel has IPython loaded, so nothing is imported."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return False
    get_shell = getattr(ipython, "get_ipython", lambda: None)
    return getattr(get_shell(), "kernel", None) is not None


class Notebook:
    """Shows a bar and a line of text; cautions become Python's warnings."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.tally = Tally(clock)
        self.drawn = float("-inf")  # when it was drawn last
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
        total = max(1, self.tally.rounds)
        bar = f'<progress value="{self.tally.done}" max="{total}" style="width: 20em"></progress>'
        return f"<div>{bar} {html.escape(self.tally.text())}</div>"
