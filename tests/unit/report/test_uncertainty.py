"""How sure a comparison is: by seeds, or by draws of the test rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patients import a_study_of, told_apart
from playground import FAST
from scipy import stats
from stored import Record, a_copy

import tacit
from tacit.core.errors import DataError
from tacit.report.page import render
from tacit.report.uncertainty import figure_limits, holm, leads

NOISE = (0.1, 0.5, 0.3, 0.7)  # of four seeds
METHODS = ["fedavg", {"name": "fedprox", "mu": 0.1}, "fedsgd"]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> tacit.Results:
    """Three methods with four seeds."""
    settings = {**FAST, "rounds": 1, "algorithm": METHODS, "seed": [0, 1, 2, 3]}
    return tacit.run(settings, tmp_path_factory.mktemp("seeds") / "study")


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tacit.Results:
    """One seed of two methods that are the same, and of one that has hardly learnt."""
    folder = tmp_path_factory.mktemp("twins")
    settings = a_study_of(told_apart(classes=3), folder / "rows.csv", "outcome")
    same = ["fedavg", {"name": "fedprox", "mu": 0.0}]
    return tacit.run({**settings, "algorithm": [*same, "fedsgd"]}, folder / "study")


def with_figures(
    results: tacit.Results,
    folder: Path,
    figures: Mapping[str, Sequence[float]],
    metric: str = "accuracy",
) -> tacit.Results:
    """The study as if each method's seeds had these figures, and this metric decided."""

    def changed(record: Record) -> Record:
        run = record["run"]
        values = figures[results.names[run]]
        return {**record, metric: values[results.outline.runs[run].seed]}

    copy = a_copy(results, folder, changed)
    shutil.rmtree(copy.folder / "assessments")  # those are of other figures
    path = copy.folder / "data.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "metric": metric}))
    return tacit.Results(copy.folder)


def with_statuses(
    results: tacit.Results, folder: Path, statuses: Mapping[tuple[str, int], str]
) -> tacit.Results:
    """The study as if these methods' seeds were so; one that is `waiting` has no record yet."""

    def changed(record: Record) -> Record | None:
        run = record["run"]
        status = statuses.get((results.names[run], results.outline.runs[run].seed))
        if status == "waiting":
            return None
        if status == "diverged":
            return {**record, "accuracy": None, "loss": None, "status": status}
        return {**record, "status": status or record["status"]}

    return a_copy(results, folder, changed)


def test_seeds_alone_give_students_interval_of_every_metric(
    seeds: tacit.Results, tmp_path: Path
) -> None:
    seeds = a_copy(seeds, tmp_path)
    shutil.rmtree(seeds.folder / "assessments")
    summary = seeds.summary()
    summary["method"] = summary["run"].map(seeds.names)
    compared = 0
    for metric in seeds.measured:
        limits = figure_limits(seeds, metric)
        assert set(limits) == {(method, "iid") for method in seeds.methods}
        for (method, _), interval in limits.items():
            values = summary.loc[summary["method"] == method, metric]
            if values.std() > 0:
                expected = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
                assert interval == pytest.approx(expected)
                compared += 1
    assert compared > 10


def test_seeds_and_test_rows_both_widen_an_interval(seeds: tacit.Results) -> None:
    """The two variances are added up; many degrees of freedom, where the test rows matter most."""
    summary = seeds.summary()
    runs = [run for run in seeds.labels if seeds.names[run] == "fedavg"]
    values = summary.loc[summary["run"].isin(runs), "accuracy"]
    of_tests = []
    for run in runs:
        assessment = seeds.assessment(run)
        assert assessment is not None
        low, high = assessment["bootstrap"]["intervals"]["accuracy"]
        of_tests.append((high - low) / (2 * 1.96))
    of_seeds = stats.sem(values) ** 2
    variance = of_seeds + np.mean(of_tests) ** 2
    freedom = variance**2 / (of_seeds**2 / 3)
    expected = stats.t.interval(0.95, freedom, values.mean(), np.sqrt(variance))
    limits = figure_limits(seeds)["fedavg", "iid"]
    assert limits == pytest.approx(np.clip(expected, 0, 1))
    assert limits[1] - limits[0] > 2 * 1.96 * np.mean(of_tests)


