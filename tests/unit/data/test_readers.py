from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import os
import pickle
import struct
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from tacit.core.errors import DataError
from tacit.core.events import Downloading
from tacit.data.datasets import Cifar10, Dataset, Source, data_folder, split_off_test
from tacit.data.download import Remote, fetch
from tacit.data.readers import read_cifar_batches, read_idx, read_image_parquet, read_table


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(folder: Path) -> None:
    for subset, count in (("train", 40), ("t10k", 20)):
        images = np.random.default_rng(0).integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        (folder / f"{subset}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images)))
        (folder / f"{subset}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))


def write_cifar_batches(folder: Path) -> np.ndarray:
    images = np.random.default_rng(0).integers(0, 256, (4, 3072), dtype=np.uint8)
    for name in [f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]:
        batch = {b"data": images, b"labels": [0, 1, 2, 9], b"batch_label": b"x"}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return images.reshape(4, 3, 32, 32)


def test_idx_files_are_read_gzipped_and_plain(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "a").write_bytes(idx_bytes(array))
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx_bytes(array)))
    assert np.array_equal(read_idx(tmp_path / "a"), array)
    assert np.array_equal(read_idx(tmp_path / "a.gz"), array)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a", b"", "damaged"),
        ("a", b"PK\x03\x04 something else", "first bytes are not those of an IDX file"),
        ("a", idx_bytes(np.zeros((3, 3), np.uint8))[:-1], "promises 9 values and 8 follow"),
        ("a.gz", gzip.compress(idx_bytes(np.zeros(99, np.uint8)), mtime=0)[:-9], "damaged"),
        ("a.gz", b"not gzip", "damaged"),
    ],
    ids=["empty", "other format", "too short", "gzip cut off", "no gzip"],
)
def test_a_damaged_idx_file_is_named_in_one_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mnist_is_read_from_the_users_folder(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    write_mnist(tmp_path / "mnist")
    data = Source.build("mnist").load(tmp_path)
    assert data.x.shape == (40, 1, 28, 28)
    assert data.x.dtype == torch.float32
    assert 0 <= data.x.min() < data.x.max() <= 1
    assert data.test_y.tolist() == [k % 10 for k in range(20)]


def test_cifar_batches_are_read_from_a_folder_and_from_the_tar(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    images = write_cifar_batches(folder)
    data = Cifar10().load(tmp_path)
    assert data.x.shape == (20, 3, 32, 32)
    torch.testing.assert_close(data.test_x, torch.from_numpy(images / np.float32(255)))
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
        tar.add(folder, arcname="cifar-10-batches-py")
    again, labels = read_cifar_batches(tmp_path / "x.tar.gz", ["test_batch"])
    assert np.array_equal(again, images)
    assert labels.tolist() == [0, 1, 2, 9]


def test_a_cifar_batch_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return print, ("ran",)

    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": Evil()}))
    with pytest.raises(DataError, match=r"builtins.print, which no array needs"):
        read_cifar_batches(tmp_path, ["test_batch"])


def test_hub_parquet_is_read_whatever_its_image_column_is_called(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    encoded = []
    for picture in pixels:
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, format="PNG")
        encoded.append({"bytes": buffer.getvalue(), "path": None})
    for column in ("img", "image"):
        pd.DataFrame({column: encoded, "label": [2, 0, 1]}).to_parquet(tmp_path / "x.parquet")
        images, labels = read_image_parquet(tmp_path / "x.parquet")
        assert np.array_equal(images, pixels.transpose(0, 3, 1, 2))
        assert labels.tolist() == [2, 0, 1]


def test_a_parquet_file_without_pictures_is_refused(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "x.parquet")
    message = r"expected the columns img \(or image\) and label, found a"
    with pytest.raises(DataError, match=message):
        read_image_parquet(tmp_path / "x.parquet")
    (tmp_path / "y.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(DataError, match=r"y\.parquet is not a parquet file"):
        read_image_parquet(tmp_path / "y.parquet")


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_a_table_becomes_a_standardised_data_set(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "a": rng.normal(5, 3, 100),
            "b": rng.integers(0, 9, 100),
            "kind": ["x", "y"] * 50,
            "id": range(100),
        }
    )
    path = tmp_path / f"t.{suffix}"
    if suffix == "parquet":
        table.to_parquet(path, index=False)
    else:
        table.to_csv(path, sep="\t" if suffix == "tsv" else ",", index=False)
    spec = {"name": "table", "path": str(path), "target": "kind", "drop": ["id"]}
    data = Source.build(spec).load()
    assert data.x.shape == (80, 2)
    assert data.labels == ("x", "y")
    torch.testing.assert_close(data.x.mean(0), torch.zeros(2), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("a,y\n1,0\n2,1\n", {"target": "z"}, "has no column 'z'"),
        ("age,y\n1,0\n2,1\n", {"target": "y", "drop": ["aeg"]}, "did you mean age?"),
        ("a,y\n1,0\n2,0\n", {"target": "y"}, "expected two classes or more"),
        ("a,y\n1,0\n2,0\n3,0\n4,0\n5,1\n", {"target": "y"}, "class 1 has one sample and needs two"),
        ("a,y\n1,1\n2,2\n3,3\n", {"target": "y"}, "if it is a measurement, set task: regression"),
        ("a,y\ninf,0\n2,1\n3,0\n4,1\n", {"target": "y"}, "infinite values in a"),
        ("a,y\n1,0\n2,1\n3,0\n4,1\n", {"target": "y", "test_share": 1}, "expected a test share"),
        ("a,y\n", {"target": "y"}, "holds no rows"),
        (",a,y\n0,1,0\n1,2,1\n", {"target": "y"}, r"drop: \['Unnamed: 0'\]"),
        ("y\n1\n2\n", {"target": "y"}, "no column is left"),
        ("", {"target": "y"}, "is not a table, or is damaged"),
        ('a,b\n"1,2\n3', {"target": "b"}, "missing values|damaged"),
        ("a,y\n1,0,7\n2,1,8\n", {"target": "y"}, "its rows have more cells than its header"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(
    tmp_path: Path, content: str, settings: dict[str, object], message: str
) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        Source.build({"name": "table", "path": str(tmp_path / "t.csv"), **settings}).load()
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.csv does not exist"):
        Source.build({"name": "table", "path": "nowhere.csv", "target": "y"}).load()
    message = "does not exist; check data, or the environment variable TACIT_DATA"
    with pytest.raises(DataError, match=message) as caught:
        data_folder(tmp_path / "nowhere")
    assert caught.value.parameters == ("data",)


def test_a_label_out_of_range_is_refused() -> None:
    x = torch.zeros(3, 2)
    y = torch.tensor([0, 1, 2])
    with pytest.raises(DataError, match="expected training labels from 0 to 1, got 0 to 2"):
        Dataset("d", x, y, x, y, ("a", "b"))
    with pytest.raises(DataError, match="as many labels as samples"):
        Dataset("d", x, y[:2], x, y, ("a", "b"))
    with pytest.raises(DataError, match="missing or infinite"):
        Dataset("d", x / 0, y, x, y, ("a", "b", "c"))
    with pytest.raises(DataError, match="expected float features of one shape"):
        Dataset("d", x, y, torch.zeros(3, 4), y, ("a", "b", "c"))


def test_the_test_set_is_stratified_and_the_same_each_time() -> None:
    y = np.repeat([0, 1], [90, 10])
    x = np.arange(100.0)[:, None]
    first, again = (split_off_test("d", x, y, ["a", "b"]) for _ in range(2))
    assert first.test_y.bincount().tolist() == [18, 2]
    assert torch.equal(first.test_x, again.test_x)


@pytest.mark.parametrize("name", ["digits", "iris", "breast_cancer", "wine"])
def test_bundled_data_sets_load_without_a_download(name: str) -> None:
    data = Source.build(name).load()
    assert len(data.x) > 100
    assert data.classes == len(data.y.unique())


def test_diabetes_is_a_regression_that_comes_along() -> None:
    data = Source.build("diabetes").load()
    assert (data.task, data.outputs, data.labels) == ("regression", 1, ())
    assert len(data.y) + len(data.test_y) == 442
    lowest = (data.y.min() * data.target_spread + data.target_centre).item()
    assert 25 <= lowest < 26  # as in the authors' file


def test_a_python_function_with_float_outcomes_gives_a_regression() -> None:
    data = Source.build({"name": "function", "path": "own_code:make_numbers"}).load()
    assert data.task == "regression"
    assert abs(data.y.mean()) < 1e-6
    with pytest.raises(DataError, match="the outcomes hold missing or infinite numbers"):
        split_off_test("mine", np.zeros((9, 2)), np.full(9, np.nan))
    with pytest.raises(DataError, match="all test outcomes are equal"):
        split_off_test("mine", np.zeros((9, 2)), np.ones(9))


def test_a_python_function_gives_a_data_set() -> None:
    data = Source.build({"name": "function", "path": "own_code:make_data"}).load()
    assert data.classes == 2
    with pytest.raises(DataError, match="expected a Dataset or a pair of arrays"):
        Source.build({"name": "function", "path": "own_code:make_nothing"}).load()
    with pytest.raises(DataError, match="own_code:needy failed: TypeError"):
        Source.build({"name": "function", "path": "own_code:needy"}).load()


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.zeros((50, 3)), np.arange(40) % 2),
        (np.zeros((30, 3)), np.arange(40) % 2),
        (np.zeros((40, 3)), (np.arange(40) % 2)[:, None]),
        (np.zeros(40), np.arange(40) % 2),
        (np.full((40, 2), "a"), np.arange(40) % 2),
    ],
    ids=["more samples", "more labels", "labels as a column", "flat samples", "text"],
)
def test_arrays_that_do_not_fit_together_are_refused(x: np.ndarray, y: np.ndarray) -> None:
    with pytest.raises(DataError, match="expected numbers, one row per sample, and as many labels"):
        split_off_test("mine", x, y)


def test_a_damaged_archive_or_batch_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"nothing")
    (tmp_path / "test_batch").write_bytes(pickle.dumps([1]))
    for path in (tmp_path / "x.tar.gz", tmp_path):
        with pytest.raises(DataError, match="is not CIFAR-10 in python batches, or is damaged"):
            read_cifar_batches(path, ["test_batch"])
    pd.DataFrame({"img": [1], "label": [0]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataError, match="is not a parquet file of images"):
        read_image_parquet(tmp_path / "x.parquet")
    (tmp_path / "scalar").write_bytes(struct.pack(">HBB", 0, 8, 0) + b"1")
    with pytest.raises(DataError, match="has 0 dimensions, not 3"):
        read_idx(tmp_path / "scalar", 3)


def test_a_folder_without_the_files_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Remote("http://127.0.0.1:9/cifar.tar.gz", "md5:" + "0" * 32)
    monkeypatch.setattr(Cifar10, "remote", remote)
    monkeypatch.setenv("TACIT_CACHE", str(tmp_path / "cache"))
    message = r"neither .* nor .*cifar10 holds cifar-10-batches-py or .* and cannot download"
    with pytest.raises(DataError, match=message) as caught:
        Cifar10().load(tmp_path)
    assert caught.value.parameters == ("data",)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """A real web server on loopback with one file of 300 kB."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "file.bin").write_bytes(b"abc" * 100_000)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, directory=str(folder), **kwargs)  # type: ignore[arg-type, misc]

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_download_is_checked_cached_and_reported(site: str, tmp_path: Path) -> None:
    remote = Remote(f"{site}/file.bin", "md5:" + hashlib.md5(b"abc" * 100_000).hexdigest())
    events: list[Downloading] = []
    path = fetch(remote, tmp_path / "cache", events.append)  # type: ignore[arg-type]
    assert path.read_bytes() == b"abc" * 100_000
    assert events[-1].done == events[-1].total == 300_000
    (tmp_path / "site" / "file.bin").unlink()
    assert fetch(remote, tmp_path / "cache") == path


def test_a_wrong_checksum_leaves_nothing_behind(site: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="wrong checksum"):
        fetch(Remote(f"{site}/file.bin", "md5:" + "0" * 32), tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*"))


def test_a_download_that_was_cut_off_is_fetched_again(site: str, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "file.bin").write_bytes(b"abc" * 10)
    remote = Remote(f"{site}/file.bin", "md5:" + hashlib.md5(b"abc" * 100_000).hexdigest())
    assert fetch(remote, tmp_path / "cache").stat().st_size == 300_000


def test_a_site_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot download http://127.0.0.1:9/x .*TACIT_DATA"):
        fetch(Remote("http://127.0.0.1:9/x", "md5:0"), tmp_path)
    with pytest.raises(DataError, match="cannot download"):
        fetch(Remote("http://127.0.0.1:9/y", "md5:" + "0" * 32), tmp_path)


def test_a_pipe_in_the_place_of_a_table_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"t\.csv is a device or a pipe; expected a table"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("/dev/zero", "/dev/zero is a device or a pipe; expected a table"),
        ("~nobody-of-this-name/t.csv", "nobody here has that home folder"),
        ("x" * 5000 + ".csv", "expected a table|xxx"),
    ],
)
def test_a_table_at_a_strange_place_is_refused(path: str, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        Source.build({"name": "table", "path": path, "target": "y"}).load()
