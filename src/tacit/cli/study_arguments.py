"""The study that a command line names: a file, and settings as `key=value`."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.core.errors import StudyError, TacitError
from tacit.core.files import expanded
from tacit.execution.placement import ExecutionOptions

if TYPE_CHECKING:
    from tacit.study.study import Study

BUILT_IN = Path(__file__).parent / "built_in.yaml"
OPTIONS = (*ExecutionOptions.__annotations__, "plan", "out", "resume", "json", "quiet")


def read_study(arguments: list[str], *, quiet: bool = True) -> Study:
    """The study of a file, or the built-in one, with settings that win over the file's."""
    from tacit.study.file import parse_override, read_settings
    from tacit.study.study import Study

    files = [text for text in arguments if "=" not in text]
    overrides = [text for text in arguments if "=" in text]
    _check_overrides(overrides)
    _check_files(files)
    if not files and not quiet:
        text = "no study file is named, so this is the built-in study; tacit new writes a file"
        print(f"note: {text}", file=sys.stderr)
    path = Path(files[0]) if files else BUILT_IN
    folders = [Path.cwd(), path.resolve().parent] if files else [Path.cwd()]
    settings = [dict([parse_override(text)]) for text in overrides]
    admit_own_code([read_settings(path), *settings], folders)
    return Study.from_file(path, overrides)


def study_home(arguments: list[str]) -> Path | None:
    """The folder of the study's file, if it is another one and own code of the study is in it."""
    files = [text for text in arguments if "=" not in text]
    if not files:
        return None
    home = Path(files[0]).resolve().parent
    return home if home != Path.cwd() and str(home) in sys.path else None


def admit_own_code_of(folder: Path) -> None:
    """Makes own code importable if the study that is to be resumed in this folder names any."""
    from tacit.study.file import read_settings

    with suppress(TacitError):  # resuming it says what is wrong
        admit_own_code([read_settings(expanded(folder) / "study.yaml")], [Path.cwd()])


def admit_own_code(studies: Sequence[Mapping[str, Any]], folders: Sequence[Path]) -> None:
    """Has Python look for modules in these folders too, after all others.

    Only in those that hold a module which the settings of these studies name.
    """
    from tacit.study.user_code import named_modules

    modules = {module for settings in studies for module in named_modules(settings)}
    for folder in folders:
        holds_one = any(_holds(folder, module) for module in modules)
        if holds_one and str(folder) not in sys.path:
            sys.path.append(str(folder))


def _holds(folder: Path, module: str) -> bool:
    """Whether Python would find the module, or the package, in this folder."""
    return importlib.machinery.PathFinder.find_spec(module, [str(folder)]) is not None


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
