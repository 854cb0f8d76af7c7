"""Two folders of the same study, compared: every file that follows from the study, to the byte or to the bit."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch

WHOLE = ("history.jsonl", "clients.csv", "splits.json", "runs.json", "study.yaml")
TIMED = ("summary.csv", "rounds.csv")  # with columns for the seconds


def assert_same_results(one: Path, other: Path) -> None:
    for name in WHOLE:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    compared = [(folder / "comparison.csv").read_text().splitlines() for folder in (one, other)]
    mine, theirs = (
        [line for line in lines if not line.split(",")[0].endswith("seconds")] for lines in compared
    )
    assert mine == theirs
    for name in TIMED:
        tables = [pd.read_csv(folder / name, dtype=str) for folder in (one, other)]
        mine, theirs = (table.loc[:, ~table.columns.str.endswith("seconds")] for table in tables)
        assert mine.equals(theirs), name
    mine, theirs = (
        sorted(path.name for path in (folder / "models").iterdir()) for folder in (one, other)
    )
    assert mine == theirs
    for name in mine:
        states = [
            torch.load(folder / "models" / name, weights_only=True) for folder in (one, other)
        ]
        torch.testing.assert_close(*states, rtol=0, atol=0)
