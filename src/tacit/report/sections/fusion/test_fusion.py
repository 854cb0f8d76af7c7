"""What the report tells of fusions."""

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
from tacit.report.figures import find_drawings, write_figures
from tacit.report.page import render
from tacit.report.sections.fusion import sharing
from tacit.report.sections.fusion.figures import score_rows, width_rows
from tacit.report.sections.fusion.matching_picture import draw_matching
from tacit.report.sections.fusion.sharing import Sharing

ONE: dict[str, Any] = {**FUSED, "fusion": "pfnm", "split": "iid", "seed": 0}


@pytest.fixture(scope="module")
def fused(tmp_path_factory: pytest.TempPathFactory) -> tacit.Results:
    return tacit.run(FUSED, tmp_path_factory.mktemp("fusion") / "study")


def test_the_most_shared_neurons_come_first() -> None:
    neurons = Sharing.of([[0, 1], [3, 1], [1, 0]], 4)
    assert neurons.order == [1, 0, 3, 2]
    assert neurons.owners == [[0, 2], [0, 1, 2], [], [1]]
    assert neurons.shares == [1, 1, 1]
    assert neurons.local == 6


def test_scores_are_those_of_the_history(fused: tacit.Results) -> None:
    lines = {line["run"]: line for line in history_of(fused)}
    rows = {(row["split"], row["name"]): row for row in score_rows(fused)}
    names = ["local networks", "naive average", "pfnm", "spahm", "ensemble"]
    assert list(dict.fromkeys(name for _, name in rows)) == names
    for (split, name), row in rows.items():
        method = row["method"] or "pfnm"  # a line that belongs to none is the same for all
        runs = [
            run
            for run, own in fused.labels.items()
            if (own["split"], own["algorithm"]) == (split, method)
        ]
        key = {"naive average": "average_accuracy", "ensemble": "ensemble_accuracy"}.get(
            name, "accuracy"
        )
        wanted = [lines[run][key] for run in runs]
        if name == "local networks":
            wanted = [value for run in runs for value in lines[run]["fusion"]["alone"]]
        assert [one["value"] for one in row["values"]] == pytest.approx(wanted, rel=1e-4)
        assert row["mean"] == pytest.approx(np.mean(wanted), rel=1e-4)
    assert rows["iid", "local networks"]["values"][4]["who"] == "client 1, seed 1"


def test_widths_are_means_over_the_seeds(fused: tacit.Results) -> None:
    summary = fused.summary()
    for row in width_rows(fused):
        mine = summary[(summary["algorithm"] == row["method"]) & (summary["split"] == row["split"])]
        (layer,) = row["layers"]
        assert layer == {"fused": mine["width"].mean(), "local": 18, "widest": 6}
        assert row["seconds"] == pytest.approx(mine["matching_seconds"].mean())


def test_the_table_has_a_row_for_each_method_and_split(fused: tacit.Results) -> None:
    found = contents_of("fusion", fused)["widths"]
    assert {split: [row["method"] for row in rows] for split, rows in found.items()} == {
        "iid": ["pfnm", "spahm"],
        "label_dirichlet": ["pfnm", "spahm"],
    }
    assert {row["local"] for rows in found.values() for row in rows} == {"18"}


def test_a_study_without_a_fusion_has_no_section(tmp_path: Path) -> None:
    study = tacit.run({**COMPARED, "rounds": 1, "seed": 0, "split": "iid"}, tmp_path / "a")
    assert 'id="fusion"' not in render(study)
    assert not {"fusion", "widths", "matching"} & set(find_drawings(study))


def test_a_method_without_a_fusion_may_stand_beside_one(tmp_path: Path) -> None:
    study = tacit.run({**ONE, "fusion": {"grid": [None, "pfnm"]}}, tmp_path / "a", on_event=ignore)
    assert [row["name"] for row in score_rows(study)] == [
        "local networks",
        "naive average",
        "pfnm",
        "ensemble",
    ]


def test_after_several_rounds_each_method_has_its_own_baselines(tmp_path: Path) -> None:
    study = tacit.run({**ONE, "fusion": ["pfnm", "spahm"], "rounds": 3}, tmp_path / "a")
    rows = {row["name"]: row["method"] for row in score_rows(study)}
    assert rows["pfnm: local networks"] == rows["pfnm"] == "pfnm"
    times = study.frame().groupby("algorithm")["matching_seconds"].sum()
    assert {row["method"]: row["seconds"] for row in width_rows(study)} == pytest.approx(
        times.to_dict()
    )


