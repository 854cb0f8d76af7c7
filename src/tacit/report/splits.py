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
from tacit.records.portrait import Portrait
from tacit.report.pictures import Picture
from tacit.report.split_pictures import draw_examples, draw_holdings, draw_portraits
from tacit.study.divisions import Division
from tacit.study.study import Study
from tacit.study.study_data import load_data

MOST_EXAMPLES = 6  # pictures of a client, and clients whose pictures are shown


class Splits:
    """Who would hold what under a study.

    `frame()` has the counts, `plot()` bars of them, `examples()` pictures as clients see them.
    """

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
        """The counts of each division."""
        return [division.portrait for division in self.divisions]

    def frame(self) -> pd.DataFrame:
        """A row per split, seed, client and label."""
        rows = []
        for portrait in self.portraits:
            for k, client in enumerate(portrait.clients):
                for j, label in enumerate(portrait.labels):
                    row = {
                        "dataset": portrait.dataset,
                        "split": portrait.split,
                        "seed": portrait.seed,
                        "client": client,
                        "label": label,
                        "train": portrait.train[k][j],
                        "local_test": portrait.test[k][j],
                        "noise": portrait.noise[k],
                    }
                    rows.append(row)
        return pd.DataFrame(rows)

    def plot(self) -> Picture:
        """Labels per client, for training and local test, and sizes."""
        return Picture(draw_portraits(self.portraits))

    def examples(self) -> dict[str, Picture]:
        """Pictures as the clients see them, by split; none where samples are no pictures."""
        first_seed = self.divisions[0].run.seed
        pictures = {}
        for division in self.divisions:
            if division.run.seed == first_seed and _holds_pictures(division):
                portrait = division.portrait
                pictures[portrait.split] = Picture(draw_examples(portrait, _examples(division)))
        return pictures

    def columns(self, parties: int, overlap: float = 1.0) -> Picture:
        """Which of several parties would hold which columns, and how many people all know."""
        division = self.divisions[0]
        dataset = division.dataset
        if dataset.x.dim() != 2:
            raise StudyError(
                f"{dataset.name} holds pictures, which have no columns to divide; use a table"
            )
        people, features = dataset.x.shape
        names = dataset.columns or tuple(f"column {k}" for k in range(features))
        if dataset.encoding:
            names = tuple(column.name for column in dataset.encoding.columns)
        draw = numpy_generator(division.run.seed, "columns")
        holdings = Columns(parties, overlap)(people, len(names), draw)
        held_columns = [holding.columns.tolist() for holding in holdings]
        held_rows = [holding.rows.tolist() for holding in holdings]
        return Picture(draw_holdings(held_columns, held_rows, names, people))

    def write(
        self, folder: Path, *, parties: int | None = None, overlap: float = 1.0
    ) -> list[Path]:
        """All pictures as svg and png, and the counts as CSV."""
        pictures = {"splits": self.plot()}
        for split, picture in self.examples().items():
            pictures[f"examples-{split}"] = picture
        if parties is not None:
            pictures["columns"] = self.columns(parties, overlap)
        table = folder / "splits.csv"
        with replacing(table) as file:
            self.frame().to_csv(file, index=False)
        paths = [table]
        for name, picture in pictures.items():
            for suffix in ("svg", "png"):
                paths.append(picture.save(folder / f"{_file_name(name)}.{suffix}"))
        return paths

    def _repr_png_(self) -> bytes:
        return self.plot()._repr_png_()

    def __repr__(self) -> str:
        splits = dict.fromkeys(portrait.split for portrait in self.portraits)
        return f"Splits of {self.study.name}: {', '.join(splits)}"


def _holds_pictures(division: Division) -> bool:
    x = division.dataset.x
    return x.dim() == 4 and x.shape[1] in (1, 3)


def _examples(division: Division) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    """The first clients' first pictures, with the noise that the split adds."""
    noisy = add_noise(division.dataset.x, division.partition, division.run.seed)
    clients = division.partition.train[:MOST_EXAMPLES]
    return [noisy[samples[:MOST_EXAMPLES]].numpy() for samples in clients]


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
