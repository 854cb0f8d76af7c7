"""`tacit fuse`: one network of many that were trained elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.completion import complete_fusion
from tacit.cli.options import Json, Quiet
from tacit.core.errors import DataError, StudyError

if TYPE_CHECKING:
    from tacit.report.fused_model import FusedModel


def fuse_command(
    arguments: Annotated[list[str], typer.Argument(metavar="MODEL MODEL... [key=value]...")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The file for the fused network, .pt or .safetensors."),
    ],
    method: Annotated[
        str,
        typer.Option(
            help="pfnm, spahm or average: tacit list fusions.", autocompletion=complete_fusion
        ),
    ] = "pfnm",
    counts: Annotated[
        Path | None,
        typer.Option(help="A CSV of samples: a line per model, a column per class, no heading."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw which neuron became which: .svg, .png or .pdf.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Of the order in which models look for their places.")
    ] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fuse fully connected networks of any widths into one by matching their neurons.

    A MODEL is a file with a torch state dict, or safetensors; key=value changes a setting of the method, as in gamma=7.
    """
    from tacit.report.fused_model import fuse
    from tacit.study.file import parse_override

    files = [Path(text) for text in arguments if "=" not in text or Path(text).exists()]
    settings = [text for text in arguments if Path(text) not in files]
    if out.resolve() in [path.resolve() for path in files]:
        raise StudyError(f"{out} is one of the models to fuse; name another file")
    if any(text.startswith("name=") for text in settings):
        raise StudyError("the method is an option: --method spahm, say")
    chosen = {"name": method, **dict(parse_override(text) for text in settings)}
    found = fuse(files, chosen, counts=None if counts is None else _read_counts(counts), seed=seed)
    if plot is not None:
        found.plot().save(plot)
    found.save(out)
    if as_json:
        typer.echo(json.dumps(_described(found, out), indent=2))
    elif not quiet:
        _show(found, out)


def _read_counts(path: Path) -> Any:
    import numpy as np

    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        return np.array(
            [
                [float(cell) for cell in line.split(",")]
                for line in text.splitlines()
                if line.strip()
            ]
        )
    except ValueError as error:
        raise DataError(
            f"{path}: expected numbers between commas, a line per model: {error}"
        ) from None


def _described(found: FusedModel, out: Path) -> dict[str, Any]:
    assignment = [[own.tolist() for own in layer] for layer in found.assignment]
    return {
        "file": str(out),
        "models": found.names,
        "widths": found.widths,
        "assignment": assignment,
    }


def _show(found: FusedModel, out: Path) -> None:
    from rich.table import Table

    from tacit.cli.terminal import console

    table = Table(box=None, pad_edge=False)
    for heading in (
        "hidden layer",
        "models' neurons",
        "fused",
        "of one model",
        "of two or more",
        "of all",
    ):
        table.add_column(heading, justify="right")
    for k, (local, width, shared) in enumerate(
        zip(found.local_widths, found.widths, found.shared, strict=True)
    ):
        several = f"{min(local)} to {max(local)}" if min(local) < max(local) else str(local[0])
        table.add_row(
            str(k + 1), several, str(width), str(shared[0]), str(sum(shared[1:])), str(shared[-1])
        )
    screen = console()
    screen.print(table)
    screen.print(f"fused {len(found.names)} models: {out}", soft_wrap=True, highlight=False)
