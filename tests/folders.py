"""Compares two folders of the same study: every file that follows from the study must be equal."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch

EQUAL_BYTES = ("history.jsonl", "clients.csv", "splits.json", "outline.json", "study.yaml")
TIMED = ("summary.csv", "rounds.csv")  # with columns for the seconds


def assert_same_results(first: Path, second: Path) -> None:
    for name in EQUAL_BYTES:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    assert untimed_comparison(first) == untimed_comparison(second)
    for name in TIMED:
        assert untimed_table(first / name).equals(untimed_table(second / name)), name
    assert model_files(first) == model_files(second)
    for name in model_files(first):
        state = torch.load(first / "models" / name, weights_only=True)
        other_state = torch.load(second / "models" / name, weights_only=True)
        torch.testing.assert_close(state, other_state, rtol=0, atol=0)


def untimed_comparison(folder: Path) -> list[str]:
    """The lines of comparison.csv but for those of metrics in seconds."""
    lines = (folder / "comparison.csv").read_text().splitlines()
    return [line for line in lines if not line.split(",")[0].endswith("seconds")]


def untimed_table(path: Path) -> pd.DataFrame:
    """A table without its columns of seconds."""
    table = pd.read_csv(path, dtype=str)
    return table.loc[:, ~table.columns.str.endswith("seconds")]


def model_files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "models").iterdir())
