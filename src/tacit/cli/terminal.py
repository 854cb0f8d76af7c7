"""Standard output: a console for tables, and JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

UNLIMITED = 10_000  # columns, for a file or a pipe, which has no window that ends


def console() -> Console:
    """A console as wide as the window; in a file or a pipe no table is cut.

    It knows no markup: a column may be called `dose [mg]`.
    """
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else UNLIMITED, markup=False)


def print_json(value: Any) -> None:
    """Prints plain values as JSON."""
    typer.echo(json.dumps(value, indent=2))
