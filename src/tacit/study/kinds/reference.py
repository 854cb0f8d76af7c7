"""The centralised reference: the same work on all the data in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from tacit.data.splits.iid import Iid
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.study.run import Run, setting
from tacit.study.values import defaults_of

REFERENCE = "centralised"  # as the algorithm of labels and tables
ALL_DATA = "all data"  # as their split


@dataclass(frozen=True)
class ReferenceRun(HorizontalRun, kind="reference", engine="horizontal"):
    """One client that averages with nobody. The horizontal engine plays it together with others."""

    centralised: bool = setting(
        False, "also train on all data in one place, for reference", after="seed", asks=True
    )
    is_reference: ClassVar[bool] = True
    label: ClassVar[Mapping[str, str]] = {"algorithm": REFERENCE, "split": ALL_DATA}

    @classmethod
    def further(cls, run: Run, settings: Mapping[str, Any]) -> list[Run]:
        return [cls.of(run)] if settings["centralised"] else []

    @classmethod
    def of(cls, run: Run) -> ReferenceRun:
        """The reference for this run."""
        settings = {item.name: getattr(run, item.name) for item in fields(Run)}
        alone = {
            "split": Iid(),
            "clients": 1,
            "public": None,
            "initial": "same",
            "server_samples": 0,
            "local_epochs": _epochs(run),
            "batch_size": _batch_size(run),
            "centralised": True,
        }
        return cls(**{**defaults_of(cls), **settings, **alone})

    @property
    def averages(self) -> bool:
        return False


def _epochs(run: Run) -> int:
    """The clients' mean number of passes, where they differ."""
    epochs = run.local_epochs
    return epochs if isinstance(epochs, int) else round(sum(epochs) / len(epochs))


def _batch_size(run: Run) -> int | None:
    return run.batch_size[0] if isinstance(run.batch_size, tuple) else run.batch_size
