"""What a shell offers after TAB: study files, settings as `key=`, and the names they take."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer


def complete_family(incomplete: str) -> list[str]:
    """The argument of `tacit list`."""
    from tacit.cli.method_texts import read_families

    return _starting(incomplete, read_families())


def complete_device(incomplete: str) -> list[str]:
    """What `--device` takes; torch would need seconds to say which GPUs there are."""
    return _starting(incomplete, ("cpu", "cuda", "cuda:0", "cuda:0,cuda:1"))


def complete_fusion(incomplete: str) -> list[str]:
    """What `--method` takes."""
    return _starting(incomplete, names_of("fusion"))


def complete_group(incomplete: str) -> list[str]:
    """What `--group` takes."""
    from tacit.vertical.groups.group import Group

    return _starting(incomplete, Group.known())


def complete_cluster(incomplete: str) -> list[str]:
    """What `--on` takes."""
    return _starting(incomplete, ("ray", "ray://"))


def complete_study(ctx: typer.Context, incomplete: str) -> list[str]:
    """An argument of `tacit run`: a study file, or `key=value`."""
    words = [str(word) for word in ctx.params.get("arguments") or ()]
    return complete(words, incomplete)


def complete(words: list[str], incomplete: str) -> list[str]:
    """What may stand in the place of `incomplete`, after the words before it.

    bash takes `split=ii` for three words and wants the last one completed; other shells want all
    of it.
    """
    key, equals, start = incomplete.partition("=")
    if equals:
        return [f"{key}={name}" for name in _starting(start, names_of(key))]
    if words[-1:] == ["="] and len(words) > 1:
        return _starting(incomplete, names_of(words[-2]))
    if words and not incomplete:
        names = names_of(words[-1])
        if names:  # bash, right after the =
            return names
    return [*_study_files(incomplete), *_settings(incomplete)]


def names_of(setting: str) -> list[str]:
    """What may stand after `setting=`, as far as it has a name."""
    from tacit.study.settings import SETTING_FAMILIES, TYPES

    if setting in SETTING_FAMILIES:
        return list(SETTING_FAMILIES[setting].known())
    kind = TYPES.get(setting, Any)
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return ["true", "false"] if kind is bool else []


def _starting(start: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(start)]


def _settings(start: str) -> list[str]:
    """Settings as `key=`.

    If only one is left, its values are offered too, so that a shell sets no blank after the `=`.
    """
    from tacit.study.settings import SETTINGS

    keys = _starting(start, SETTINGS)
    offers = [f"{key}=" for key in keys]
    if len(keys) == 1:
        default = SETTINGS[keys[0]].metadata["default"]
        values = names_of(keys[0])
        if not values and default:
            values = [str(default)]
        offers += [f"{keys[0]}={value}" for value in values]
    return offers


def _study_files(start: str) -> list[str]:
    """YAML files, then folders, whose paths begin like this."""
    name = start.rpartition("/")[2]
    prefix = start.removesuffix(name)
    folder = Path(prefix).expanduser()
    if not folder.is_dir():
        return []
    files = []
    folders = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not path.name.startswith(name):
            continue
        if path.suffix in (".yaml", ".yml"):
            files.append(f"{prefix}{path.name}")
        if path.is_dir():
            folders.append(f"{prefix}{path.name}/")
    return files + folders