def test_a_gap_between_seeds_is_judged_by_the_draws_too(
    seeds: tacit.Results, tmp_path: Path
) -> None:
    """Two methods that differ alike in all seeds: only other test rows could change that."""
    without = with_figures(
        seeds, tmp_path, {"fedavg": [0.51] * 4, "fedprox": [0.5] * 4, "fedsgd": [0.1] * 4}
    )
    by_other = {lead.other: lead for lead in leads(without)}
    assert by_other["fedprox"].limits == pytest.approx((0.01, 0.01))
    shutil.copytree(seeds.folder / "assessments", without.folder / "assessments")
    by_other = {lead.other: lead for lead in leads(tacit.Results(without.folder))}
    limits = by_other["fedsgd"].limits
    assert limits is not None
    assert limits[1] - limits[0] > 0.01


def test_one_seed_has_the_interval_of_the_draws(twins: tacit.Results) -> None:
    for run in twins.labels:
        assessment = twins.assessment(run)
        assert assessment is not None
        for metric in ("accuracy", "brier"):
            interval = figure_limits(twins, metric)[twins.names[run], "iid"]
            assert list(interval) == assessment["bootstrap"]["intervals"][metric]


def test_seeds_are_compared_one_by_one(seeds: tacit.Results, tmp_path: Path) -> None:
    noise = np.array(NOISE)
    ahead = noise + np.array([0.02, 0.03, 0.02, 0.03])
    figures = {"fedavg": ahead, "fedprox": noise, "fedsgd": noise[::-1] - 0.01}
    assert stats.ttest_ind(ahead, noise).pvalue > 0.8  # unpaired, it drowns in the seeds' noise
    found = with_figures(seeds, tmp_path, figures)
    by_other = {lead.other: lead for lead in leads(found)}
    assert {lead.best for lead in by_other.values()} == {"fedavg"}
    real = by_other["fedprox"]
    expected = stats.ttest_rel(ahead, noise).confidence_interval(0.95)
    assert real.by == pytest.approx(0.025)
    assert real.limits == pytest.approx((expected.low, expected.high))
    assert real.is_real
    assert "fedavg is ahead of fedprox by 0.0250" in real.text
    assert "larger than chance" in real.text
    chance = by_other["fedsgd"]
    assert chance.by > real.by
    assert not chance.is_real
    assert chance.text.endswith("may be chance")


def test_the_lowest_error_is_ahead(seeds: tacit.Results, tmp_path: Path) -> None:
    noise = np.array(NOISE)
    lower = noise - np.array([0.02, 0.03, 0.02, 0.03])
    figures = {"fedavg": noise, "fedprox": lower, "fedsgd": noise + 0.5}
    found = with_figures(seeds, tmp_path, figures, "brier")
    assert {(lead.best, lead.other) for lead in leads(found)} == {
        ("fedprox", "fedavg"),
        ("fedprox", "fedsgd"),
    }
    by_other = {lead.other: lead for lead in leads(found)}
    assert by_other["fedavg"].by == pytest.approx(0.025)
    assert by_other["fedsgd"].by == pytest.approx(0.525)
    assert all(lead.limits is not None and lead.limits[0] > 0 for lead in leads(found))
    low, high = figure_limits(found)["fedprox", "iid"]
    assert low < lower.mean() < high
    assert found.findings()[0].startswith("the best is fedprox with Brier score 0.3750")


def test_draws_of_an_error_are_compared_the_right_way_round(tmp_path: Path) -> None:
    settings = a_study_of(told_apart(), tmp_path / "rows.csv", "outcome")
    settings |= {"algorithm": ["fedavg", "fedsgd"], "metric": "brier"}
    (lead,) = leads(tacit.run(settings, tmp_path / "study"))
    assert (lead.best, lead.other, lead.is_real) == ("fedavg", "fedsgd", True)
    assert lead.limits is not None
    assert 0 < lead.limits[0] < lead.by < lead.limits[1]


def test_equal_models_are_no_different_and_better_ones_are(twins: tacit.Results) -> None:
    by_other = {lead.other: lead for lead in leads(twins)}
    same = by_other["fedprox"]
    assert (same.best, same.by, same.limits) == ("fedavg", 0, (0, 0))
    assert not same.is_real
    assert same.text == "fedavg and fedprox are equal"
    better = by_other["fedsgd"]
    assert better.is_real
    assert better.by > 0.2
    figures = []
    for run in twins.labels:
        assessment = twins.assessment(run)
        assert assessment is not None
        figures.append(np.array(assessment["bootstrap"]["draws"]))
    error = (figures[0] - figures[2]).std()
    assert better.limits == pytest.approx(
        (better.by - 1.96 * error, better.by + 1.96 * error), 1e-4
    )


