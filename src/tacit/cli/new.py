"""`tacit new`: a commented study file to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tacit.core.errors import StudyError
from tacit.core.files import replacing


def new_study(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("study.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
) -> None:
    """Write a commented study file to start from."""
    if path.exists() and not force:
        raise StudyError(f"{path} exists already; name another file, or overwrite it with --force")
    try:
        with replacing(path) as file:
            file.write(commented_study(path.stem))
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror}") from None
    typer.echo(f"{path} written; run it with: tacit run {shlex.quote(str(path))}")


def commented_study(name: str) -> str:
    """Every setting with its default and what it means; the first ones make a small study."""
    import yaml

    from tacit.engines.study import SETTINGS

    chosen = {"algorithm": ["fedavg", {"name": "fedprox", "mu": 0.1}], "optimiser": {"name": "sgd", "lr": 0.1}}
    lines = [
        "# A study is a grid: any setting may be a list, and the product of the lists is run.",
        "# A setting that takes a list itself, such as local_epochs: [5, 1, 2], varies as {grid: [1, [5, 1, 2]]}.",
        f"name: {name}",
    ]
    for key, item in SETTINGS.items():
        value = yaml.safe_dump(chosen.get(key, item.metadata["default"]), default_flow_style=True, sort_keys=False)
        text = value.removesuffix("\n").removesuffix("\n...")
        lines += ["", f"# {item.metadata['about']}", f"{key}: {text}"]
    return "\n".join(lines) + "\n"
