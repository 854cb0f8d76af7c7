"""The terminal that tables are shown on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

UNLIMITED = 10_000  # columns, where nobody's window ends: a file or a pipe


def console() -> Console:
    """A console as wide as the window; in a file or a pipe no table is cut."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else UNLIMITED)
