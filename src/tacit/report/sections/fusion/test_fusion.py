"""What the report shows of fusions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import PathPatch, Rectangle
from playground import COMPARED, FUSED
from stored import chart_data_of, contents_of, history_of, with_history

import tacit
from tacit.core.events import ignore
from tacit.report import neuron_sharing
from tacit.report.figures import find_drawings, write_figures
from tacit.report.matching_picture import draw_matching
from tacit.report.neuron_sharing import Sharing
from tacit.report.page import render
from tacit.report.sections.fusion.fusion_data import score_rows, width_rows

ONE_RUN: dict[str, Any] = {**FUSED, "fusion": "pfnm", "split": "iid", "seed": 0}


@pytest.fixture(scope="module")
def fused(tmp_path_factory: pytest.TempPathFactory) -> tacit.Results:
    return tacit.run(FUSED, tmp_path_factory.mktemp("fusion") / "study")


def test_the_most_shared_neurons_come_first() -> None:
    neurons = Sharing.of([[0, 1], [3, 1], [1, 0]], 4)
    assert neurons.order == [1, 0, 3, 2]
    assert neurons.owners == [[0, 2], [0, 1, 2], [], [1]]
    assert neurons.shares == [1, 1, 1]
    assert neurons.local == 6


def runs_of(study: tacit.Results, split: str, method: str) -> list[str]:
    runs = []
    for run, labels in study.labels.items():
        if labels["split"] == split and labels["algorithm"] == method:
            runs.append(run)
    return runs


def scores_of(name: str, record: dict[str, Any]) -> list[float]:
    """The scores that a run adds to the row of this name."""
    if name == "local networks":
        return list(record["fusion"]["alone"])
    keys = {"naive average": "average_accuracy", "ensemble": "ensemble_accuracy"}
    return [record[keys.get(name, "accuracy")]]


def test_scores_are_those_of_the_history(fused: tacit.Results) -> None:
    records = {record["run"]: record for record in history_of(fused)}
    rows = {(row["split"], row["name"]): row for row in score_rows(fused)}
    names = ["local networks", "naive average", "pfnm", "spahm", "ensemble"]
    assert list(dict.fromkeys(name for _, name in rows)) == names
    for (split, name), row in rows.items():
        method = row["method"] or "pfnm"  # a row without a method is the same for all methods
        wanted = []
        for run in runs_of(fused, split, method):
            wanted += scores_of(name, records[run])
        assert [dot["value"] for dot in row["values"]] == pytest.approx(wanted, rel=1e-4)
        assert row["mean"] == pytest.approx(np.mean(wanted), rel=1e-4)
    assert rows["iid", "local networks"]["values"][4]["who"] == "client 1, seed 1"


def test_widths_are_means_over_the_seeds(fused: tacit.Results) -> None:
    summary = fused.summary().set_index("run")
    for row in width_rows(fused):
        runs = summary.loc[runs_of(fused, row["split"], row["method"])]
        (layer,) = row["layers"]
        assert layer == {"fused": runs["width"].mean(), "local": 18, "widest": 6}
        assert row["seconds"] == pytest.approx(runs["matching_seconds"].mean())


def test_the_table_has_a_row_for_each_method_and_split(fused: tacit.Results) -> None:
    table = contents_of("fusion", fused)["widths"]
    assert list(table) == ["iid", "label_dirichlet"]
    for rows in table.values():
        assert [row["method"] for row in rows] == ["pfnm", "spahm"]
        assert {row["local"] for row in rows} == {"18"}


def test_a_study_without_a_fusion_has_no_section(tmp_path: Path) -> None:
    study = tacit.run({**COMPARED, "rounds": 1, "seed": 0, "split": "iid"}, tmp_path / "a")
    assert 'id="fusion"' not in render(study)
    assert not {"fusion", "widths", "matching"} & set(find_drawings(study))


def test_a_method_without_a_fusion_may_stand_beside_one(tmp_path: Path) -> None:
    settings = {**ONE_RUN, "fusion": {"grid": [None, "pfnm"]}}
    study = tacit.run(settings, tmp_path / "a", on_event=ignore)
    names = [row["name"] for row in score_rows(study)]
    assert names == ["local networks", "naive average", "pfnm", "ensemble"]


def test_after_several_rounds_each_method_has_its_own_baselines(tmp_path: Path) -> None:
    study = tacit.run({**ONE_RUN, "fusion": ["pfnm", "spahm"], "rounds": 3}, tmp_path / "a")
    rows = {row["name"]: row["method"] for row in score_rows(study)}
    assert rows["pfnm: local networks"] == rows["pfnm"] == "pfnm"
    times = study.frame().groupby("algorithm")["matching_seconds"].sum()
    shown = {row["method"]: row["seconds"] for row in width_rows(study)}
    assert shown == pytest.approx(times.to_dict())


def test_networks_of_different_widths_have_no_average(tmp_path: Path) -> None:
    study = tacit.run({**ONE_RUN, "widths": [4, 6, 9]}, tmp_path / "a")
    assert [row["name"] for row in score_rows(study)] == ["local networks", "pfnm", "ensemble"]
    (row,) = width_rows(study)
    assert (row["layers"][0]["local"], row["layers"][0]["widest"]) == (19, 9)
    assert "fusion" in find_drawings(study)


def test_every_hidden_layer_is_shown(tmp_path: Path) -> None:
    study = tacit.run({**ONE_RUN, "model": {"name": "mlp", "hidden": [6, 4]}}, tmp_path / "a")
    (row,) = width_rows(study)
    (matching,) = chart_data_of("fusion", study)["matchings"]
    for layers in (row["layers"], matching["layers"]):
        assert [layer["local"] for layer in layers] == [18, 12]
    assert len(find_drawings(study)["matching"]().axes) == 2


def test_a_regression_is_measured_by_r2(tmp_path: Path) -> None:
    study = tacit.run({**ONE_RUN, "dataset": "diabetes"}, tmp_path / "a")
    names = [row["name"] for row in score_rows(study)]
    assert names == ["local networks", "naive average", "pfnm", "ensemble"]
    assert find_drawings(study)["fusion"]().axes[0].get_xlabel() == "global test R²"
    assert "averages their predictions" in render(study)


def test_a_study_that_is_going_has_no_matching_yet(tmp_path: Path) -> None:
    done = tacit.run({**ONE_RUN, "rounds": 2}, tmp_path / "a")
    records = history_of(done)
    (tmp_path / "b").mkdir()
    going = with_history(done, tmp_path / "b", records[:1])
    (matching,) = chart_data_of("fusion", going)["matchings"]
    assert matching["layers"] == []
    assert "matching" not in find_drawings(going)
    assert {"fusion", "widths"} <= set(find_drawings(going))
    begun = with_history(done, tmp_path / "b", [])
    after_heading = render(begun).split('id="fusion"')[1]
    section = after_heading.split("</section>")[0]
    assert "No round is done yet" in section


def test_a_run_that_diverged_is_left_out(fused: tacit.Results, tmp_path: Path) -> None:
    first, *rest = history_of(fused)
    for key in ("fusion", "width", "local_width"):
        del first[key]
    for key in ("alone_accuracy", "average_accuracy", "ensemble_accuracy"):
        del first[key]
    broken = {**first, "accuracy": None, "status": "diverged"}
    study = with_history(fused, tmp_path, [broken, *rest])
    assert len(chart_data_of("fusion", study)["matchings"]) == len(rest)
    assert "NaN" not in render(study)
    assert "fusion" in find_drawings(study)


def test_pictures_are_written_like_the_others(fused: tacit.Results) -> None:
    written = {path.name for path in write_figures(fused)}
    for name in ("fusion", "widths", "matching"):
        assert {f"{name}.svg", f"{name}.png"} <= written


def test_a_drawing_has_a_panel_per_layer_and_lines_per_client() -> None:
    first_layer = [np.array([0, 1]), np.array([1, 2, 3])]
    second_layer = [np.array([0]), np.array([0])]
    figure = draw_matching([first_layer, second_layer], [4, 1], ["north", "south"])
    assert [panel.get_title() for panel in figure.axes] == [
        "hidden layer 1: 5 local neurons become 4",
        "hidden layer 2: 2 local neurons become 1",
    ]
    drawn = [patch for patch in figure.axes[0].patches if isinstance(patch, PathPatch)]
    assert [len(patch.get_path().vertices) for patch in drawn] == [4 * 2, 4 * 3]
    assert {"north", "south", "1", "2"} <= {text.get_text() for text in figure.axes[0].texts}


def test_what_is_too_large_to_draw_is_counted(
    fused: tacit.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neuron_sharing, "MOST_NEURONS", 17)
    for matching in chart_data_of("fusion", fused)["matchings"]:
        (layer,) = matching["layers"]
        assert layer["places"] is layer["order"] is None
        assert sum(layer["shares"]) == layer["width"]
        assert sum(k * count for k, count in enumerate(layer["shares"], 1)) == layer["local"] == 18
    layer = [list(range(9)), list(range(9))]
    (panel,) = draw_matching([layer], [9], ["a", "b"]).axes
    heights = [bar.get_height() for bar in panel.patches if isinstance(bar, Rectangle)]
    assert heights == [0, 9]
