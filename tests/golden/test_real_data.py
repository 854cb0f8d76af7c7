"""Real MNIST and CIFAR-10, where TACIT_DATA names a folder that holds them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.data.datasets import Source, find_file
from tacit.data.readers import read_idx

FOLDER = Path(os.environ.get("TACIT_DATA") or "/nonexistent")
ROOT = Path(__file__).parents[2]


def needs(dataset: str, file: str) -> pytest.MarkDecorator:
    is_missing = find_file(FOLDER, dataset, [file]) is None
    return pytest.mark.skipif(is_missing, reason=f"TACIT_DATA names no folder with {file}")


@pytest.mark.data
@needs("mnist", "train-images-idx3-ubyte.gz")
def test_mnist_is_mnist_and_three_clients_learn_it(tmp_path: Path) -> None:
    """The MD5 of the uncompressed training file is the published one."""
    path = find_file(FOLDER, "mnist", ["train-images-idx3-ubyte.gz"])
    assert path
    images = read_idx(path)
    header = np.array([0x803, 60000, 28, 28], ">u4").tobytes()
    assert hashlib.md5(header + images.tobytes()).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
    study = tacit.Study.from_file(ROOT / "studies" / "mnist_iid.yaml")
    results = tacit.run(study, tmp_path / "mnist")
    assert results.summary()["accuracy"][0] >= 0.98


@pytest.mark.data
@needs("mnist", "train-images-idx3-ubyte.gz")
def test_ten_networks_that_learnt_mnist_apart_become_one(tmp_path: Path) -> None:
    study = tacit.Study.from_file(ROOT / "studies" / "matching_mnist.yaml", ["seed=0"])
    results = tacit.run(study, tmp_path / "matching")
    scores = results.table()["label_dirichlet"]
    alone = scores["local networks"]
    assert scores["naive average"] < alone < scores["ensemble"]
    weighted = scores["pfnm(class_weights=True)"]
    assert weighted > scores["pfnm(class_weights=False)"] > alone + 0.1
    assert scores["spahm"] > alone + 0.1
    assert weighted > 0.95


@pytest.mark.data
@needs("cifar10", "train.parquet")
def test_cifar_comes_whole_from_the_hubs_parquet_files() -> None:
    data = Source.build("cifar10").load(FOLDER)
    assert data.x.shape == (50000, 3, 32, 32)
    assert data.y.bincount().tolist() == [5000] * 10
    assert data.test_y.bincount().tolist() == [1000] * 10
