"""Who holds what: the counts that drawings of a split are made from, as splits.json keeps them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Portrait:
    """One data set divided once: how many samples of each label a client trains and tests on."""

    dataset: str
    split: str
    seed: int
    clients: tuple[str, ...]
    labels: tuple[str, ...]
    train: tuple[tuple[int, ...], ...]  # a row per client, a column per label
    test: tuple[tuple[int, ...], ...]
    noise: tuple[float, ...]
    left_out: int = 0  # clients that are not drawn

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Portrait:
        return cls(**{name: _as_tuples(value) for name, value in saved.items()})


def _as_tuples(value: Any) -> Any:
    """JSON has lists where a portrait has tuples."""
    if not isinstance(value, list):
        return value
    return tuple(_as_tuples(item) for item in value)
