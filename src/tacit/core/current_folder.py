"""Keeps the current folder from being the first place in which Python looks for modules.

People run commands in folders that somebody has sent them, where a file called `yaml.py` may lie.
The command `tacit` does not look there at all, but `python -m tacit` would. This is the first
module that tacit imports, and it imports only what Python has loaded already.
"""

import os
import sys

MODULE_RUNS = ("tacit", "tacit.__main__")
HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def leave_current_folder() -> None:
    """Undoes what `python -m tacit` does first, unless tacit itself lies in the current folder."""
    if _is_run_as_module() and os.path.abspath(sys.path[0]) != HOME:
        del sys.path[0]


def _is_run_as_module() -> bool:
    """Whether Python is looking for tacit because of `-m`, and so in the current folder first."""
    if getattr(sys, "argv", [])[:1] != ["-m"] or sys.flags.safe_path:
        return False
    for position, argument in enumerate(sys.orig_argv[:-1]):
        if argument.startswith("-") and argument.endswith("m"):
            return sys.orig_argv[position + 1] in MODULE_RUNS
    return False
