"""Errors in the user's own code, such as a hook or a model, as one line that says what to fix."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tacit.core.errors import StudyError, TacitError

PACKAGE = Path(__file__).resolve().parents[1]
STANDARD = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
INSTALLED = {"site-packages", "dist-packages"}
TYPED_IN = ("<stdin>", "<ipython")  # code of the user's that has no file


@contextmanager
def own_code(guests: Sequence[str] = ()) -> Iterator[None]:
    """Turns an exception from code that is not tacit's into a StudyError; the original is chained.

    `guests` are import paths of the user's methods and models that take part. If there are any and
    the engine raises the exception, a hook has handed it something that it cannot use.
    """
    try:
        yield
    except TacitError as error:
        cause = error.__cause__
        line = _own_line(cause) if cause is not None else None
        if line is None or line in str(error):
            raise
        located = type(error)(f"{error} ({line})")
        located.parameters = error.parameters
        raise located from cause
    except Exception as error:
        text = _explanation(error, guests)
        if text is None:
            raise
        raise StudyError(text) from error


def summarise(error: BaseException) -> str:
    """An exception in one line, as the last line of its traceback has it."""
    name = type(error).__name__
    text = " ".join(str(error).split())
    return f"{name}: {_shorten(text)}" if text else name


def outside() -> int:
    """The `stacklevel` with which `warnings.warn` points at the line that called tacit.

    It counts the frames from the caller of this function up to the first one outside tacit.
    """
    frame = sys._getframe(1)
    level = 1
    while frame.f_back is not None and Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
        frame = frame.f_back
        level += 1
    return level


def _explanation(error: Exception, guests: Sequence[str]) -> str | None:
    """What the user can do about it; None for a bug of tacit's."""
    if _is_out_of_memory(error):
        remedy = "use a smaller model, fewer clients or a smaller batch_size"
        return f"there is not enough memory for this study; {remedy}"
    location = _own_frame(error)
    if location is not None:
        frame, _ = location
        return f"{_frame_name(frame)} raised {summarise(error)} ({_own_line(error)})"
    if guests:
        frame, number = list(traceback.walk_tb(error.__traceback__))[-1]
        culprits = " or ".join(guests)
        line = _line(frame, number)
        complaint = "gave the engine something that it cannot use"
        return f"{culprits} {complaint}: {summarise(error)} (at {line})"
    return None


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return True
    return "can't allocate" in str(error)


def _own_frame(error: BaseException) -> tuple[FrameType, int] | None:
    """The user's frame nearest to where the exception was raised, and its line."""
    nearest = None
    for frame, number in traceback.walk_tb(error.__traceback__):
        if _is_own(frame):
            nearest = (frame, number)
    return nearest


def _is_own(frame: FrameType) -> bool:
    """Whether the frame's code is neither tacit's, nor Python's, nor an installed library's."""
    file = frame.f_code.co_filename
    if file.startswith("<"):
        return file.startswith(TYPED_IN)
    path = Path(file).resolve()
    if not path.exists():  # a compiled library's own source
        return False
    if INSTALLED.intersection(path.parts):
        return False
    return not any(path.is_relative_to(home) for home in (PACKAGE, *STANDARD))


def _own_line(error: BaseException) -> str | None:
    """The user's line nearest to where the exception was raised, as `file.py:12`."""
    location = _own_frame(error)
    return _line(*location) if location is not None else None


def _line(frame: FrameType, number: int) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{number}"


def _frame_name(frame: FrameType) -> str:
    module = frame.f_globals.get("__name__", "")
    name = frame.f_code.co_qualname.replace(".<locals>", "")
    return f"the module {module}" if name == "<module>" else f"{module}:{name}"


def _shorten(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
