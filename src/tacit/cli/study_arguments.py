"""The study that a command line names: a file, and settings as `key=value`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.core.errors import StudyError
from tacit.execution.placement import ExecutionOptions

if TYPE_CHECKING:
    from tacit.study.study import Study

BUILT_IN = Path(__file__).parent / "built_in.yaml"
OPTIONS = (*ExecutionOptions.__annotations__, "plan", "out", "resume", "json", "quiet")


def read_study(arguments: list[str], *, quiet: bool = True) -> Study:
    """The study of a file, or the built-in one, with settings that win over the file's."""
    from tacit.study.study import Study

    files = [text for text in arguments if "=" not in text]
    overrides = [text for text in arguments if "=" in text]
    _check_overrides(overrides)
    _check_files(files)
    if not files:
        if not quiet:
            text = "no study file is named, so this is the built-in study; tacit new writes a file"
            print(f"note: {text}", file=sys.stderr)
        return Study.from_file(BUILT_IN, overrides)
    folder = Path(files[0]).resolve().parent
    sys.path.append(str(folder))  # modules beside the study, after all others
    return Study.from_file(files[0], overrides)


def _check_overrides(overrides: list[str]) -> None:
    """Refuses options that are written as settings, and spaces around a `=`."""
    for text in overrides:
        key, _, value = text.partition("=")
        if key in OPTIONS:
            option = f"--{key} {value}".rstrip()
            raise StudyError(f"{key} is an option, not a setting of the study: write {option}")
    if "=" in overrides:
        raise StudyError("expected key=value without spaces around the =, such as rounds=5")


def _check_files(files: list[str]) -> None:
    """Refuses more than one file, and what was probably meant as a setting."""
    from tacit.study.settings import SETTINGS

    for text in files:
        if not text:
            raise StudyError("the study file has an empty name")
        key, _, value = text.partition(":")
        name, _, _ = key.partition(".")
        if not Path(text).exists() and name in {*SETTINGS, "name"}:
            setting = f"{key}={value.strip() or '...'}"
            remedy = f"to change a setting, write {setting}"
            raise StudyError(f"there is no study file {text}; {remedy}")
    if len(files) > 1:
        raise StudyError(f"expected one study file, got {' and '.join(files)}")
