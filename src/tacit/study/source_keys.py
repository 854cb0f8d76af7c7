"""The keys by which a study's data sets are found again: the settings of their sources, as text."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.data.datasets import Source
from tacit.study.run import Run
from tacit.study.texts import plain


def source_key(source: Source) -> str:
    """The key of the data set that this source gives."""
    return str(plain(source))


def source_keys(runs: Sequence[Run]) -> list[str]:
    """The keys of all data sets that these runs need, their own and public ones, each once."""
    keys = []
    for run in runs:
        keys.append(source_key(run.dataset))
        if run.public is not None:
            keys.append(source_key(run.public))
    return list(dict.fromkeys(keys))
