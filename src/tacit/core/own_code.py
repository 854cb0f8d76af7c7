"""What goes wrong in the user's own code, such as a hook or a model, as one line that names the place to mend."""

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
TYPED_IN = ("<stdin>", "<ipython")  # code without a file that is the user's all the same


@contextmanager
def own_code(guests: Sequence[str] = ()) -> Iterator[None]:
    """Turns an exception from code that is not tacit's into a StudyError; the original is chained.

    `guests` are import paths of methods and models of the user's own that take part. Where one does and the exception
    is raised by the engine, a hook has handed it something that it cannot use.
    """
    try:
        yield
    except TacitError as error:
        cause = error.__cause__
        place = _place(cause) if cause is not None else None
        if place is None or place in str(error):
            raise
        raise type(error)(f"{error} ({place})") from cause
    except Exception as error:
        if text := _explanation(error, guests):
            raise StudyError(text) from error
        raise


def summarise(error: BaseException) -> str:
    """An exception in one line, as the last line of its traceback has it."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {_cut(said)}" if said else type(error).__name__


def outside() -> int:
    """How many frames above the caller of this function the code is that called tacit, for `warnings.warn`."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
        frame, level = frame.f_back, level + 1
    return level


def _explanation(error: Exception, guests: Sequence[str]) -> str | None:
    """What the user can do about it, or None: a bug of ours."""
    if (
        isinstance(error, MemoryError)
        or "OutOfMemory" in type(error).__name__
        or "can't allocate" in str(error)
    ):
        return "the memory does not suffice for this study; use a smaller model, fewer clients or a smaller batch_size"
    if found := _own_frame(error):
        frame = found[0]
        return f"{_name(frame)} raised {summarise(error)} ({_place(error)})"
    if guests:
        frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
        at = f"{Path(frame.f_code.co_filename).name}:{line}"
        return f"{' or '.join(guests)} gave the engine something that it cannot use: {summarise(error)} (at {at})"
    return None


def _own_frame(error: BaseException) -> tuple[FrameType, int] | None:
    """The user's frame that is nearest to where the exception was raised, and its line."""
    frames = [
        (frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_own(frame)
    ]
    return frames[-1] if frames else None


def _is_own(frame: FrameType) -> bool:
    """Whether the frame runs code that is neither tacit's, nor Python's, nor an installed library's."""
    file = frame.f_code.co_filename
    if file.startswith("<"):
        return file.startswith(TYPED_IN)
    path = Path(file).resolve()
    if not path.exists():  # a compiled library's own source
        return False
    return not (
        INSTALLED & set(path.parts)
        or any(path.is_relative_to(home) for home in (PACKAGE, *STANDARD))
    )


def _place(error: BaseException) -> str | None:
    found = _own_frame(error)
    return f"{Path(found[0].f_code.co_filename).name}:{found[1]}" if found else None


def _name(frame: FrameType) -> str:
    module = frame.f_globals.get("__name__", "")
    name = frame.f_code.co_qualname.replace(".<locals>", "")
    return f"the module {module}" if name == "<module>" else f"{module}:{name}"


def _cut(text: str, most: int = 160) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
