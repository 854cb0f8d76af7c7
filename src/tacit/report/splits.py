"""How a study divides its data, as counts and as pictures, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tacit.core.errors import StudyError
from tacit.core.events import Listeners, ignore, tell
from tacit.core.files import replacing
from tacit.core.seeds import numpy_generator
from tacit.data.partition import add_noise
from tacit.data.splits.columns import Columns
from tacit.report.pictures import Picture
from tacit.report.split_plots import draw_examples, draw_holdings, draw_portraits
from tacit.study.portrait import Division, Portrait
from tacit.study.study import Study
from tacit.study.study_data import load_data

SEEN = 6  # example pictures, and clients whose pictures are shown


class Splits:
    """Who would hold what under a study: `frame()` as counts, `plot()` as bars, `examples()` as pictures."""

    def __init__(
        self,
        study: Study | str | Path | Mapping[str, Any],
        data: str | None = None,
        on_event: Listeners = ignore,
    ) -> None:
        self.study = Study.of(study)
        self.divisions = load_data(self.study, data, tell(on_event)).divisions

    @property
    def portraits(self) -> list[Portrait]:
        return [division.portrait for division in self.divisions]

    def frame(self) -> pd.DataFrame:
        """A row per split, seed, client and label."""
        rows = [
            {
                "dataset": one.dataset,
                "split": one.split,
                "seed": one.seed,
                "client": client,
                "label": label,
                "train": one.train[k][j],
                "local_test": one.test[k][j],
                "noise": one.noise[k],
            }
            for one in self.portraits
            for k, client in enumerate(one.clients)
            for j, label in enumerate(one.labels)
        ]
        return pd.DataFrame(rows)

    def plot(self) -> Picture:
        """Labels per client, for training and local test, and sizes."""
        return Picture(draw_portraits(self.portraits))

    def examples(self) -> dict[str, Picture]:
        """Pictures as the clients see them, by split; none where samples are no pictures."""
        seed, found = self.divisions[0].run.seed, {}
        for one in self.divisions:
            if (
                one.dataset.x.dim() == 4
                and one.dataset.x.shape[1] in (1, 3)
                and one.run.seed == seed
            ):
                found[one.portrait.split] = Picture(draw_examples(one.portrait, _seen(one)))
        return found

    def columns(self, parties: int, overlap: float = 1.0) -> Picture:
        """Which of several parties would hold which columns, and how many people they have in common."""
        division = self.divisions[0]
        dataset = division.dataset
        if dataset.x.dim() != 2:
            raise StudyError(
                f"{dataset.name} holds pictures, which have no columns to divide; use a table"
            )
        features = dataset.columns or tuple(f"column {k}" for k in range(dataset.x.shape[1]))
        names = (
            tuple(column.name for column in dataset.encoding.columns)
            if dataset.encoding
            else features
        )
        split = Columns(parties, overlap)
        holdings = split(len(dataset.x), len(names), numpy_generator(division.run.seed, "columns"))
        return Picture(draw_holdings(holdings, names, len(dataset.x)))

    def write(
        self, folder: Path, *, parties: int | None = None, overlap: float = 1.0
    ) -> list[Path]:
        """All pictures as svg and png, and the counts as CSV."""
        drawn = {"splits": self.plot()}
        drawn |= {f"examples-{name}": made for name, made in self.examples().items()}
        if parties is not None:
            drawn["columns"] = self.columns(parties, overlap)
        with replacing(folder / "splits.csv") as file:
            self.frame().to_csv(file, index=False)
        files = [
            made.save(folder / f"{_word(name)}.{kind}")
            for name, made in drawn.items()
            for kind in ("svg", "png")
        ]
        return [folder / "splits.csv", *files]

    def _repr_png_(self) -> bytes:
        return self.plot()._repr_png_()

    def __repr__(self) -> str:
        return f"Splits of {self.study.name}: {', '.join(dict.fromkeys(one.split for one in self.portraits))}"


def _seen(division: Division) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    noisy = add_noise(division.dataset.x, division.partition, division.run.seed)
    return [noisy[part[:SEEN]].numpy() for part in division.partition.train[:SEEN]]


def _word(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
