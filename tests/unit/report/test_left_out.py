"""Every client left out in turn, as the report tells it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.report.heat_table import reference_text
from tacit.report.results import Results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("turns")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.normal(0, 1, 90), "hospital": ["Bergen", "Oslo", "Turku"] * 30}
    )
    frame["outcome"] = np.where(frame["age"] > 0, "ill", "well")
    frame.loc[0, "outcome"] = None
    frame.to_csv(folder / "patients.csv", index=False)
    table = {
        "name": "table",
        "path": str(folder / "patients.csv"),
        "target": "outcome",
        "client": "hospital",
        "test": {"client": "each"},
    }
    study = tacit.Study(
        dataset=table,
        split="by_client",
        clients=2,
        batch_size=16,
        rounds=1,
        model="linear",
        algorithm=["fedavg", "fedsgd"],
        centralised=True,
    )
    with pytest.warns(UserWarning, match="1 row without outcome") as warned:
        results = tacit.run(study, folder / "run")
    told = [str(warning.message) for warning in warned]
    assert len(told) == len(set(told))  # three data sets of one table say it once
    return results


def test_tables_have_a_column_per_client_that_is_left_out(results: Results) -> None:
    table = results.table()
    assert list(table.columns) == ["Bergen", "Oslo", "Turku"]
    assert list(table.index) == ["fedavg", "fedsgd", "centralised"]
    assert table.notna().all().all()
    assert results.column_names == ["Bergen", "Oslo", "Turku"]


def test_the_references_say_what_they_were_tested_on(results: Results) -> None:
    text = reference_text(results)
    assert [part.split()[0] for part in text.split("; ")] == ["Bergen", "Oslo", "Turku"]


def test_clients_are_called_by_the_names_of_those_that_train(results: Results) -> None:
    first, second, third, *_ = [run for run in results.runs if "fedavg" in run]
    assert results.client_names(first) == ("Oslo", "Turku")
    assert results.client_names(second) == ("Bergen", "Turku")
    assert results.client_names(third) == ("Bergen", "Oslo")


def test_the_question_names_the_clients(results: Results) -> None:
    assert "tested on Bergen, Oslo and Turku, on patients.csv" in results.outline.question
    assert ("test", "Bergen, Oslo, Turku") in [tuple(row) for row in results.outline.varied]
    same = dict(results.outline.same)
    assert "test=" not in same["dataset"]


@pytest.mark.filterwarnings("ignore:.*1 row without outcome")
def test_it_is_resumed_from_its_folder(results: Results) -> None:
    again = tacit.resume(results.folder)
    assert again.table().equals(results.table())
