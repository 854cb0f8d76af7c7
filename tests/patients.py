"""Tables of patients whose answers are known, for what a report says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ILL = "<script>ill()</script>"  # names that would break a page that took them for HTML
WELL = "well & fit"
FEMALE = "<b>female</b>"
DOSE = "dose <i>mg</i>"
LINEAR: dict[str, Any] = {
    "model": "linear",
    "clients": 3,
    "rounds": 2,
    "optimiser": {"name": "sgd", "lr": 0.1},
}


def rarely_ill(rows: int = 3000) -> pd.DataFrame:
    """Of these patients 4 % are ill, as age and dose tell in part; the region tells nothing."""
    rng = np.random.default_rng(0)
    age = rng.normal(size=rows)
    dose = rng.normal(size=rows)
    risk = age + 0.5 * dose + rng.normal(size=rows)
    return pd.DataFrame(
        {
            "age": age,
            DOSE: dose,
            "region": rng.choice(["north", "south"], rows),
            "sex": rng.choice([FEMALE, "male"], rows),
            "ward": np.where(np.arange(rows) % 300, "main", "attic"),
            "outcome": np.where(risk > np.quantile(risk, 0.96), ILL, WELL),
        }
    )


def told_apart(rows: int = 600, classes: int = 2) -> pd.DataFrame:
    """Patients of classes of equal size that lie far apart."""
    rng = np.random.default_rng(0)
    outcome = np.arange(rows) % classes
    columns = {}
    for position in range(classes):
        columns[f"marker{position}"] = rng.normal(size=rows) + 4 * (outcome == position)
    names = np.array(["asthma", "bronchitis", "cough"])
    return pd.DataFrame({**columns, "outcome": names[outcome]})


def served_unequally(rows: int = 1500) -> pd.DataFrame:
    """The marker tells which men are ill, and nothing of the women; few have a third sex."""
    rng = np.random.default_rng(0)
    marker = rng.normal(size=rows)
    sex = rng.choice(["male", "female", "diverse"], rows, p=[0.495, 0.495, 0.01])
    chance = rng.random(rows) < 0.5
    is_ill = np.where(sex == "female", chance, marker > 0)
    outcome = np.where(is_ill, "ill", "well")
    return pd.DataFrame({"marker": marker, "sex": sex, "outcome": outcome})


def days_in_hospital(rows: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.normal(size=rows)
    days = 12 + 3 * age + rng.normal(0, 0.5, rows)
    return pd.DataFrame({"age": age, "noise": rng.normal(size=rows), "days": days})


def a_study_of(frame: pd.DataFrame, path: Path, target: str, **table: Any) -> dict[str, Any]:
    """A small study of this table, which is written to that path."""
    frame.to_csv(path, index=False)
    return {**LINEAR, "dataset": {"name": "table", "path": str(path), "target": target, **table}}
