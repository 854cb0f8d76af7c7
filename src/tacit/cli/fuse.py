"""`tacit fuse`: one network of many that were trained elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.completion import complete_fusion
from tacit.cli.options import Json, Quiet
from tacit.cli.study_arguments import admit_own_code
from tacit.cli.terminal import console, print_json
from tacit.core.errors import DataError, StudyError

if TYPE_CHECKING:
    from tacit.report.fused_model import FusedModel

HEADINGS = (
    "hidden layer",
    "models' neurons",
    "fused",
    "of one model",
    "of two or more",
    "of all",
)
Arguments = Annotated[list[str], typer.Argument(metavar="MODEL MODEL... [key=value]...")]
Out = Annotated[
    Path,
    typer.Option("--out", "-o", help="The file for the fused network, .pt or .safetensors."),
]
Method = Annotated[
    str,
    typer.Option(
        help="pfnm, spahm or average: tacit list fusions.", autocompletion=complete_fusion
    ),
]
Counts = Annotated[
    Path | None,
    typer.Option(
        help="A CSV of numbers of samples: a line per model, a column per class, no heading."
    ),
]
Plot = Annotated[
    Path | None, typer.Option(help="Also draw which neuron became which: .svg, .png or .pdf.")
]
Seed = Annotated[int, typer.Option(help="Seed of the order in which models are matched.")]


def fuse_command(
    arguments: Arguments,
    out: Out,
    method: Method = "pfnm",
    counts: Counts = None,
    plot: Plot = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fuse fully connected networks of any widths into one by matching their neurons.

    A MODEL is a file with a torch state dict, or safetensors; key=value changes a setting of the
    method, as in gamma=7.
    """
    from tacit.report.fused_model import fuse

    files = [Path(text) for text in arguments if "=" not in text or Path(text).exists()]
    overrides = [text for text in arguments if Path(text) not in files]
    if out.resolve() in [path.resolve() for path in files]:
        raise StudyError(f"{out} is one of the models to fuse; name another file")
    settings = _settings(method, overrides)
    admit_own_code([settings], [Path.cwd()])
    samples = None if counts is None else _read_counts(counts)
    fused = fuse(files, settings, counts=samples, seed=seed)
    if plot is not None:
        fused.plot().save(plot)
    fused.save(out)
    if as_json:
        print_json(_as_dict(fused, out))
    elif not quiet:
        _show(fused, out)


def _settings(method: str, overrides: list[str]) -> dict[str, Any]:
    """The method with the settings that are written as `key=value`."""
    from tacit.study.file import parse_override

    if any(text.startswith("name=") for text in overrides):
        raise StudyError("the method is an option, such as --method spahm")
    return {"name": method, **dict(parse_override(text) for text in overrides)}


def _read_counts(path: Path) -> Any:
    import numpy as np

    text = path.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        return np.array([_numbers(line) for line in lines])
    except ValueError as error:
        expected = "expected numbers between commas, a line per model"
        raise DataError(f"{path}: {expected}: {error}") from None


def _numbers(line: str) -> list[float]:
    return [float(cell) for cell in line.split(",")]


def _as_dict(fused: FusedModel, out: Path) -> dict[str, Any]:
    return {
        "file": str(out),
        "models": fused.names,
        "widths": fused.widths,
        "assignment": [_as_lists(layer) for layer in fused.assignment],
    }


def _as_lists(layer: Sequence[Any]) -> list[list[int]]:
    """For each model, the fused neuron that each of its neurons became."""
    return [neurons.tolist() for neurons in layer]


def _show(fused: FusedModel, out: Path) -> None:
    """Prints how many neurons each layer has, and from how many models they are."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    layers = zip(fused.local_widths, fused.widths, fused.shared, strict=True)
    for number, (local_widths, width, shared) in enumerate(layers, 1):
        least = min(local_widths)
        most = max(local_widths)
        widths = f"{least} to {most}" if least < most else str(least)
        counts = (width, shared[0], sum(shared[1:]), shared[-1])
        table.add_row(str(number), widths, *map(str, counts))
    screen = console()
    screen.print(table)
    screen.print(f"fused {len(fused.names)} models: {out}", soft_wrap=True, highlight=False)
