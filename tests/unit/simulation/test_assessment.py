"""What is found out about a run's last model: groups, columns, calibration, intervals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix, roc_auc_score

import tacit

STUDY: dict[str, Any] = {
    "model": "linear",
    "clients": 2,
    "optimiser": {"name": "sgd", "lr": 0.3},
    "local_epochs": 2,
    "rounds": 4,
}
Assess = Callable[..., dict[str, Any]]


def patients(rows: int = 1500) -> pd.DataFrame:
    """Sick people have a high pressure; of the women, a third of the outcomes are wrong."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "pressure": rng.normal(size=rows),
            "shoes": rng.normal(size=rows),
            "ward": rng.choice(["north", "south"], rows),
            "sex": rng.choice(["female", "male"], rows),
            "age": rng.integers(20, 90, rows),
        }
    )
    is_sick = table["pressure"] + 0.3 * rng.normal(size=rows) > 0
    is_wrong = (table["sex"] == "female") & (rng.random(rows) < 1 / 3)
    table["outcome"] = np.where(is_sick ^ is_wrong, "sick", "well")
    return table


@pytest.fixture
def table(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "patients.csv"
    patients().to_csv(path, index=False)
    fairness = ("sex", "age")
    return {
        "name": "table",
        "path": str(path),
        "target": "outcome",
        "positive": "sick",
        "drop": ["sex", "age"],
        "fairness": list(fairness),
    }


def run(folder: Path, **settings: Any) -> tacit.Results:
    return tacit.run({**STUDY, **settings}, folder)


def assessment_of(results: tacit.Results) -> dict[str, Any]:
    (id,) = results.labels
    assessment = results.assessment(id)
    assert assessment is not None
    return assessment


def test_rows_of_readers_who_were_treated_worse_are_found(
    table: dict[str, Any], tmp_path: Path
) -> None:
    results = run(tmp_path / "a", dataset=table)
    by_group = {row["group"]: row for row in assessment_of(results)["groups"]["sex"]}
    gap = by_group["male"]["auc"] - by_group["female"]["auc"]
    assert gap > 0.2
    (id,) = results.labels
    dataset = results.runs[id].dataset.load()
    probabilities = results.model(id)(dataset.test_x).softmax(1)[:, 0].detach().numpy()
    is_sick = (dataset.test_y == 0).numpy()
    (grouping, _) = dataset.groupings
    is_female = (grouping.test == grouping.names.index("female")).numpy()
    expected = roc_auc_score(is_sick[is_female], probabilities[is_female])
    assert by_group["female"]["auc"] == pytest.approx(expected, abs=1e-5)
    assert by_group["female"]["rows"] == is_female.sum()
    assert by_group["female"]["positives"] == is_sick[is_female].sum()


def test_groups_are_told_for_each_client_too(table: dict[str, Any], tmp_path: Path) -> None:
    """Their own tests together hold a tenth of the training rows."""
    results = run(tmp_path / "a", dataset=table)
    clients = assessment_of(results)["clients"]
    assert [client["client"] for client in clients] == [0, 1]
    rows = [row["rows"] for client in clients for row in client["groups"]["sex"]]
    assert sum(rows) == sum(client["rows"] for client in clients) == 120
    (id,) = results.labels
    frame = results.groups(id, "sex")
    assert set(frame["client"]) == {"all", "0", "1"}


def test_noise_and_poison_leave_the_groups_of_rows_where_they_are(
    table: dict[str, Any], tmp_path: Path
) -> None:
    """Noise makes copies of all rows, and each client's groups are those of its own rows."""
    plain = run(tmp_path / "a", dataset=table, split="iid")
    noisy = run(
        tmp_path / "b",
        dataset=table,
        split=["iid", {"name": "feature_noise", "sigma": 0.1}],
        attackers={"count": 1, "kind": "label_flip"},
    )

    def sizes(assessment: Any) -> list[Any]:
        counts = []
        for client in assessment["clients"]:
            counts += [(row["group"], row["rows"]) for row in client["groups"]["sex"]]
        return counts

    expected = sizes(assessment_of(plain))
    for id in noisy.labels:
        assert sizes(noisy.assessment(id)) == expected


def test_only_the_column_that_decides_matters(table: dict[str, Any], tmp_path: Path) -> None:
    results = run(tmp_path / "a", dataset=table)
    (id,) = results.labels
    drops = results.importance(id)
    everybody = drops[drops["client"] == "all"]
    assert everybody["column"].iloc[0] == "pressure"
    assert everybody["drop"].iloc[0] > 0.2
    assert everybody["drop"].iloc[1:].abs().max() < 0.03
    assert set(everybody["column"]) == {"pressure", "shoes", "ward"}
    for client in ("0", "1"):
        own = drops[drops["client"] == client]
        assert own["column"].iloc[0] == "pressure"
    nothing = run(tmp_path / "b", dataset=table, importance=0)
    (id,) = nothing.labels
    assert len(nothing.importance(id)) == 0


def test_the_confusion_matrix_and_the_curve_are_of_the_test_set(
    table: dict[str, Any], tmp_path: Path
) -> None:
    results = run(tmp_path / "a", dataset=table)
    assessment = assessment_of(results)
    (id,) = results.labels
    dataset = results.runs[id].dataset.load()
    predicted = results.model(id)(dataset.test_x).argmax(1)
    expected = confusion_matrix(dataset.test_y, predicted)
    assert assessment["confusion"] == expected.tolist()
    assert sum(assessment["calibration"]["rows"]) == len(dataset.test_y)
    low, high = assessment["bootstrap"]["intervals"]["accuracy"]
    assert low < assessment["metrics"]["accuracy"] < high


def test_clients_are_assessed_with_the_models_that_they_use(
    table: dict[str, Any], tmp_path: Path
) -> None:
    results = run(tmp_path / "a", dataset=table, algorithm="local", split="quantity_skew")
    last = results.records[-1]["clients"]
    for client in assessment_of(results)["clients"]:
        expected = last[client["client"]]["test_accuracy"]
        assert client["metrics"]["accuracy"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("source", ["diabetes", "iris", "digits"])
def test_numbers_classes_and_pictures_are_assessed_too(source: str, tmp_path: Path) -> None:
    results = run(tmp_path / "a", dataset=source, rounds=1)
    assessment = assessment_of(results)
    assert ("confusion" in assessment) == (source != "diabetes")
    last = results.records[-1]
    for name, value in assessment["metrics"].items():
        assert value == pytest.approx(last[name], rel=1e-5)


def test_a_client_whose_model_has_gone_astray_does_not_end_the_study(
    table: dict[str, Any], tmp_path: Path
) -> None:
    """The global model of `local` never changes, so the run does not count as diverged."""
    steep = {"name": "sgd", "lr": 1e6}
    results = run(
        tmp_path / "a", dataset=table, algorithm="local", model="mlp", optimiser=steep, rounds=1
    )
    assert results.summary()["status"].tolist() == ["finished"]
    for client in assessment_of(results)["clients"]:
        assert client["metrics"]["accuracy"] is None
    assert results.report.exists()


def test_a_column_of_several_features_is_shuffled_as_one(tmp_path: Path) -> None:
    """Only the ward tells the outcome; it becomes three features, between two others."""
    rng = np.random.default_rng(0)
    wards = rng.choice(["north", "south", "west"], 600)
    frame = pd.DataFrame({"a": rng.normal(size=600), "ward": wards, "b": rng.normal(size=600)})
    frame["outcome"] = np.where(wards == "north", "sick", "well")
    frame.loc[::50, "outcome"] = "well"
    source = {"name": "table", "path": frame, "target": "outcome"}
    results = run(tmp_path / "a", dataset=source, metric="brier")
    (id,) = results.labels
    drops = results.importance(id).set_index(["client", "column"])["drop"]
    for client in ("all", "0", "1"):
        assert drops[client, "ward"] > 0.1  # an error that grows is a drop
        assert abs(drops[client, "a"]) < 0.03
        assert abs(drops[client, "b"]) < 0.03


def test_columns_matter_to_a_client_as_its_own_model_uses_them(tmp_path: Path) -> None:
    """Of two clients with models of their own, each relies on another column."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=800), "b": rng.normal(size=800)})
    frame["site"] = np.repeat(["one", "two"], 400)
    decides = np.where(frame["site"] == "one", frame["a"], frame["b"])
    frame["outcome"] = np.where(decides > 0, "sick", "well")
    source = {"name": "table", "path": frame, "target": "outcome", "client": "site"}
    results = run(tmp_path / "a", dataset=source, algorithm="local", split="by_client")
    (id,) = results.labels
    drops = results.importance(id).set_index(["client", "column"])["drop"]
    assert drops["one", "a"] > 0.2 > 0.1 > abs(drops["one", "b"])
    assert drops["two", "b"] > 0.2 > 0.1 > abs(drops["two", "a"])


def test_the_curve_is_that_of_the_positive_class(table: dict[str, Any], tmp_path: Path) -> None:
    """`sick` is the first of the two labels, and positive."""
    results = run(tmp_path / "a", dataset=table)
    (id,) = results.labels
    dataset = results.runs[id].dataset.load()
    probabilities = results.model(id)(dataset.test_x).softmax(1)[:, 0].detach().numpy()
    expected = np.histogram(probabilities, bins=np.linspace(0, 1, 11))[0]
    assert assessment_of(results)["calibration"]["rows"] == expected.tolist()


def test_nothing_is_told_of_fewer_than_five_rows(tmp_path: Path) -> None:
    """A rare group of a client's own test would tell the outcome of a single person."""
    frame = patients(200)
    frame["village"] = ["A"] * 190 + ["B"] * 10
    source = {"name": "table", "path": frame, "target": "outcome", "drop": ["village"]}
    source |= {"fairness": ["village"], "positive": "sick"}
    results = run(tmp_path / "a", dataset=source, clients=4)
    assessment = assessment_of(results)
    for test in (assessment, *assessment["clients"]):
        for row in test["groups"]["village"]:
            assert ("auc" in row) == ("positives" in row) == (row["rows"] >= 5)
        curve = test["calibration"]
        for rows, observed in zip(curve["rows"], curve["observed"], strict=True):
            assert (observed is None) == (rows < 5)
    text = results.report.read_text()
    assert "By village" in text


def test_fused_networks_are_assessed_as_well(table: dict[str, Any], tmp_path: Path) -> None:
    settings = {"model": {"name": "mlp", "hidden": [6]}, "fusion": "pfnm", "rounds": 1}
    settings["initial"] = "different"
    results = run(tmp_path / "a", dataset=table, **settings)
    assessment = assessment_of(results)
    assert assessment["metrics"]["auc"] == pytest.approx(results.records[-1]["auc"], rel=1e-5)
    assert [client["client"] for client in assessment["clients"]] == [0, 1]
    plain = run(tmp_path / "b", dataset=table, **{**settings, "fusion": None, "initial": "same"})
    for fused, other in zip(assessment["clients"], assessment_of(plain)["clients"], strict=True):
        sizes = [(row["group"], row["rows"]) for row in fused["groups"]["sex"]]
        assert sizes == [(row["group"], row["rows"]) for row in other["groups"]["sex"]]


def test_a_run_that_diverged_has_no_assessment(table: dict[str, Any], tmp_path: Path) -> None:
    steep = {"name": "sgd", "lr": 1e20}
    results = run(tmp_path / "a", dataset=table, model="mlp", optimiser=steep)
    (id,) = results.labels
    assert results.summary()["status"].tolist() == ["diverged"]
    assert results.assessment(id) is None
    with pytest.raises(tacit.TacitError, match="has not been assessed"):
        results.importance(id)
