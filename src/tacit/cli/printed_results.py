"""The results of a study as `tacit run` prints them: tables, or JSON."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from tacit.cli.terminal import console, print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tacit.report.results import Results

MANY_ROWS = 12  # of a comparison; beyond them only the first table is printed


def print_results(results: Results) -> None:
    """Prints a table for each metric, what to take away, and where the report is."""
    from tacit.report.findings import find

    screen = console()
    metrics = list(results.titles)
    if len(results.table(metrics[0])) > MANY_ROWS:
        metrics = metrics[:1]
    for metric in metrics:
        title = results.titles[metric]
        if results.seeds > 1:
            title += f", mean and deviation over {results.seeds} seeds"
        screen.print(title, style="bold")
        screen.print(_table(results, metric))
    left_out = [title for metric, title in results.titles.items() if metric not in metrics]
    if left_out:
        screen.print(f"in the report: {'; '.join(left_out)}", highlight=False)
    _print_all_metrics(results, screen)
    for finding in find(results):
        mark = "warning: " if finding.is_warning else "- "
        screen.print(f"{mark}{finding.text}", highlight=False, soft_wrap=True)
    for run in results.summary().itertuples():
        if run.status == "diverged":
            text = f"{run.run} diverged in round {run.round}: its numbers grew without bound"
            screen.print(text, highlight=False)
    screen.print(f"\nreport: {results.report}", soft_wrap=True, highlight=False)


def _print_all_metrics(results: Results, screen: Console) -> None:
    """Every metric of every method, and of a mere guess."""
    from rich.table import Table

    from tacit.report.metric_frame import metric_frame
    from tacit.training.metrics import METRICS

    figures = metric_frame(results)
    if figures.empty or len(figures) > MANY_ROWS:
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("method", overflow="fold")
    for name in figures.columns:
        table.add_column(METRICS[name].title, justify="right", overflow="fold")
    for label, values in figures.iterrows():
        cells = [_cell(value, math.nan, several=False) for value in values]
        table.add_row(str(label), *cells)
    screen.print("\nAll metrics", style="bold")
    screen.print(table)
    screen.print()


def print_results_json(results: Results) -> None:
    """Prints where the results are, and every run's last metrics."""
    runs = json.loads(results.summary().to_json(orient="records"))
    summary: dict[str, Any] = {
        "folder": str(results.folder),
        "report": str(results.report),
        "runs": runs,
    }
    print_json(summary)


def _table(results: Results, metric: str) -> Table:
    from rich.table import Table

    means = results.table(metric)
    deviations = results.table(metric, "std")
    table = Table(box=None, pad_edge=False)
    table.add_column("method", overflow="fold")
    for column in means.columns:
        table.add_column(str(column), justify="right", overflow="fold")
    for name in means.index:
        cells = []
        for mean, deviation in zip(means.loc[name], deviations.loc[name], strict=True):
            cells.append(_cell(mean, deviation, several=results.seeds > 1))
        table.add_row(str(name), *cells)
    return table


def _cell(mean: float, deviation: float, *, several: bool) -> str:
    """The mean, with its deviation where there are several seeds; NaN is left out."""
    if mean != mean:
        return ""
    if several and deviation == deviation:
        return f"{mean:.4f} ± {deviation:.4f}"
    return f"{mean:.4f}"
