"""What the author of a study should know: runs that make sense may still surprise."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.study.run import Run


def cautions(runs: Sequence[Run]) -> list[str]:
    """What makes sense, but may not do what its author expects; each said once."""
    texts: list[str] = []
    for run in runs:
        texts += run.cautions()
    kinds = {run.kind: type(run) for run in runs}
    for name in sorted(kinds):
        texts += kinds[name].study_cautions(runs)
    return list(dict.fromkeys(texts))