def test_cells_that_diverged_or_have_not_ended_are_left_out(
    seeds: tacit.Results, tmp_path: Path
) -> None:
    for status in ("diverged", "running", "waiting"):
        folder = tmp_path / status
        folder.mkdir()
        some = with_statuses(seeds, folder, {("fedprox", 1): status})
        for metric in ("accuracy", "brier"):
            assert {method for method, _ in figure_limits(some, metric)} == {"fedavg", "fedsgd"}
        assert {lead.other for lead in leads(some)} | {leads(some)[0].best} == {"fedavg", "fedsgd"}
        render(some)


def test_a_method_of_which_a_seed_diverged_can_have_the_best_run_and_is_not_the_best(
    seeds: tacit.Results, tmp_path: Path
) -> None:
    figures = {"fedavg": [0.99, 0.1, 0.1, 0.1], "fedprox": [0.6] * 4, "fedsgd": [0.5] * 4}
    found = with_figures(seeds, tmp_path, figures)
    assert found.names[found.best()] == "fedavg"  # its luckiest seed
    assert found.findings()[0].startswith("the best is fedprox with accuracy 0.6000")
    folder = tmp_path / "lost"
    folder.mkdir()
    lost = with_statuses(seeds, folder, {(name, 1): "diverged" for name in seeds.methods})
    assert "nan" not in " ".join(lost.findings())
    assert lost.findings()[0].startswith("the best is ")


def test_one_method_is_ahead_of_nobody(tmp_path: Path) -> None:
    alone = tacit.run({**FAST, "rounds": 1, "centralised": True}, tmp_path / "study")
    assert leads(alone) == []
    assert alone.differences().empty
    assert "Which differences are larger than chance" not in render(alone)


def test_a_study_that_diverged_or_has_not_begun_has_nothing_to_compare(
    seeds: tacit.Results, tmp_path: Path
) -> None:
    for status in ("diverged", "waiting"):
        folder = tmp_path / status
        folder.mkdir()
        everyone = {(method, seed): status for method in seeds.methods for seed in range(4)}
        lost = with_statuses(seeds, folder, everyone)
        assert (leads(lost), figure_limits(lost), lost.findings()) == ([], {}, [])
        assert render(lost).startswith("<!doctype html>")


def test_without_assessments_too_little_is_known(twins: tacit.Results, tmp_path: Path) -> None:
    copy = a_copy(twins, tmp_path)
    for path in (copy.folder / "assessments").iterdir():
        path.unlink()
    assert figure_limits(copy) == {}
    assert [lead.limits for lead in leads(copy)] == [None, None]
    assert not any(lead.is_real for lead in leads(copy))
    assert all("too little is known" in lead.text for lead in leads(copy))
    assert "All metrics" in render(copy)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"rows": 3}', "\x00", "[" * 100_000])
def test_a_damaged_file_is_named_in_one_line(
    twins: tacit.Results, tmp_path: Path, damage: str
) -> None:
    run = next(iter(twins.labels))
    for name in (f"assessments/{run}.json", "data.json"):
        folder = tmp_path / Path(name).stem
        folder.mkdir()
        copy = a_copy(twins, folder)
        (copy.folder / name).write_text(damage)
        with pytest.raises(DataError, match=f"{Path(name).stem}.*is damaged; ") as caught:
            copy.findings()
        assert "\n" not in str(caught.value)


def test_holm_makes_each_further_difference_easier_until_one_fails() -> None:
    assert holm([]) == []
    assert holm([0.05]) == [True]
    # 0.05 / 3 = 0.0167, 0.05 / 2 = 0.025, 0.05 / 1
    assert holm([0.02, 0.001, 0.04]) == [True, True, True]
    assert holm([0.03, 0.001, 0.04]) == [False, True, False]  # 0.03 fails, so 0.04 may not try
    assert holm([0.017, 0.017, 0.017]) == [False, False, False]
    assert holm([1.0, float("nan")]) == [False, False]


def test_differences_are_a_table(twins: tacit.Results) -> None:
    table = twins.differences()
    assert list(table) == ["column", "best", "other", "by", "limits", "is_real"]
    rows: list[Any] = table[["column", "best", "other", "is_real"]].to_numpy().tolist()
    assert rows == [["iid", "fedavg", "fedprox", False], ["iid", "fedavg", "fedsgd", True]]
