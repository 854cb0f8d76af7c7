"""`tacit predict`: what a study's model says of new rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.options import Json, Quiet
from tacit.cli.study_arguments import admit_own_code_of
from tacit.cli.terminal import print_json
from tacit.core.errors import DataError, StudyError

if TYPE_CHECKING:
    import pandas as pd

    from tacit.report.predictions import Predictions
    from tacit.report.results import Results

SHOWN_RUNS = 5  # in an error

StudyFolder = Annotated[Path, typer.Argument(help="The folder of a study of a table.")]
Rows = Annotated[Path, typer.Argument(help="The new rows: a CSV or parquet file.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="The CSV or parquet file to write; printed if left out."),
]
RunName = Annotated[str | None, typer.Option("--run", help="The run; the best one if left out.")]
Client = Annotated[
    str | None, typer.Option(help="The client whose own model predicts, by name or number.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")]
Threshold = Annotated[
    float | None,
    typer.Option(help="Predict the positive class from this probability on; 0.5 if left out."),
]


def predict_command(
    folder: StudyFolder,
    rows: Rows,
    out: Out = None,
    run: RunName = None,
    client: Client = None,
    threshold: Threshold = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict new rows with a study's model, encoded as its training rows were.

    The rows come back as a CSV with the prediction, and with the probability of every class.
    """
    from tacit.report.predictions import predict
    from tacit.report.results import Results

    admit_own_code_of(folder)
    results = Results(folder)
    if out is not None:
        _check_out(out, rows, folder, force=force)
    run = run or _best(results)
    predictions = predict(results, run, rows, _client(results, run, client))
    _note_divergence(results, run)
    answers = _answers(predictions, threshold)
    table = _beside(rows, answers)
    if out is not None:
        _write(table, out)
    if as_json:
        summary: dict[str, Any] = {
            "run": run,
            "rows": len(table),
            "out": None if out is None else str(out),
        }
        if out is None:
            summary["predictions"] = json.loads(answers.to_json(orient="records"))
        print_json(summary)
    elif out is None:
        typer.echo(table.to_csv(index=False), nl=False)
    elif not quiet:
        print(f"{len(table):,} rows, predicted by {run}: {out}", file=sys.stderr)


def _best(results: Results) -> str:
    """The best run; where runs were tested on different rows, none is."""
    from tacit.study.run_names import TEST

    if results.columns == TEST:
        runs = ", ".join(list(results.labels)[:SHOWN_RUNS])
        raise StudyError(
            f"the runs of {results.folder} were tested on different rows, so none is the best of"
            f" all; name one of them with --run, such as {runs}"
        )
    return results.best()


def _note_divergence(results: Results, run: str) -> None:
    last = results.summary().set_index("run").loc[run]
    if last["status"] == "diverged":
        text = f"{run} diverged in round {last['round']}; this is its last sound model"
        print(f"note: {text}", file=sys.stderr)


def _client(results: Results, run: str, client: str | None) -> str | int | None:
    """A client's name, or its number where it has none."""
    if client is None or not client.isdecimal():
        return client
    results.check_run(run)
    return client if client in results.client_names(run) else int(client)


def _answers(predictions: Predictions, threshold: float | None) -> pd.DataFrame:
    """The new columns."""
    answers = predictions.values(threshold).to_frame(f"predicted {predictions.target.name}")
    if predictions.target.labels:
        for label, values in predictions.probabilities().items():
            answers[f"probability of {label}"] = values
    return answers


def _beside(rows: Path, answers: pd.DataFrame) -> pd.DataFrame:
    """The rows with the new columns behind them. Their cells stay as they are written: 007."""
    import pandas as pd

    from tacit.data.readers import read_table

    frame: pd.DataFrame = read_table(rows, as_text=True)
    for name in answers:
        if name in frame:
            raise DataError(
                f"{rows} has a column {name!r} already, which the prediction would replace;"
                " rename it"
            )
    return pd.concat([frame, answers], axis=1)


def _check_out(out: Path, rows: Path, folder: Path, *, force: bool) -> None:
    """Refuses to write over the rows, over a study's files or, unless forced, over any file."""
    if not out.exists():
        return
    if rows.exists() and out.samefile(rows):
        raise DataError(f"{out} holds the rows; write the predictions to another file")
    if out.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{out} is a file of the study; write the predictions to another file")
    if not force:
        raise DataError(f"{out} exists already; name another file, or overwrite it with --force")


def _write(table: pd.DataFrame, out: Path) -> None:
    from tacit.core.files import replacing

    is_parquet = out.suffix in (".parquet", ".pq")
    try:
        with replacing(out, "wb" if is_parquet else "w") as file:
            if is_parquet:
                table.to_parquet(file, index=False)
            else:
                table.to_csv(file, index=False)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror}") from None
