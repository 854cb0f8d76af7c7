"""What a study's folder holds, as tables."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from tacit.core.errors import StudyError, suggest
from tacit.core.files import replacing
from tacit.data.datasets import data_folder
from tacit.engines import checkpoint
from tacit.engines.history import read_lines
from tacit.engines.naming import label_runs, run_ids
from tacit.engines.study import Run, Study
from tacit.models.model import make_module


class Results:
    """The results of a study, finished or not, read from its folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / "study.yaml").exists():
            raise StudyError(f"{self.folder} holds no study: there is no study.yaml in it")
        self.study = Study.from_file(self.folder / "study.yaml")
        runs = self.study.runs()
        self.labels = dict(zip(run_ids(label_runs(runs)), label_runs(runs), strict=True))
        self.runs: dict[str, Run] = dict(zip(self.labels, runs, strict=True))

    @property
    def report(self) -> Path:
        """The page to open."""
        return self.folder / "report.html"

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """One record per run and round, clients included."""
        seconds = {(t["run"], t["round"]): t["seconds"] for t in read_lines(self.folder / "timings.jsonl")}
        lines = read_lines(self.folder / "history.jsonl")
        return [{**line, "seconds": seconds.get((line["run"], line["round"]))} for line in lines]

    def frame(self) -> pd.DataFrame:
        """A row per run and round: the settings that vary and the global metrics."""
        rows = [{**self.labels[r["run"]], **{k: v for k, v in r.items() if k != "clients"}} for r in self.records]
        return pd.DataFrame(rows).astype({"loss": float, "accuracy": float}) if rows else pd.DataFrame()

    def client_frame(self) -> pd.DataFrame:
        """A row per run, round and client."""
        keys = ("run", "round")
        rows = [{**self.labels[r["run"]], **{k: r[k] for k in keys}, **c} for r in self.records for c in r["clients"]]
        return pd.DataFrame(rows)

    def summary(self) -> pd.DataFrame:
        """A row per run: where it ended, and its best round."""
        rounds = self.frame()
        if rounds.empty:
            return rounds
        last = rounds.groupby("run", sort=False).last()
        place = list(last.columns).index("accuracy") + 1
        last.insert(place, "best_accuracy", rounds.groupby("run")["accuracy"].max())
        for name in ("bytes_up", "bytes_down", "seconds"):
            last[name] = rounds.groupby("run")[name].sum()
        return last.reindex([run for run in self.runs if run in last.index]).reset_index()

    def table(self, metric: str = "accuracy") -> pd.DataFrame:
        """The last round's metric: algorithms down, splits across, the mean over everything else, such as seeds."""
        return self.summary().pivot_table(index="algorithm", columns="split", values=metric, sort=False)

    def best(self) -> str:
        """The run with the best last accuracy."""
        summary = self.summary()
        return str(summary["run"][summary["accuracy"].argmax()])

    def model(self, run: str, data: str | None = None) -> nn.Module:
        """The global model that this run ended with."""
        if run not in self.runs:
            raise StudyError(f"no run is called {run!r}; {suggest(run, self.runs)}")
        spec = self.runs[run]
        dataset = spec.dataset.load(data_folder(data))
        module = make_module(spec.model, dataset.x.shape[1:], dataset.classes, spec.seed)
        module.load_state_dict(checkpoint.load(self.folder / "models" / f"{run}.pt"))
        return module.eval()

    def write_tables(self) -> None:
        """The tables as CSV files beside the history."""
        tables = {"summary": self.summary(), "rounds": self.frame(), "clients": self.client_frame()}
        for name, table in tables.items():
            with replacing(self.folder / f"{name}.csv") as file:
                table.to_csv(file, index=False)

    def __repr__(self) -> str:
        return f"Results of {self.study.name}: {len(self.runs)} runs in {self.folder}"
