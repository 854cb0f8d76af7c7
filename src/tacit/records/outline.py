"""What a report has to know of a study: written when it starts, and read without its code."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit.core.errors import DataError
from tacit.core.files import read_at_most, replacing

FILE = "outline.json"
LARGEST = 64 << 20  # bytes
Setting = tuple[str, str]  # its name and its values, as people write them


@dataclass(frozen=True)
class RunOutline:
    """A run, without the objects that play it."""

    label: dict[str, Any]  # the settings that vary in the study
    kind: str
    seed: int
    rounds: int
    clients: int
    is_reference: bool
    is_personal: bool
    is_crowd: bool
    by_owner: bool  # the table says whose row it is, so clients have names
    shared_work: str | None  # runs with the same text share their clients' work
    encoding: str | None  # the file that says how its table became numbers


@dataclass(frozen=True)
class StudyOutline:
    """A study: its question, its settings and its runs."""

    name: str
    question: str
    varied: list[Setting]
    same: list[Setting]
    cautions: list[str]
    tables: dict[str, str]  # the names of its tables, by the files of their encodings
    runs: dict[str, RunOutline]

    def write(self, folder: Path) -> None:
        with replacing(folder / FILE) as file:
            json.dump(asdict(self), file, indent=1)

    @classmethod
    def read(cls, folder: Path) -> StudyOutline:
        path = folder / FILE
        if not path.exists():
            raise DataError(f"{folder} holds no results; run the study, or resume it, first")
        try:
            saved = json.loads(read_at_most(path, LARGEST))
            saved["runs"] = {id: RunOutline(**run) for id, run in saved["runs"].items()}
            return cls(**saved)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise DataError(f"{path} is damaged; resume the study to repair it") from None
