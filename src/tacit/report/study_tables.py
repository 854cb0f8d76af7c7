"""What a study's folder holds, as tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from tacit.core.errors import StudyError, suggest
from tacit.core.files import replacing
from tacit.data.encoding import Encoding
from tacit.records.data_summary import DataSummary
from tacit.records.portrait import Portrait
from tacit.records.study_reader import StudyReader
from tacit.report.baselines import with_baselines
from tacit.study.kinds.reference import ALL_DATA, REFERENCE
from tacit.study.run import Run
from tacit.study.run_names import row_names, table_columns
from tacit.study.study import Study
from tacit.training.metrics import METRICS, Metric

BACKDOOR = "Backdoor success"
NESTED = ("clients", "fusion")  # entries of a record that are no single values
STATISTICS = ("mean", "std", "min", "max", "median", "sem", "var", "count", "sum")  # of pandas


class StudyTables:
    """The results of a study, finished or not: its settings, its records and tables of them."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._files = StudyReader(self.folder)
        self._tables: dict[tuple[str, str], pd.DataFrame] = {}
        self.outline = self._files.outline
        # of each run, the settings that vary
        self.labels = {id: run.label for id, run in self.outline.runs.items()}

    @property
    def report(self) -> Path:
        """The page to open."""
        return self.folder / "report.html"

    @cached_property
    def study(self) -> Study:
        """The study, as it was run; its own code has to be there."""
        return Study.from_file(self.folder / "study.yaml")

    @cached_property
    def runs(self) -> dict[str, Run]:
        """The settings of the runs by id; the study's own code has to be there."""
        return dict(zip(self.labels, self.study.runs(), strict=True))

    @property
    def records(self) -> list[dict[str, Any]]:
        """One record per run and round, clients included."""
        return self._files.rounds

    @property
    def portraits(self) -> list[Portrait]:
        """Who held what, for each way in which the data were divided."""
        return self._files.portraits

    @property
    def environment(self) -> list[dict[str, Any]]:
        """The versions and the machine of the study; several where it was resumed elsewhere."""
        return self._files.environment

    @property
    def data(self) -> DataSummary | None:
        """The data sets of the study, and the metric that decides."""
        return self._files.data

    @cached_property
    def score(self) -> str:
        """The metric that decides, such as `accuracy`, `auc` or `r2`."""
        metric = self.data.metric if self.data else ""
        if metric in METRICS and (not self.records or metric in self.records[0]):
            return metric
        return self.basis

    @property
    def basis(self) -> str:
        """What is known of training too: accuracy or, in a regression, R2."""
        is_regression = bool(self.records) and "r2" in self.records[0]
        return "r2" if is_regression else "accuracy"

    @property
    def metric(self) -> Metric:
        """What is known of the metric that decides."""
        return METRICS[self.score]

    @property
    def score_name(self) -> str:
        """The metric that decides, as people write it."""
        return self.metric.title

    @property
    def measured(self) -> list[str]:
        """All metrics that the global models were measured by, that which decides first."""
        columns = set(self._summary.columns)
        names = [name for name in METRICS if name in columns]
        return sorted(names, key=lambda name: name != self.score)

    def assessment(self, run: str) -> dict[str, Any] | None:
        """What was found out about a run's last model: intervals, calibration, groups, columns.

        None where the run has not ended, or has diverged.
        """
        self.check_run(run)
        return self._files.assessment(run)

    @property
    def encoding(self) -> Encoding | None:
        """How the study's (first) table became numbers; None where the data are no table."""
        return self._load_encoding("encoding.json")

    def encoding_of(self, run: str) -> Encoding | None:
        """How the table of this run became numbers."""
        self.check_run(run)
        file = self.outline.runs[run].encoding
        return self._load_encoding(file) if file else None

    def client_names(self, run: str) -> tuple[str, ...]:
        """What this run's clients are called: by the table under `by_client`, else by number."""
        outline = self.outline.runs[run]
        if outline.by_owner:
            encoding = self.encoding_of(run)
            if encoding is not None:
                return encoding.clients
        return tuple(str(client) for client in range(outline.clients))

    def check_run(self, run: str) -> None:
        """Refuses a run that the study does not have."""
        if run not in self.labels:
            raise StudyError(f"no run is called {run!r}; {suggest(str(run), self.labels)}")

    def is_crowd(self, run: str) -> bool:
        """Whether a round of this run tests and records only the clients that take part in it."""
        return self.outline.runs[run].is_crowd

    @property
    def cautions(self) -> list[str]:
        """What a reader should know: about settings, tables, and rounds with too few replies."""
        rounds = Counter(record["run"] for record in self.records)
        idle = Counter(record["run"] for record in self.records if not record.get("updated", True))
        texts = self.outline.cautions + self._encoding_notes()
        for run, count in idle.items():
            texts.append(f"{run}: in {count} of {rounds[run]} rounds too few replied to change it")
        return texts

    @cached_property
    def names(self) -> dict[str, str]:
        """What each run is called in a table: its algorithm and what varies beside the seed."""
        return dict(zip(self.labels, row_names(list(self.labels.values())), strict=True))

    @property
    def methods(self) -> list[str]:
        """The names of the rows of a table, without the centralised reference."""
        return [name for name in dict.fromkeys(self.names.values()) if not is_reference(name)]

    @property
    def references(self) -> list[str]:
        """The names of the centralised references."""
        return [name for name in dict.fromkeys(self.names.values()) if is_reference(name)]

    @cached_property
    def columns(self) -> str:
        """The setting that the tables have their columns for."""
        return table_columns(list(self.labels.values()))

    def column_of(self, run: str) -> str:
        """The column of the tables that this run belongs to, such as its split."""
        return str(self.labels[run][self.columns])

    @cached_property
    def column_names(self) -> list[str]:
        """The columns of the tables; without that of the reference, if there are others."""
        names = list(dict.fromkeys(label[self.columns] for label in self.labels.values()))
        return [name for name in names if name != ALL_DATA] or names

    @property
    def seeds(self) -> int:
        """How many seeds the tables average over."""
        return len({label.get("seed") for label in self.labels.values()})

    def frame(self) -> pd.DataFrame:
        """A row per run and round: the settings that vary and the global metrics."""
        return self._frame.copy()

    def client_frame(self) -> pd.DataFrame:
        """A row per run, round and client."""
        client_names = {}
        for run, outline in self.outline.runs.items():
            if outline.by_owner:
                client_names[run] = self.client_names(run)
        rows = []
        for record in self.records:
            run = record["run"]
            settings = {**self.labels[run], "run": run, "round": record["round"]}
            for client in record["clients"]:
                row = dict(settings)
                if run in client_names:
                    row["name"] = client_names[run][client["client"]]
                rows.append(row | client)
        return pd.DataFrame(rows)

    def summary(self) -> pd.DataFrame:
        """A row per run: its end, its best round, its costs, and its score per megabyte sent."""
        return self._summary.copy()

    @property
    def titles(self) -> dict[str, str]:
        """The titles of the metrics that are worth a table here.

        Those of clients are, where some clients have models of their own.
        """
        name = self.score_name
        titles = {self.score: f"Global test {name} after the last round{self._units}"}
        titles["rmse"] = "Global test RMSE after the last round, in the target's own units"
        if any(run.is_personal for run in self.outline.runs.values()):
            own = "Clients' own tests"
            titles[f"local_{self.score}"] = f"{own} ({name}), each with the model it uses"
            titles[f"central_{self.score}"] = f"{own} ({name}), all with the global model"
        titles["backdoor"] = BACKDOOR
        columns = self._summary.columns
        return {metric: title for metric, title in titles.items() if metric in columns}

    @property
    def _units(self) -> str:
        return ", in the target's own units" if self.metric.in_units else ""

    @property
    def metrics(self) -> list[str]:
        """The columns of the summary that a table can show: numbers, and no settings."""
        settings = {"run", *self._settings}
        numbers = self._summary.select_dtypes(["number", "bool"])
        return [str(name) for name in numbers if name not in settings]

    def table(self, metric: str | None = None, statistic: str = "mean") -> pd.DataFrame:
        """The last round's metric: a row per method, a column per split, means over the seeds.

        Columns are attacks or what is tested on, if these are what varies. The metric is the one
        that decides, unless given. `statistic` may be `std` and so on. A cell is empty where a run
        diverged, whatever the other seeds did.
        """
        metric = metric or self.score
        if statistic not in STATISTICS:
            meant = suggest(str(statistic), STATISTICS)
            raise StudyError(f"there is no statistic {statistic!r}; {meant}")
        if metric not in self.metrics:
            meant = suggest(str(metric), self.metrics)
            raise StudyError(f"there is no metric {metric!r}; {meant}")
        key = (metric, statistic)
        if key not in self._tables:
            self._tables[key] = self._make_table(metric, statistic)
        return self._tables[key].copy()

    def comparison(self) -> pd.DataFrame:
        """Every table at once: a row per metric, method and column, with mean, deviation, seeds."""
        column = self.columns
        if self._summary.empty:
            return self.summary()
        tables = []
        place = self.metrics.index(self.score)  # it alone has lines for baselines
        for names in (self.metrics[:place], [self.score], self.metrics[place + 1 :]):
            if not names:
                continue
            summary = self._by_method(names[0])
            tables.append(summary.melt(["method", column, "status"], names, var_name="metric"))
        values = pd.concat(tables, ignore_index=True)
        values["value"] = values["value"].astype(float).where(values["status"] != "diverged")
        cells = values.groupby(["metric", "method", column], sort=False)["value"]
        is_complete = cells.count() == cells.size()  # empty where a run diverged
        figures: Any = cells.agg(mean="mean", std="std", seeds="size")
        figures.loc[~is_complete.to_numpy(bool), ["mean", "std"]] = float("nan")
        comparison: pd.DataFrame = figures.reset_index()
        return comparison

    def best(self) -> str:
        """The run with the best last score, the centralised reference aside."""
        summary = self._summary
        if summary.empty:
            raise StudyError("there is no best run: none has ended a round yet")
        sound = summary[summary["status"] != "diverged"]
        federated = [run for run in sound["run"] if not self.outline.runs[run].is_reference]
        if federated:
            sound = sound[sound["run"].isin(federated)]
        if sound.empty:
            raise StudyError("there is no best run: all of them diverged")
        merits = sound[self.score].map(self.metric.merit, na_action="ignore")
        if merits.isna().all():
            raise StudyError(f"there is no best run: none has a {self.score_name}")
        position = int(merits.to_numpy(float, na_value=-math.inf).argmax())
        return str(sound["run"].iloc[position])

    def best_if_any(self) -> str | None:
        """The best run; None where nothing has been recorded, all diverged or none has a figure."""
        try:
            return self.best()
        except StudyError:
            return None

    def write_tables(self) -> dict[str, Path]:
        """The tables as CSV files beside the history; their paths by their names."""
        tables = {
            "summary": self._summary,
            "rounds": self._frame,
            "clients": self.client_frame(),
            "comparison": self.comparison(),
        }
        paths = {}
        for name, table in tables.items():
            paths[name] = self.folder / f"{name}.csv"
            with replacing(paths[name]) as file:
                table.to_csv(file, index=False)
        return paths

    @property
    def _settings(self) -> Sequence[str]:
        """The settings that vary."""
        return list(next(iter(self.labels.values()), {}))

    @cached_property
    def _frame(self) -> pd.DataFrame:
        rows = []
        for record in self.records:
            figures = {name: value for name, value in record.items() if name not in NESTED}
            rows.append({**self.labels[record["run"]], **figures})
        table = pd.DataFrame(rows)
        texts = {"run", "status", "updated", *self._settings}
        gappy = [name for name in table if name not in texts and table[name].dtype == object]
        return table.astype(dict.fromkeys(gappy, float))

    @cached_property
    def _summary(self) -> pd.DataFrame:
        rounds = self._frame
        if rounds.empty:
            return rounds
        score = self.score
        by_run = rounds.groupby("run", sort=False)
        summary = by_run.tail(1).set_index("run")  # the last row as it is, also where it diverged
        after_score = list(summary.columns).index(score) + 1
        best = by_run[score].min() if self.metric.lowest_is_best else by_run[score].max()
        summary.insert(after_score, f"best_{score}", best)
        seconds = [str(name) for name in rounds if str(name).endswith("seconds")]
        for name in ("bytes_up", "bytes_down", *seconds):
            summary[name] = by_run[name].sum(min_count=1)
        references = [id for id, run in self.outline.runs.items() if run.is_reference]
        sends = (summary["bytes_up"] > 0) & ~summary.index.isin(references)
        megabytes = summary["bytes_up"] / 1e6
        per_megabyte = summary[score] / megabytes.where(sends)
        if self.metric.lowest_is_best:  # an error per megabyte says nothing
            per_megabyte[:] = float("nan")
        summary[f"{score}_per_mb"] = per_megabyte
        return summary.reset_index()

    def _make_table(self, metric: str, statistic: str) -> pd.DataFrame:
        summary = self._by_method(metric)
        column = self.columns
        values = summary[metric].where(summary["status"] != "diverged")
        cells = values.groupby([summary["method"], summary[column]], sort=False)
        is_complete = cells.count() == cells.size()
        figures = cells.agg(statistic).where(is_complete)
        figures.index.names = ["algorithm", column]
        rows = pd.Index(summary["method"].unique(), name="algorithm")
        return figures.unstack(column).reindex(index=rows, columns=summary[column].unique())

    def _by_method(self, metric: str) -> pd.DataFrame:
        """The summary with each run's method; of a score, also what fusions are compared with."""
        summary = self._summary.assign(method=self._summary["run"].map(self.names))
        return with_baselines(self, summary) if metric == self.score else summary

    def _load_encoding(self, name: str) -> Encoding | None:
        path = self.folder / name
        return Encoding.load(path) if path.exists() else None

    def _encoding_notes(self) -> list[str]:
        """What the encodings say of their tables."""
        notes = []
        for file, table in self.outline.tables.items():
            encoding = self._load_encoding(file)
            if encoding is not None:
                notes += [f"{table}: {note}" for note in encoding.notes]
        return list(dict.fromkeys(notes))

    def __repr__(self) -> str:
        return f"Results of {len(self.labels)} runs in {self.folder}"


def is_reference(name: str) -> bool:
    """Whether a row of a table is the centralised reference."""
    return name.startswith(REFERENCE)
