"""What a study's folder holds, as tables."""

from __future__ import annotations

import json
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from tacit.core.errors import DataError, StudyError, suggest
from tacit.core.files import replacing
from tacit.data.datasets import data_folder
from tacit.data.encoding import Encoding
from tacit.data.tables import Table
from tacit.models.model import make_module
from tacit.records import checkpoint
from tacit.records.environment import read_environment
from tacit.records.history import read_lines
from tacit.report.baselines import with_baselines
from tacit.study.checks import cautions
from tacit.study.portrait import Portrait
from tacit.study.run import Run
from tacit.study.run_names import encoding_files, row_names, table_columns
from tacit.study.study import Study
from tacit.study.tested_clients import ALL_TESTED, is_crowd
from tacit.study.texts import plain

TITLES = {
    "accuracy": "Global test accuracy after the last round",
    "r2": "Global test R² after the last round",
    "rmse": "Global root mean squared error after the last round, in the target's own units",
    "local_accuracy": "Clients' own tests, each with the model it uses",
    "local_r2": "Clients' own tests (R²), each with the model it uses",
    "central_accuracy": "Clients' own tests, all with the global model",
    "central_r2": "Clients' own tests (R²), all with the global model",
    "backdoor": "Backdoor success",
}
PERSONAL = {"local_accuracy", "local_r2", "central_accuracy", "central_r2"}
STATISTICS = ("mean", "std", "min", "max", "median", "sem", "var", "count", "sum")  # of pandas


