"""Reads what a study has left in its folder: its outline, its history and who held what."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.core.errors import DataError, StudyError
from tacit.core.files import read_at_most
from tacit.records.assessments import read_assessment
from tacit.records.data_summary import DataSummary
from tacit.records.environment import read_environment
from tacit.records.history import read_lines
from tacit.records.outline import StudyOutline
from tacit.records.portrait import Portrait

LARGEST = 1 << 30  # bytes of splits.json


class StudyReader:
    """The result files of a study, finished or not; each is read once, when first asked for."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "study.yaml").exists():
            raise StudyError(f"{folder} holds no study: there is no study.yaml in it")
        self.folder = folder
        self.outline = StudyOutline.read(folder)
        self._assessments: dict[str, dict[str, Any] | None] = {}

    @cached_property
    def rounds(self) -> list[dict[str, Any]]:
        """One record per run and round, clients included; a study's runs keep their order."""
        timings = {}
        for line in read_lines(self.folder / "timings.jsonl"):
            timings[line["run"], line["round"]] = line
        order = {run: number for number, run in enumerate(self.outline.runs)}
        records = []
        for line in read_lines(self.folder / "history.jsonl"):
            run = line["run"]
            if run not in order:
                path = self.folder / "history.jsonl"
                raise DataError(f"{path} names a run that the study does not have: {run}")
            timing = timings.get((run, line["round"]), {})
            records.append({**line, "seconds": None, **timing})
        return sorted(records, key=lambda record: (order[record["run"]], record["round"]))

    @cached_property
    def portraits(self) -> list[Portrait]:
        """Who held what, for each way in which the data were divided."""
        path = self.folder / "splits.json"
        if not path.exists():
            return []
        try:
            portraits = json.loads(read_at_most(path, LARGEST))
            return [Portrait.from_dict(saved) for saved in portraits]
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            advice = "delete it, and the report leaves out who holds what"
            raise DataError(f"{path} is damaged; {advice}") from None

    @cached_property
    def data(self) -> DataSummary | None:
        """The data sets of the study, and the metric that decides."""
        return DataSummary.read(self.folder)

    def assessment(self, run: str) -> dict[str, Any] | None:
        """What was found out about the last model of a run."""
        if run not in self._assessments:
            clients = self.outline.runs[run].clients
            self._assessments[run] = read_assessment(self.folder, run, clients)
        return self._assessments[run]

    @property
    def environment(self) -> list[dict[str, Any]]:
        """The versions and the machine of the study; several where it was resumed elsewhere."""
        return read_environment(self.folder)