def test_networks_of_different_widths_have_no_average(tmp_path: Path) -> None:
    study = tacit.run({**ONE, "widths": [4, 6, 9]}, tmp_path / "a")
    assert [row["name"] for row in score_rows(study)] == ["local networks", "pfnm", "ensemble"]
    (row,) = width_rows(study)
    assert (row["layers"][0]["local"], row["layers"][0]["widest"]) == (19, 9)
    assert "fusion" in find_drawings(study)


def test_every_hidden_layer_is_told(tmp_path: Path) -> None:
    study = tacit.run({**ONE, "model": {"name": "mlp", "hidden": [6, 4]}}, tmp_path / "a")
    (row,), (one,) = width_rows(study), chart_data_of("fusion", study)["matchings"]
    assert (
        [layer["local"] for layer in row["layers"]]
        == [layer["local"] for layer in one["layers"]]
        == [18, 12]
    )
    assert len(find_drawings(study)["matching"]().axes) == 2


def test_a_regression_is_told_by_r2(tmp_path: Path) -> None:
    study = tacit.run({**ONE, "dataset": "diabetes"}, tmp_path / "a")
    assert [row["name"] for row in score_rows(study)] == [
        "local networks",
        "naive average",
        "pfnm",
        "ensemble",
    ]
    assert find_drawings(study)["fusion"]().axes[0].get_xlabel() == "global test R²"
    assert "averages their predictions" in render(study)


def test_a_study_that_is_going_has_no_matching_yet(tmp_path: Path) -> None:
    done = tacit.run({**ONE, "rounds": 2}, tmp_path / "a")
    lines = history_of(done)
    (tmp_path / "b").mkdir()
    going = with_history(done, tmp_path / "b", lines[:1])
    assert [one["layers"] for one in chart_data_of("fusion", going)["matchings"]] == [[]]
    assert "matching" not in find_drawings(going)
    assert {"fusion", "widths"} <= set(find_drawings(going))
    begun = with_history(done, tmp_path / "b", [])
    assert "No round is done yet" in render(begun).split('id="fusion"')[1].split("</section>")[0]


def test_a_run_that_diverged_is_left_out(fused: tacit.Results, tmp_path: Path) -> None:
    lines = history_of(fused)
    extra = (
        "fusion",
        "width",
        "local_width",
        "alone_accuracy",
        "average_accuracy",
        "ensemble_accuracy",
    )
    broken = {k: v for k, v in lines[0].items() if k not in extra} | {
        "accuracy": None,
        "status": "diverged",
    }
    study = with_history(fused, tmp_path, [broken, *lines[1:]])
    assert len(chart_data_of("fusion", study)["matchings"]) == len(lines) - 1
    assert "NaN" not in render(study)
    assert "fusion" in find_drawings(study)


def test_pictures_are_written_like_the_others(fused: tacit.Results) -> None:
    written = {path.name for path in write_figures(fused)}
    assert {
        f"{name}.{kind}" for name in ("fusion", "widths", "matching") for kind in ("svg", "png")
    } <= written


def test_a_drawing_has_a_panel_per_layer_and_lines_per_client() -> None:
    layers = [[np.array([0, 1]), np.array([1, 2, 3])], [np.array([0]), np.array([0])]]
    figure = draw_matching(layers, [4, 1], ["north", "south"])
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
    monkeypatch.setattr(sharing, "MOST_NEURONS", 17)
    for one in chart_data_of("fusion", fused)["matchings"]:
        (layer,) = one["layers"]
        assert layer["places"] is layer["order"] is None
        assert sum(layer["shares"]) == layer["width"]
        assert sum(k * count for k, count in enumerate(layer["shares"], 1)) == layer["local"] == 18
    places = [[list(range(9)), list(range(9))]]
    (panel,) = draw_matching(places, [9], ["a", "b"]).axes
    heights = [bar.get_height() for bar in panel.patches if isinstance(bar, Rectangle)]
    assert heights == [0, 9]