class Tables:
    """The results of a study, finished or not, read from its folder: records, tables and models."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / "study.yaml").exists():
            raise StudyError(f"{self.folder} holds no study: there is no study.yaml in it")
        try:
            self.labels: dict[str, dict[str, Any]] = json.loads(
                (self.folder / "runs.json").read_text(encoding="utf-8")
            )
        except (OSError, ValueError):
            raise DataError(
                f"{self.folder / 'runs.json'} is missing or damaged; resume the study to mend it"
            ) from None

    @cached_property
    def study(self) -> Study:
        """The study, as it was run."""
        return Study.from_file(self.folder / "study.yaml")

    @cached_property
    def runs(self) -> dict[str, Run]:
        """The runs by id."""
        return dict(zip(self.labels, self.study.runs(), strict=True))

    @property
    def report(self) -> Path:
        """The page to open."""
        return self.folder / "report.html"

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """One record per run and round, clients included."""
        times = {
            (line["run"], line["round"]): line for line in read_lines(self.folder / "timings.jsonl")
        }
        lines = read_lines(self.folder / "history.jsonl")
        found = [
            {**line, "seconds": None, **times.get((line["run"], line["round"]), {})}
            for line in lines
        ]
        order = {run: k for k, run in enumerate(self.labels)}
        if strange := [record["run"] for record in found if record["run"] not in order]:
            raise DataError(
                f"{self.folder / 'history.jsonl'} tells of a run that the study does not have: {strange[0]}"
            )
        return sorted(found, key=lambda record: (order[record["run"]], record["round"]))

    def frame(self) -> pd.DataFrame:
        """A row per run and round: the settings that vary and the global metrics."""
        return self._frame.copy()

    @cached_property
    def _frame(self) -> pd.DataFrame:
        nested = ("clients", "fusion")
        rows = [
            {**self.labels[r["run"]], **{k: v for k, v in r.items() if k not in nested}}
            for r in self.records
        ]
        table, texts = (
            pd.DataFrame(rows),
            {"run", "status", "updated", *next(iter(self.labels.values()), {})},
        )
        return table.astype(
            {name: float for name in table if name not in texts and table[name].dtype == object}
        )

    def client_frame(self) -> pd.DataFrame:
        """A row per run, round and client."""
        named = {
            run: self.client_names(run)
            for run in self.labels
            if self.runs[run].split.by == "owners"
        }
        rows = []
        for record in self.records:
            about = {**self.labels[record["run"]], "run": record["run"], "round": record["round"]}
            names = named.get(record["run"])
            rows += [
                {**about, **({"name": names[c["client"]]} if names else {}), **c}
                for c in record["clients"]
            ]
        return pd.DataFrame(rows)

    @cached_property
    def score(self) -> str:
        """What models are judged by: `accuracy` or, in a regression, `r2`."""
        return "r2" if self.records and "r2" in self.records[0] else "accuracy"

    @cached_property
    def portraits(self) -> list[Portrait]:
        """Who held what, for each way in which the data were divided."""
        path = self.folder / "splits.json"
        try:
            return (
                [Portrait.from_dict(one) for one in json.loads(path.read_text())]
                if path.exists()
                else []
            )
        except (ValueError, TypeError, AttributeError):
            raise DataError(
                f"{path} is damaged; delete it, and the report goes without who held what"
            ) from None

    @property
    def environment(self) -> list[dict[str, Any]]:
        """The versions and the machine that the study ran with; several where it was resumed elsewhere."""
        return read_environment(self.folder)

    @property
    def encoding(self) -> Encoding | None:
        """How the study's table, or the first of them, became numbers; None where the data are no table."""
        path = self.folder / "encoding.json"
        return Encoding.load(path) if path.exists() else None

    def encoding_of(self, run: str) -> Encoding | None:
        """How the table of this run became numbers."""
        if run not in self.labels:
            raise StudyError(f"no run is called {run!r}; {suggest(run, self.labels)}")
        file = encoding_files(list(self.runs.values())).get(str(plain(self.runs[run].dataset)))
        return Encoding.load(self.folder / file) if file and (self.folder / file).exists() else None

    def client_names(self, run: str) -> tuple[str, ...]:
        """What this run's clients are called: as the table has it under `by_client`, else by their numbers."""
        encoding, spec = self.encoding_of(run), self.runs[run]
        named = encoding is not None and spec.split.by == "owners"
        return (
            encoding.clients
            if encoding and named
            else tuple(str(client) for client in range(spec.clients))
        )

    @property
    def cautions(self) -> list[str]:
        """What a reader of the results should know: about the settings, and rounds in which too few replied."""
        played = Counter(record["run"] for record in self.records)
        idle = Counter(record["run"] for record in self.records if not record.get("updated", True))
        quiet = [
            f"{run}: in {count} of {played[run]} rounds too few replied to change it"
            for run, count in idle.items()
        ]
        return cautions(list(self.runs.values())) + self._notes() + quiet

    def summary(self) -> pd.DataFrame:
        """A row per run: where it ended, its best round, what it cost, and the score that a megabyte sent buys."""
        rounds = self.frame()
        if rounds.empty:
            return rounds
        by_run = rounds.groupby("run", sort=False)
        last = by_run.tail(1).set_index("run")  # the last row as it is, also where it diverged
        place = list(last.columns).index(self.score) + 1
        last.insert(place, f"best_{self.score}", by_run[self.score].max())
        for name in (
            "bytes_up",
            "bytes_down",
            *(str(name) for name in rounds if str(name).endswith("seconds")),
        ):
            last[name] = by_run[name].sum(min_count=1)
        sends = (last["bytes_up"] > 0) & ~last.index.map(
            lambda run: self.runs[str(run)].is_reference
        ).to_numpy(bool)
        last[f"{self.score}_per_mb"] = last[self.score] / (last["bytes_up"] / 1e6).where(sends)
        return last.reset_index()

    @cached_property
    def names(self) -> dict[str, str]:
        """What each run is called in a table: its algorithm and whatever varies beside, but for the seed."""
        return dict(zip(self.labels, row_names(list(self.labels.values())), strict=True))

    @property
    def titles(self) -> dict[str, str]:
        """The metrics that are worth a table here; those of clients where some of them have models of their own."""
        summary = self.summary()
        alone = any(run.is_personal for run in self.runs.values())
        skipped = () if alone else PERSONAL
        return {
            metric: title
            for metric, title in TITLES.items()
            if metric in summary and metric not in skipped
        }

    @property
    def metrics(self) -> list[str]:
        """The columns of the summary that a table can show: numbers, and no settings."""
        summary = self.summary()
        settings = {"run", *next(iter(self.labels.values()), {})}
        numbers = summary.select_dtypes(["number", "bool"])
        return [str(name) for name in numbers if name not in settings]

    @property
    def columns(self) -> str:
        """The setting that the tables have their columns for."""
        return table_columns(list(self.labels.values()))

    @property
    def seeds(self) -> int:
        """How many seeds the tables average over."""
        return len({label.get("seed") for label in self.labels.values()})

    def table(self, metric: str | None = None, statistic: str = "mean") -> pd.DataFrame:
        """The last round's metric, a column per split (or per attack, if that is what varies): its mean over the seeds.

        The metric is by default the score, accuracy or R2. `statistic` may be `std` and so on. A cell is empty where a
        run diverged, whatever the other seeds did.
        """
        metric = metric or self.score
        if statistic not in STATISTICS:
            raise StudyError(
                f"there is no statistic {statistic!r}; {suggest(str(statistic), STATISTICS)}"
            )
        if metric not in self.metrics:
            raise StudyError(f"there is no metric {metric!r}; {suggest(str(metric), self.metrics)}")
        summary = self._by_method(metric)
        values = summary[metric].where(summary["status"] != "diverged")
        column = self.columns
        cells = values.groupby([summary["method"], summary[column]], sort=False)
        found = cells.agg(statistic).where(cells.apply(lambda cell: cell.notna().all()))
        found.index.names = ["algorithm", column]
        rows, columns = (
            pd.Index(summary["method"].unique(), name="algorithm"),
            summary[column].unique(),
        )
        return found.unstack(column).reindex(index=rows, columns=columns)

    def _by_method(self, metric: str) -> pd.DataFrame:
        """The summary with each run's method; of a score, also what the runs' fusions are compared with."""
        summary = self.summary()
        summary = summary.assign(method=summary["run"].map(self.names))
        return with_baselines(self, summary) if metric == self.score else summary

    def comparison(self) -> pd.DataFrame:
        """Every table at once: a row per metric, method and column, with mean, deviation and number of seeds."""
        summary, column = self.summary(), self.columns
        if summary.empty:
            return summary
        about = ["method", column, "status"]
        parts = [
            self._by_method(metric).melt(about, [metric], var_name="metric")
            for metric in self.metrics
        ]
        long = pd.concat(parts, ignore_index=True)
        long["value"] = long["value"].astype(float).where(long["status"] != "diverged")
        cells = long.groupby(["metric", "method", column], sort=False)["value"]
        whole = cells.apply(
            lambda cell: cell.notna().all()
        )  # as in the tables: empty where a run diverged
        found: Any = cells.agg(mean="mean", std="std", seeds="size")
        found.loc[~whole.to_numpy(bool), ["mean", "std"]] = float("nan")
        table: pd.DataFrame = found.reset_index()
        return table

    def best(self) -> str:
        """The run with the best last score, the centralised reference aside."""
        summary = self.summary()
        sound = summary[summary["status"] != "diverged"]
        apart = [run for run in sound["run"] if not self.runs[run].is_reference]
        sound = sound[sound["run"].isin(apart)] if apart else sound
        if sound.empty:
            raise StudyError("there is no best run: all of them diverged")
        return str(sound["run"].iloc[sound[self.score].argmax()])

    def model(
        self, run: str, data: str | None = None, *, client: int | str | None = None
    ) -> nn.Module:
        """The global model that this run ended with, or that of a client, where the method gives it one of its own.

        A client is its number, or its name where it has one.
        """
        if run not in self.labels:
            raise StudyError(f"no run is called {run!r}; {suggest(str(run), self.labels)}")
        if isinstance(client, str):
            if client not in (names := self.client_names(run)):
                raise StudyError(f"no client is called {client!r}; {suggest(client, names)}")
            client = names.index(client)
        path = (
            self.folder
            / "models"
            / (f"{run}.pt" if client is None else f"{run}-client-{client}.pt")
        )
        if client is not None and not (
            0 <= client < self.runs[run].clients and self.runs[run].keeps_client_models
        ):
            raise StudyError(
                f"{run} has no model of its own for client {client}; leave out client for the global one"
            )
        if not path.exists():
            absent = f"; of more than {ALL_TESTED} clients, only those of the last round have files"
            raise StudyError(
                f"{path} is not there: the run has not finished (resume it), or its file was deleted"
                + (absent if client is not None and is_crowd(self.runs[run]) else "")
            )
        module = make_module(self.runs[run].model, *self._sizes(run, data), self.runs[run].seed)
        return self.runs[run].rebuilt(module, checkpoint.load(path), run).eval()

    def predict(
        self, run: str, frame: pd.DataFrame, *, client: int | str | None = None
    ) -> pd.Series[Any]:
        """What this run's model says of new rows: labels as the table had them, or numbers in its units.

        The rows are encoded as the training rows were. The table itself is not needed.
        """
        module, encoding = self.model(run, client=client), self.encoding_of(run)
        if encoding is None or encoding.target is None:
            raise StudyError(
                f"{run} has no encoding, since its data are no table; use results.model({run!r})"
            )
        with torch.no_grad():
            outputs = [module(part) for part in encoding.apply(frame).split(1024)]
        found = encoding.target.decode(torch.cat(outputs)) if len(frame) else []
        return pd.Series(found, index=frame.index, name=encoding.target.name)

    def write_tables(self) -> dict[str, Path]:
        """The tables as CSV files beside the history; their paths by their names."""
        tables = {"summary": self.summary(), "rounds": self.frame(), "clients": self.client_frame()}
        tables["comparison"] = self.comparison()
        paths = {name: self.folder / f"{name}.csv" for name in tables}
        for name, table in tables.items():
            with replacing(paths[name]) as file:
                table.to_csv(file, index=False)
        return paths

    def _sizes(self, run: str, data: str | None) -> tuple[tuple[int, ...], int]:
        """The shape of a sample and the number of outputs, from the encoding or else from the data themselves."""
        encoding = self.encoding_of(run)
        if encoding and encoding.target:
            return (len(encoding.names),), encoding.target.outputs
        dataset = self.runs[run].dataset.load(data_folder(data))
        return tuple(dataset.x.shape[1:]), dataset.outputs

    def _notes(self) -> list[str]:
        """What the encodings say of their tables."""
        runs = list(self.runs.values())
        tables = {
            str(plain(run.dataset)): run.dataset.path
            for run in runs
            if isinstance(run.dataset, Table)
        }
        files = {
            tables[source]: self.folder / file for source, file in encoding_files(runs).items()
        }
        saved = {path: Encoding.load(file).notes for path, file in files.items() if file.exists()}
        return [f"{Path(path).name}: {note}" for path, notes in saved.items() for note in notes]

    def __repr__(self) -> str:
        return f"Results of {len(self.labels)} runs in {self.folder}"
