"""A study's file as settings, and tables that lie beside the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tacit.core.errors import StudyError, shown
from tacit.core.yaml_text import parse, reason


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a study file, tables found from the current folder or from the file's own."""
    try:
        found = parse(path.read_text(encoding="utf-8"))
    except IsADirectoryError:
        resumable = (
            f", or go on with it: tacit run --resume {path}"
            if (path / "study.yaml").exists()
            else ""
        )
        raise StudyError(
            f"cannot read the study {path}: it is a folder; name the file in it{resumable}"
        ) from None
    except OSError as error:
        hint = (
            "; tacit new writes one to start from" if isinstance(error, FileNotFoundError) else ""
        )
        raise StudyError(f"cannot read the study {path}: {error.strerror}{hint}") from None
    except (UnicodeDecodeError, yaml.reader.ReaderError):
        raise StudyError(
            f"cannot read the study {path}: it is not text; expected a YAML file"
        ) from None
    except RecursionError:
        raise StudyError(f"{path} is nested too deeply for a study") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2024-13-45
        raise StudyError(f"{path} is not valid YAML: {reason(error)}") from None
    if found is None:
        raise StudyError(
            f"{path} is empty; expected settings such as 'algorithm: fedavg' (tacit new writes them)"
        )
    if not isinstance(found, dict):
        raise StudyError(
            f"{path}: expected settings such as 'algorithm: fedavg', got {_kind(found)} {shown(found)}"
        )
    settings = {str(key): value for key, value in found.items()}
    return {
        key: _beside(value, path.parent) if key in ("dataset", "public") else value
        for key, value in settings.items()
    }


def _beside(value: Any, folder: Path) -> Any:
    """A table's relative path, taken from the study's folder where it leads nowhere from the current one."""
    if isinstance(value, list):
        return [_beside(item, folder) for item in value]
    if not isinstance(value, Mapping):
        return value
    if value.get("name") == "table" and "path" in value:
        return {**value, "path": _found(value["path"], folder)}
    return {key: _beside(item, folder) for key, item in value.items()}


def _found(path: Any, folder: Path) -> Any:
    if isinstance(path, list):
        return [_found(one, folder) for one in path]
    elsewhere = (
        isinstance(path, str) and not Path(path).expanduser().exists() and (folder / path).exists()
    )
    return str(folder / path) if elsewhere else path


def parse_override(text: str) -> tuple[str, Any]:
    """A setting as the command line has it, `key=value`, where the value is YAML."""
    key, equals, value = text.partition("=")
    if not (equals and key):
        raise StudyError(f"expected key=value without spaces, such as rounds=5, got {text!r}")
    try:
        return key, parse(value)
    except (yaml.YAMLError, ValueError) as error:
        what = f"{shown(value)} is not valid YAML ({reason(error)})"
        raise StudyError(f"{key}: {what}; quote it, or close its brackets") from None


def _kind(value: Any) -> str:
    return (
        "a list"
        if isinstance(value, list)
        else "the text"
        if isinstance(value, str)
        else "the value"
    )
