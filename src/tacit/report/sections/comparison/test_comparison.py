"""The comparison: what a cell says, which is best, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from playground import COMPARED
from stored import assert_best_is_marked, contents_of, history_of, with_history

import tacit
from tacit.report.heat_table import reference_text
from tacit.report.overview import overview
from tacit.report.page import render
from tacit.report.sections.comparison.pictures import draw_comparison


def last_records(results: tacit.Results) -> pd.DataFrame:
    records = [record for record in history_of(results) if record["round"] == 4]
    return pd.DataFrame(records).set_index("run")


def first_table(results: tacit.Results) -> dict[str, list[dict[str, object]]]:
    """The cells of each method, by the score."""
    rows = contents_of("comparison", results)["tables"][0]["rows"]
    return {row["name"]: row["cells"] for row in rows}


def test_a_cell_is_the_mean_and_deviation_over_the_seeds(results: tacit.Results) -> None:
    last = last_records(results)
    labels = results.labels
    table = first_table(results)
    assert list(table) == ["fedavg", "fedprox", "fedsgd"]
    for method, cells in table.items():
        assert [cell["split"] for cell in cells] == ["iid", "label_dirichlet"]
        for cell in cells:
            of_method = [run for run in labels if results.names[run] == method]
            runs = [run for run in of_method if labels[run]["split"] == cell["split"]]
            values = last.loc[runs, "accuracy"]
            assert len(values) == 2
            assert cell["mean"] == f"{values.mean():.4f}"
            assert cell["deviation"] == f"{values.std(ddof=1):.4f}"


def test_the_best_of_each_column_is_bold_and_darkest(results: tacit.Results) -> None:
    by_accuracy = contents_of("comparison", results)["tables"][0]
    assert_best_is_marked(by_accuracy, max)


def test_the_reference_is_no_row_but_a_line_of_its_own(results: tacit.Results) -> None:
    assert not any(name.startswith("centralised") for name in first_table(results))
    references = [run for run in results.runs if results.runs[run].is_reference]
    scores = last_records(results)["accuracy"][references]
    assert reference_text(results) == f"{scores.mean():.4f} ± {scores.std():.4f}"
    assert "all data in one place" in render(results)


def test_comparison_csv_holds_every_table(results: tacit.Results) -> None:
    saved = pd.read_csv(results.folder / "comparison.csv").set_index(["metric", "method", "split"])
    for metric in ("accuracy", "worst", "spread"):
        for statistic in ("mean", "std"):
            table = results.table(metric, statistic).stack()
            for (method, split), value in table.dropna().items():
                assert saved.loc[(metric, method, split), statistic] == pytest.approx(value)
    assert set(saved["seeds"]) == {2}


def test_cells_that_are_not_final_say_so_and_are_not_best(
    results: tacit.Results, tmp_path: Path
) -> None:
    records = []
    for record in history_of(results):
        method = results.names[record["run"]]
        if method == "fedsgd" and record["round"] < 3:
            records.append({**record, "accuracy": 1.0, "status": "running"})
        elif method not in ("fedsgd", "fedavg"):
            records.append(record)
    going = with_history(results, tmp_path, records)
    cells = first_table(going)["fedsgd"]
    assert {cell["going"] for cell in cells} == {"round 2 of 4"}
    assert not any(cell["best"] for cell in cells)
    assert contents_of("comparison", going)["waiting"] == ["fedavg"]


def test_equal_means_are_equally_good(results: tacit.Results, tmp_path: Path) -> None:
    scores = {"fedavg": (0.1, 0.2), "fedprox": (0.2000001, 0.1), "fedsgd": (0.05, 0.05)}
    records = history_of(results)
    for record in records:
        seed = results.runs[record["run"]].seed
        record["accuracy"] = scores.get(results.names[record["run"]], (0.5, 0.5))[seed]
    table = first_table(with_history(results, tmp_path, records))
    best = {method: [cell["best"] for cell in cells] for method, cells in table.items()}
    assert best == {"fedavg": [True] * 2, "fedprox": [True] * 2, "fedsgd": [False] * 2}
    assert table["fedavg"][0]["shade"] == table["fedprox"][0]["shade"]


def test_the_smallest_error_of_a_regression_is_best(tmp_path: Path) -> None:
    study = {"dataset": "diabetes", "model": "linear", "rounds": 4}
    methods = {"algorithm": ["fedavg", "fedsgd"], "optimiser": {"name": "sgd", "lr": 0.05}}
    regression = tacit.run(study | methods, tmp_path / "a")
    tables = {table["id"]: table for table in contents_of("comparison", regression)["tables"]}
    fedavg, fedsgd = (row["cells"][0] for row in tables["rmse"]["rows"])
    assert float(fedavg["mean"]) < float(fedsgd["mean"])
    assert (fedavg["best"], fedsgd["best"]) == (True, False)
    assert (fedavg["shade"], fedsgd["shade"]) == (1, 0)


def test_one_diverged_seed_empties_the_cell_on_the_page_and_in_the_csv(
    results: tacit.Results, tmp_path: Path
) -> None:
    records = history_of(results)
    wild = next(run for run in results.runs if results.names[run] == "fedsgd")
    for record in records:
        if record["run"] == wild and record["round"] == 4:
            record |= {"accuracy": None, "loss": None, "status": "diverged"}
    diverged = with_history(results, tmp_path, records)
    empty = [cell["mean"] == "" for cell in first_table(diverged)["fedsgd"]]
    assert empty.count(True) == 1
    means = diverged.comparison().set_index(["metric", "method", "split"])["mean"]
    assert pd.isna(means["accuracy", "fedsgd", results.labels[wild]["split"]])
    assert not diverged.runs[diverged.best()].is_reference


def test_a_run_that_diverged_has_no_place_in_its_cell(tmp_path: Path) -> None:
    rates = {"name": "sgd", "lr": [0.1, 1e30]}
    wild = {"model": "mlp", "optimiser": rates, "algorithm": "fedavg", "seed": 0}
    diverged = tacit.run({**COMPARED, **wild}, tmp_path / "a")
    table = first_table(diverged)
    method = next(name for name in table if "1e+30" in name)
    assert [cell["mean"] for cell in table[method]] == ["", ""]
    stopped = overview(diverged)["stopped"]
    assert {run["status"] for run in stopped} == {"diverged"}


def test_the_pictures_numbers_are_white_on_dark_cells() -> None:
    table = pd.DataFrame({"iid": [0.2, 0.9], "noise": [0.8, float("nan")]}, ["fedavg", "local"])
    (panel, _) = draw_comparison(table, "accuracy").axes
    colours = {text.get_text(): text.get_color() for text in panel.texts}
    assert colours == {"0.200": "white", "0.900": "black", "0.800": "black", "diverged": "black"}
