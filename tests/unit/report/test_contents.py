"""The numbers on the page are those of the history."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playground import COMPARED

import tacit
from tacit.core.errors import DataError
from tacit.records.history import read_lines
from tacit.report import curves
from tacit.report.contents import contents
from tacit.report.curves import chart_data
from tacit.report.html import render

STUDY: dict[str, Any] = {**COMPARED, "algorithm": ["fedavg", {"name": "fedprox", "mu": [0.1, 10]}]}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tacit.Results:
    return tacit.run(STUDY, tmp_path_factory.mktemp("contents") / "study")


def copy_study(results: tacit.Results, folder: Path) -> None:
    """The study without its history, which the test writes itself."""
    for name in ("study.yaml", "runs.json", "splits.json"):
        (folder / name).write_text((results.folder / name).read_text())


def last_records(results: tacit.Results) -> pd.DataFrame:
    lines = [
        json.loads(line) for line in (results.folder / "history.jsonl").read_text().splitlines()
    ]
    return pd.DataFrame([line for line in lines if line["round"] == 4]).set_index("run")


def test_a_cell_is_the_mean_and_deviation_over_the_seeds(results: tacit.Results) -> None:
    table = contents(results)["comparison"][0]
    assert table["columns"] == ["iid", "label_dirichlet"]
    last, labels = last_records(results), results.labels
    for row in table["rows"]:
        for cell in row["cells"]:
            runs = [
                r
                for r in labels
                if results.names[r] == row["name"] and labels[r]["split"] == cell["split"]
            ]
            values = last.loc[runs, "accuracy"]
            assert len(values) == 2
            assert cell["mean"] == f"{values.mean():.4f}"
            assert cell["deviation"] == f"{values.std(ddof=1):.4f}"


def test_the_best_of_each_column_is_bold_and_darkest(results: tacit.Results) -> None:
    page = contents(results)
    for table, better in (
        (page["comparison"][0], max),
        (page["fairness"][1], min),
    ):  # accuracy, spread
        for k in range(2):
            column = [row["cells"][k] for row in table["rows"]]
            best = better(float(cell["mean"]) for cell in column)
            assert all(
                float(cell["mean"]) == pytest.approx(best, abs=1e-4)
                for cell in column
                if cell["best"]
            )
            assert any(cell["best"] for cell in column)
        cells = [cell for row in table["rows"] for cell in row["cells"]]
        assert better(cells, key=lambda cell: float(cell["mean"]))["shade"] == pytest.approx(1)
        assert {cell["shade"] for cell in cells} >= {0.0, 1.0}


def test_the_reference_is_no_row_but_a_line_of_its_own(results: tacit.Results) -> None:
    page = contents(results)
    assert [row["name"] for row in page["comparison"][0]["rows"]] == [
        "fedavg",
        "fedprox(mu=0.1)",
        "fedprox(mu=10)",
    ]
    central = last_records(results)["accuracy"][
        [run for run in results.runs if results.runs[run].is_reference]
    ]
    assert page["reference"] == f"{central.mean():.4f} ± {central.std():.4f}"
    assert "all data in one place" in render(results)


def test_costs_are_means_of_a_method_s_runs(results: tacit.Results) -> None:
    costs = {row["method"]: row for row in contents(results)["costs"]}
    summary = results.summary()
    mine = summary[summary["run"].map(results.names) == "fedavg"]
    assert float(costs["fedavg"]["up"]) == pytest.approx(mine["bytes_up"].mean() / 1e6, rel=1e-2)
    assert float(costs["fedavg"]["per_mb"]) == pytest.approx(
        mine["accuracy_per_mb"].mean(), rel=1e-2
    )
    assert costs["fedavg"]["rounds"] == "4"


def test_comparison_csv_holds_every_table(results: tacit.Results) -> None:
    found = pd.read_csv(results.folder / "comparison.csv").set_index(["metric", "method", "split"])
    for metric in ("accuracy", "worst", "spread"):
        for statistic in ("mean", "std"):
            table = results.table(metric, statistic)
            for method in table.index:
                for split in table.columns:
                    if not pd.isna(table.loc[method, split]):
                        assert found.loc[(metric, method, split), statistic] == pytest.approx(
                            table.loc[method, split]
                        )
    assert set(found["seeds"]) == {2}


def test_very_many_curves_are_thinned_and_the_page_says_so(
    results: tacit.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chart_data(results)["clients_note"] == ""
    monkeypatch.setattr(curves, "MOST_VALUES", 50)
    monkeypatch.setattr(curves, "MOST_CLIENTS", 2)
    data = chart_data(results)
    assert {curve["seed"] for curve in data["clients"]} == {0}
    assert {len(curve["names"]) for curve in data["clients"]} == {2}
    assert data["clients_note"] == "seed 0, the first 2 of 3 clients, 2 of 4 rounds"
    assert "seed 0, the first 2 of 3 clients, 2 of 4 rounds" in render(results)


@pytest.mark.parametrize(("longest", "most"), [(5, 10), (10, 10), (11, 10), (1000, 7), (2, 2)])
def test_thinning_keeps_the_first_and_the_last_round(longest: int, most: int) -> None:
    kept = curves._kept_rounds(longest, most)
    assert {1, longest} <= kept
    assert len(kept) == min(longest, most)


def test_seeds_of_unequal_length_are_thinned_alike(results: tacit.Results, tmp_path: Path) -> None:
    copy_study(results, tmp_path)
    record = json.loads((results.folder / "history.jsonl").read_text().splitlines()[0])
    runs = [run for run in results.runs if results.names[run] == "fedavg"][:2]
    lengths = dict(zip(runs, (900, 800), strict=True))
    lines = [
        {**record, "run": run, "round": k + 1}
        for run, length in lengths.items()
        for k in range(length)
    ]
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    long, short = chart_data(tacit.Results(tmp_path))["curves"]
    assert len(long["round"]) == 400
    assert short["round"] == [round for round in long["round"] if round <= 800]


def test_cells_that_are_not_final_say_so_and_are_not_best(
    results: tacit.Results, tmp_path: Path
) -> None:
    copy_study(results, tmp_path)
    lines = [
        json.loads(line) for line in (results.folder / "history.jsonl").read_text().splitlines()
    ]
    best = {"accuracy": 1.0, "status": "running"}
    mine = [run for run in results.runs if results.names[run] == "fedprox(mu=10)"]
    kept = [
        {**line, **(best if line["run"] in mine else {})}
        for line in lines
        if line["run"] not in mine or line["round"] < 3
    ]
    never = [run for run in results.runs if results.names[run] == "fedavg"]
    kept = [line for line in kept if line["run"] not in never]
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    page = contents(tacit.Results(tmp_path))
    rows = {row["name"]: row["cells"] for row in page["comparison"][0]["rows"]}
    assert {cell["going"] for cell in rows["fedprox(mu=10)"]} == {"round 2 of 4"}
    assert not any(cell["best"] for cell in rows["fedprox(mu=10)"])
    assert page["waiting"] == ["fedavg"]


def test_equal_means_are_equally_good(results: tacit.Results, tmp_path: Path) -> None:
    copy_study(results, tmp_path)
    scores = {
        "fedavg": (0.1, 0.2),
        "fedprox(mu=0.1)": (0.2000001, 0.1),
        "fedprox(mu=10)": (0.05, 0.05),
    }
    lines = [
        json.loads(line) for line in (results.folder / "history.jsonl").read_text().splitlines()
    ]
    for line in lines:
        seed = results.runs[line["run"]].seed
        line["accuracy"] = scores.get(results.names[line["run"]], (0.5, 0.5))[seed]
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = contents(tacit.Results(tmp_path))["comparison"][0]["rows"]
    assert [[cell["best"] for cell in row["cells"]] for row in rows] == [
        [True] * 2,
        [True] * 2,
        [False] * 2,
    ]
    assert rows[0]["cells"][0]["shade"] == rows[1]["cells"][0]["shade"]


def test_curves_count_what_was_sent_so_far(results: tacit.Results) -> None:
    curve = chart_data(results)["curves"][0]
    mine = results.frame()[results.frame()["run"] == curve["run"]]
    assert curve["mb"] == pytest.approx((mine["bytes_up"].cumsum() / 1e6).tolist(), rel=1e-4)
    assert curve["time"] == pytest.approx(mine["seconds"].cumsum().tolist(), rel=1e-3)
    summary = results.summary().set_index("run").loc[curve["run"]]
    assert summary["bytes_up"] == mine["bytes_up"].sum()
    costs = {row["method"]: row for row in contents(results)["costs"]}
    runs = results.summary()[results.summary()["run"].map(results.names) == "fedavg"]
    assert float(costs["fedavg"]["each"]) == pytest.approx(
        1000 * runs["seconds"].mean() / 4, rel=1e-2
    )


def test_attackers_are_named_in_the_curves(tmp_path: Path) -> None:
    study = {
        **STUDY,
        "clients": 5,
        "algorithm": "fedavg",
        "attackers": {"count": 2, "kind": "sign_flip"},
        "seed": 0,
    }
    made = tacit.run({**study, "split": "iid", "centralised": False}, tmp_path / "a")
    lying = [client["client"] for client in made.records[-1]["clients"] if client["attacker"]]
    assert len(lying) == 2
    assert chart_data(made)["clients"][0]["attackers"] == lying


def test_the_smallest_error_of_a_regression_is_best(tmp_path: Path) -> None:
    study = {
        "dataset": "diabetes",
        "model": "linear",
        "rounds": 4,
        "algorithm": ["fedavg", "fedsgd"],
    }
    made = tacit.run({**study, "optimiser": {"name": "sgd", "lr": 0.05}}, tmp_path / "a")
    table = next(table for table in contents(made)["comparison"] if table["id"] == "rmse")
    fedavg, fedsgd = (row["cells"][0] for row in table["rows"])
    assert float(fedavg["mean"]) < float(fedsgd["mean"])
    assert (fedavg["best"], fedsgd["best"]) == (True, False)
    assert (fedavg["shade"], fedsgd["shade"]) == (1, 0)


def test_one_diverged_seed_empties_the_cell_on_the_page_and_in_the_csv(
    results: tacit.Results, tmp_path: Path
) -> None:
    copy_study(results, tmp_path)
    lines = [
        json.loads(line) for line in (results.folder / "history.jsonl").read_text().splitlines()
    ]
    wild = next(run for run in results.runs if results.names[run] == "fedprox(mu=10)")
    for line in lines:
        if line["run"] == wild and line["round"] == 4:
            line |= {"accuracy": None, "loss": None, "status": "diverged"}
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    odd = tacit.Results(tmp_path)
    rows = {row["name"]: row["cells"] for row in contents(odd)["comparison"][0]["rows"]}
    assert [cell["mean"] == "" for cell in rows["fedprox(mu=10)"]].count(True) == 1
    cells = odd.comparison().set_index(["metric", "method", "split"])["mean"]
    split = results.labels[wild]["split"]
    assert pd.isna(cells["accuracy", "fedprox(mu=10)", split])
    assert odd.best() not in [run for run in odd.runs if odd.runs[run].is_reference]


def test_a_study_that_has_just_begun_has_a_page(results: tacit.Results, tmp_path: Path) -> None:
    copy_study(results, tmp_path)
    begun = tacit.Results(tmp_path)
    assert "No round is done yet" in render(begun)
    whole = (results.folder / "history.jsonl").read_text()
    (tmp_path / "history.jsonl").write_text(
        whole[: len(whole) // 2]
    )  # its last line is half written
    half = tacit.Results(tmp_path)
    page = contents(half)
    assert 0 < page["done"] < page["runs"]
    assert half.write_report().exists()


@pytest.mark.parametrize("chosen", ["references", "methods", "one run", "first rounds"])
def test_runs_may_begin_in_any_order(results: tacit.Results, tmp_path: Path, chosen: str) -> None:
    """Workers take the largest first, which may be the references."""
    copy_study(results, tmp_path)
    central = {run for run, one in results.runs.items() if one.is_reference}
    wanted = {
        "references": lambda line: line["run"] in central,
        "methods": lambda line: line["run"] not in central,
        "one run": lambda line: line["run"] == list(results.runs)[4],
        "first rounds": lambda line: line["round"] == 1,
    }[chosen]
    lines = [line for line in read_lines(results.folder / "history.jsonl") if wanted(line)]
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = contents(tacit.Results(tmp_path))
    assert page["done"] == len({line["run"] for line in lines if line["status"] != "running"})
    assert tacit.Results(tmp_path).write_report().exists()


def test_versions_are_those_of_the_run_and_not_of_the_report(
    results: tacit.Results, tmp_path: Path
) -> None:
    noted = json.loads((results.folder / "environment.json").read_text())
    assert noted[0]["tacit"] == tacit.__version__
    assert noted[0]["threads"] >= 1
    for path in results.folder.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "environment.json").write_text(
        json.dumps([{**noted[0], "torch": "1.2.3"}, noted[0]])
    )
    page = render(tacit.Results(tmp_path))
    assert re.search(r"Run with tacit .* torch 1\.2\.3", page)
    assert "Resumed with tacit" in page


def test_the_page_holds_the_study_as_it_can_be_run_again(
    results: tacit.Results, tmp_path: Path
) -> None:
    import html

    shown = re.search(r'<pre id="study"[^>]*>(.*?)</pre>', render(results), re.DOTALL)
    assert shown
    (tmp_path / "again.yaml").write_text(html.unescape(shown[1]))
    again = tacit.Study.from_file(tmp_path / "again.yaml")
    assert again.to_yaml() == results.study.to_yaml()


def test_a_run_that_diverged_has_no_place_in_its_cell(tmp_path: Path) -> None:
    rates = {"name": "sgd", "lr": [0.1, 1e30]}
    made = tacit.run(
        {**STUDY, "model": "mlp", "optimiser": rates, "algorithm": "fedavg", "seed": 0},
        tmp_path / "a",
    )
    page = contents(made)
    rows = {row["name"]: row["cells"] for row in page["comparison"][0]["rows"]}
    wild = next(name for name in rows if "1e+30" in name)
    assert [cell["mean"] for cell in rows[wild]] == ["", ""]
    assert [one["status"] for one in page["stopped"]] == ["diverged"] * len(page["stopped"])
    assert page["stopped"]


def test_small_local_tests_are_pointed_out_but_not_that_there_are_none(tmp_path: Path) -> None:
    study = {"dataset": "digits", "model": "linear", "rounds": 1, "clients": 4}
    for name, share, said in (("a", 0.1, False), ("b", 0.01, True), ("c", 0.0, False)):
        page = contents(tacit.run({**study, "local_test": share}, tmp_path / name))
        assert any("fewer than 10 samples" in text for text in page["cautions"]) == said


def test_the_smallest_local_test_of_all_seeds_is_named(tmp_path: Path) -> None:
    study = {
        "dataset": "digits",
        "model": "linear",
        "rounds": 1,
        "split": "quantity_skew",
        "seed": [0, 1, 2],
    }
    results = tacit.run(study, tmp_path / "a")
    sizes = {one.seed: min(sum(row) for row in one.test) for one in results.portraits}
    assert sizes[2] > min(sizes.values())
    assert any(f"on {min(sizes.values())})" in text for text in contents(results)["cautions"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("splits.json", "{"),
        ("splits.json", "[1]"),
        ("history.jsonl", "null\n"),
        ("history.jsonl", "{}\n"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(
    results: tacit.Results, tmp_path: Path, name: str, text: str
) -> None:
    copy_study(results, tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=f"{name} is damaged"):
        render(tacit.Results(tmp_path))
