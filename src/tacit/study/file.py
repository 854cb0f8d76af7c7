"""Reads a study's file, and finds the tables that lie beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tacit.core.errors import StudyError, shown
from tacit.core.files import expanded, read_at_most
from tacit.core.yaml_text import LONGEST, parse, reason

EXAMPLE = "'algorithm: fedavg'"
DATA_SETTINGS = ("dataset", "public")  # these may name tables


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a study file. Tables are looked for in the current folder and beside it."""
    content = _parse_file(path)
    if content is None:
        raise StudyError(
            f"{path} is empty; expected settings such as {EXAMPLE} (tacit new writes them)"
        )
    if not isinstance(content, dict):
        got = f"{_kind(content)} {shown(content)}"
        raise StudyError(f"{path}: expected settings such as {EXAMPLE}, got {got}")
    settings = {str(key): value for key, value in content.items()}
    for name in DATA_SETTINGS:
        if name in settings:
            settings[name] = _locate_tables(settings[name], path.parent)
    return settings


def _parse_file(path: Path) -> Any:
    """The file's content as YAML; a StudyError says why there is none."""
    try:
        return parse(read_at_most(path, LONGEST).decode("utf-8"))
    except IsADirectoryError:
        raise _folder_error(path) from None
    except FileNotFoundError as error:
        raise StudyError(
            f"cannot read the study {path}: {error.strerror}; tacit new writes one to start from"
        ) from None
    except OSError as error:
        raise StudyError(f"cannot read the study {path}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.reader.ReaderError):
        raise StudyError(
            f"cannot read the study {path}: it is not text; expected a YAML file"
        ) from None
    except yaml.YAMLError as error:
        raise StudyError(f"{path} is not valid YAML: {reason(error)}") from None


def _folder_error(path: Path) -> StudyError:
    text = f"cannot read the study {path}: it is a folder; name the file in it"
    if not (path / "study.yaml").exists():
        return StudyError(text)
    return StudyError(
        f"{text}, or continue it with: tacit.resume({str(path)!r})", parameters=("resume",)
    )


def _locate_tables(value: Any, folder: Path) -> Any:
    """The setting with the paths of its tables as `_locate` finds them."""
    if isinstance(value, list):
        return [_locate_tables(item, folder) for item in value]
    if not isinstance(value, Mapping):
        return value
    if value.get("name") == "table" and "path" in value:
        located = {**value, "path": _locate(value["path"], folder)}
        if "test" in value:
            located["test"] = _locate_test(value["test"], folder)
        return located
    return {key: _locate_tables(item, folder) for key, item in value.items()}


def _locate_test(test: Any, folder: Path) -> Any:
    """The setting `test` of a table, which may name a file."""
    if isinstance(test, list):
        return [_locate_test(item, folder) for item in test]
    if isinstance(test, Mapping) and "path" in test:
        return {**test, "path": _locate(test["path"], folder)}
    return _locate(test, folder)


def _locate(path: Any, folder: Path) -> Any:
    """A path that leads nowhere from the current folder, taken from the study's folder instead."""
    if isinstance(path, list):
        return [_locate(item, folder) for item in path]
    if not isinstance(path, str) or os.path.exists(expanded(path)):
        return path
    beside = folder / path
    return str(beside) if os.path.exists(beside) else path


def parse_override(text: str) -> tuple[str, Any]:
    """A setting as the command line has it, `key=value`, where the value is YAML."""
    key, equals, value = text.partition("=")
    if not (equals and key):
        raise StudyError(f"expected key=value without spaces, such as rounds=5, got {shown(text)}")
    try:
        return key, parse(value)
    except yaml.YAMLError as error:
        raise StudyError(
            f"{key}: {shown(value)} is not valid YAML ({reason(error)}); quote it, or close its"
            " brackets"
        ) from None


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return "the text"
    return "the value"
