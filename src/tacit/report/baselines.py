"""What fusions are compared with, as rows of the same table."""

from __future__ import annotations

import pandas as pd

BASELINES = {"alone": "local networks", "average": "naive average", "ensemble": "ensemble"}


def with_baselines(summary: pd.DataFrame, score: str) -> pd.DataFrame:
    """The summary of runs, with lines for what their fusions are compared with; equal ones of several methods once.

    After one round all fusions start from the same networks. After several, each has its own. `baseline` is which of
    BASELINES a line is, and empty where it is a run's own.
    """
    known = [name for name in BASELINES if f"{name}_{score}" in summary and summary[f"{name}_{score}"].notna().any()]
    fused = summary[summary[[f"{name}_{score}" for name in known]].notna().any(axis=1)] if known else summary[:0]
    found = [summary.assign(baseline="")]
    for name in known:
        lines = fused.assign(**{score: fused[f"{name}_{score}"]})
        values = {method: own[score].tolist() for method, own in lines.groupby("method", sort=False)}
        same = len({str(own) for own in values.values()}) == 1
        title = BASELINES[name]
        found.append(lines.assign(method=title if same else lines["method"] + f": {title}", baseline=name))
        if same:
            found[-1] = found[-1][lines["method"] == next(iter(values))]
    return pd.concat(found, ignore_index=True)
