"""Keeps the current folder from being the first place in which Python looks for modules.

People run commands in folders that somebody has sent them, where a file called `yaml.py` may lie.
The command `tacit` does not look there at all, but `python -m tacit` would. This is the first
module that tacit imports, and it imports only what Python has loaded already.
"""

import os
import sys

HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OPTIONS_WITH_VALUES = "WX"  # of Python's, of one letter


def leave_current_folder() -> None:
    """Undoes what `python -m tacit` does first, unless tacit itself lies in the current folder.

    Python does it before it looks for the module, when `-m` is all that it tells of its arguments.
    Another module that is run in this way, such as a user's own, keeps its folder.
    """
    is_looking = getattr(sys, "argv", [])[:1] == ["-m"] and not sys.flags.safe_path
    if not is_looking or os.path.abspath(sys.path[0]) == HOME:
        return
    package, _, _ = _module_run(sys.orig_argv[1:]).partition(".")
    if package == "tacit":
        del sys.path[0]


def _module_run(arguments: list[str]) -> str:
    """The module that Python is told to run.

    >>> _module_run(["-W", "ignore", "-um", "tacit", "run"]), _module_run(["-mtacit.cli"])
    ('tacit', 'tacit.cli')
    """
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--check-hash-based-pycs":
            next(waiting, "")
        letters = "" if argument.startswith("--") else argument[1:]
        for position, letter in enumerate(letters, 1):
            rest = letters[position:]
            if letter == "m":
                return rest or next(waiting, "")
            if letter in OPTIONS_WITH_VALUES:
                if not rest:
                    next(waiting, "")
                break
    return ""
