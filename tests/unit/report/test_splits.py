"""Drawings of data show what the training would see."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.core.errors import StudyError
from tacit.data.partition import divide
from tacit.report.pictures import Picture
from tacit.report.splits import Splits, _examples
from tacit.study.divisions import DRAWN
from tacit.study.study import Study

SETTINGS = {
    "dataset": "digits",
    "clients": 3,
    "split": ["iid", {"name": "feature_noise", "sigma": 0.6}],
    "rounds": 1,
}


def test_counts_are_those_of_the_division_that_is_trained_on(tmp_path: Path) -> None:
    split = {"name": "labels_per_party", "labels": [2, 3, 5]}
    study = Study("drawn", **{**SETTINGS, "split": split, "seed": 4})
    run = study.runs()[0]
    y = run.dataset.load().y.numpy()
    partition = divide(y, run.split, 3, 4, local_test=run.local_test)
    portrait = Splits(study).portraits[0]
    for shards, counts in ((partition.train, portrait.train), (partition.test, portrait.test)):
        for shard, row in zip(shards, counts, strict=True):
            assert np.bincount(y[shard], minlength=10).tolist() == list(row)
    results = tacit.run(study, tmp_path / "a")
    assert results.portraits == [portrait]
    trained = [client["samples"] for client in results.records[0]["clients"]]
    assert trained == [sum(row) for row in portrait.train]


def test_noise_levels_are_shown(tmp_path: Path) -> None:
    splits = Splits(Study("noisy", **SETTINGS))
    assert splits.portraits[1].noise == pytest.approx((0.2, 0.4, 0.6))
    files = splits.write(tmp_path)
    names = {path.name for path in files}
    assert {"splits.csv", "splits.svg", "splits.png"} <= names
    assert {"examples-iid.png", "examples-feature_noise.svg"} <= names
    frame = pd.read_csv(tmp_path / "splits.csv")
    digits = Study("a").runs()[0].dataset.load()
    assert frame["train"].sum() + frame["local_test"].sum() == 2 * len(digits.y)
    assert "noise 0.6" in (tmp_path / "examples-feature_noise.svg").read_text()


def test_examples_are_noisier_for_later_clients() -> None:
    division = Splits(Study("noisy", **SETTINGS)).divisions[1]
    noise = []
    for shard, examples in zip(division.partition.train, _examples(division), strict=True):
        clean = division.dataset.x[shard[:6]].numpy()
        noise.append(float(np.abs(examples - clean).mean()))
    assert noise == sorted(noise)
    assert noise[2] > 2 * noise[0] > 0


def test_columns_are_for_tables(tmp_path: Path) -> None:
    wine = Splits({"dataset": "wine", "model": "linear"})
    drawn = wine.columns(3, overlap=0.5).save(tmp_path / "columns.svg").read_text()
    assert "columns per party" in drawn
    assert "people per party, of 142" in drawn
    with pytest.raises(StudyError, match="digits holds pictures, which have no columns"):
        Splits({"dataset": "digits"}).columns(2)


def test_of_very_many_clients_the_first_are_drawn(tmp_path: Path) -> None:
    portrait = Splits({"dataset": "digits", "clients": DRAWN + 20}).portraits[0]
    assert (len(portrait.clients), portrait.left_out) == (DRAWN, 20)
    assert len(json.dumps(portrait.to_dict())) < 20_000


def test_a_picture_is_saved_by_its_name_or_refused(tmp_path: Path) -> None:
    picture = Splits({"dataset": "iris", "model": "linear"}).plot()
    assert isinstance(picture, Picture)
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")):
        assert picture.save(tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(StudyError, match=r"expected a name that ends in \.svg, \.png or \.pdf"):
        picture.save(tmp_path / "a.gif")
    assert not (tmp_path / "a.gif").exists()


def test_results_plot_what_they_have(tmp_path: Path) -> None:
    results = tacit.run({"dataset": "iris", "model": "linear", "rounds": 2}, tmp_path / "a")
    for kind in (None, "accuracy", "loss", "cost", "clients", "comparison", "splits"):
        assert results.plot(kind)._repr_png_().startswith(b"\x89PNG")
    reason = "there is no picture 'acuracy' of these results; did you mean accuracy"
    with pytest.raises(StudyError, match=reason):
        results.plot("acuracy")
