"""A study as its report sees it."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.data.tables import Table
from tacit.records.outline import RunOutline, StudyOutline
from tacit.study.question import ask, varied_and_same
from tacit.study.run import Run
from tacit.study.run_names import Label, encoding_files, label_runs, run_ids
from tacit.study.source_keys import source_key
from tacit.study.study import Study
from tacit.study.tested_clients import is_crowd


def outline_study(study: Study, cautions: Sequence[str]) -> StudyOutline:
    """What the report has to know of the study."""
    runs = study.runs()
    labels = label_runs(runs)
    encodings = encoding_files(runs)
    outlines = {}
    for id, run, label in zip(run_ids(labels), runs, labels, strict=True):
        outlines[id] = _outline_run(run, label, encodings.get(source_key(run.dataset)))
    varied, same = varied_and_same(runs)
    return StudyOutline(
        name=study.name,
        question=ask(runs),
        varied=varied,
        same=same,
        cautions=list(cautions),
        tables=_table_names(runs, encodings),
        runs=outlines,
    )


def _outline_run(run: Run, label: Label, encoding: str | None) -> RunOutline:
    return RunOutline(
        label=label,
        kind=run.kind,
        seed=run.seed,
        rounds=run.rounds,
        clients=run.clients,
        is_reference=run.is_reference,
        is_personal=run.is_personal,
        is_crowd=is_crowd(run),
        by_owner=run.split.by == "owners",
        shared_work=run.shared_work(),
        encoding=encoding,
    )


def _table_names(runs: list[Run], encodings: dict[str, str]) -> dict[str, str]:
    """The names of the tables' files, by those of their encodings."""
    names = {}
    for run in runs:
        if isinstance(run.dataset, Table):
            encoding = encodings[source_key(run.dataset)]
            names[encoding] = run.dataset.title
    return names
