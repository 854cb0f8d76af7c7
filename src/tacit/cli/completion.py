"""What a shell offers after TAB: study files, settings as `key=`, and the names that a setting takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer


def complete_family(incomplete: str) -> list[str]:
    """The argument of `tacit list`."""
    from tacit.cli.families import families

    return [name for name in families() if name.startswith(incomplete)]


def complete_device(incomplete: str) -> list[str]:
    """What `--device` takes; which GPUs there are is not looked up, since that takes torch seconds."""
    return [
        name for name in ("cpu", "cuda", "cuda:0", "cuda:0,cuda:1") if name.startswith(incomplete)
    ]


def complete_fusion(incomplete: str) -> list[str]:
    """What `--method` takes."""
    return [name for name in names_of("fusion") if name.startswith(incomplete)]


def complete_group(incomplete: str) -> list[str]:
    """What `--group` takes."""
    from tacit.vertical.groups.group import Group

    return [name for name in Group.known() if name.startswith(incomplete)]


def complete_cluster(incomplete: str) -> list[str]:
    """What `--on` takes."""
    return [name for name in ("ray", "ray://") if name.startswith(incomplete)]


def complete_study(ctx: typer.Context, incomplete: str) -> list[str]:
    """An argument of `tacit run`: a study file, or `key=value`."""
    return complete([str(word) for word in (ctx.params.get("arguments") or ())], incomplete)


def complete(given: list[str], incomplete: str) -> list[str]:
    """The words that may stand where `incomplete` is, after those given.

    bash takes `split=ii` for three words and wants the last one completed; other shells want the whole of it.
    """
    key, equals, start = incomplete.partition("=")
    if equals:
        return [f"{key}={name}" for name in names_of(key) if name.startswith(start)]
    if given[-1:] == ["="] and len(given) > 1:
        return [name for name in names_of(given[-2]) if name.startswith(incomplete)]
    if given and not incomplete and names_of(given[-1]):  # bash, right after the =
        return names_of(given[-1])
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


def _settings(start: str) -> list[str]:
    """Settings as `key=`; where only one is left, also what it may be, so that a shell sets no blank after the `=`."""
    from tacit.study.settings import SETTINGS

    found = [key for key in SETTINGS if key.startswith(start)]
    if len(found) != 1:
        return [f"{key}=" for key in found]
    key = found[0]
    default = SETTINGS[key].metadata["default"]
    return [
        f"{key}=",
        *(f"{key}={name}" for name in names_of(key) or ([str(default)] if default else [])),
    ]


def _study_files(start: str) -> list[str]:
    """YAML files and folders that begin like this."""
    folder, name = Path(start).expanduser().parent if start else Path(), start.rpartition("/")[2]
    folder = Path(start).expanduser() if start.endswith("/") else folder
    if not folder.is_dir():
        return []
    found = sorted(
        path for path in folder.iterdir() if path.name.startswith(name) and path.name[:1] != "."
    )
    shown = start.removesuffix(name)
    folders = [f"{shown}{path.name}/" for path in found if path.is_dir()]
    return [f"{shown}{path.name}" for path in found if path.suffix in (".yaml", ".yml")] + folders
