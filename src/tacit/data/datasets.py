"""The data sets: five of scikit-learn, three that are downloaded or read from a folder, your own.

>>> data = Source.build("iris").load()
>>> data.x.shape, data.test_x.shape, data.classes
(torch.Size([120, 4]), torch.Size([30, 4]), 3)
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.errors import DataError, shown
from tacit.core.events import OnEvent, ignore
from tacit.core.import_paths import import_object
from tacit.core.registry import Registered
from tacit.data.dataset import Dataset as Dataset
from tacit.data.dataset import to_labels
from tacit.data.download import Remote, cache_folder, fetch
from tacit.data.holdout import split_off_test
from tacit.data.own_frames import recall_pair
from tacit.data.readers import Pictures, read_cifar_batches, read_idx, read_image_parquet

USUAL_TEST = "usual test"  # a share of the rows, or the test set that the data come with


@dataclass(frozen=True)
class Source(Registered, family="datasets", home="tacit.data"):
    """Where a data set comes from.

    `load` reads it; `folder` is where the user keeps downloaded files.
    """

    @property
    def tested_on(self) -> str:
        """Which samples it tests on, in short."""
        return USUAL_TEST

    @abstractmethod
    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset: ...


@dataclass(frozen=True)
class Bundled(Source):
    """A data set that comes with scikit-learn.

    A fifth of it, the same for every seed, is the test set.
    """

    loader: ClassVar[str]

    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset:
        import sklearn.datasets

        bunch = getattr(sklearn.datasets, self.loader)()
        labels = [str(name) for name in bunch.target_names]
        dataset = split_off_test(self.name, bunch.data, bunch.target, labels)
        columns = tuple(str(name) for name in bunch.feature_names)
        return replace(dataset, columns=columns)


@dataclass(frozen=True)
class Iris(Bundled, name="iris"):
    """150 flowers, 4 measurements, 3 species (Fisher, 1936)."""

    loader: ClassVar[str] = "load_iris"


@dataclass(frozen=True)
class BreastCancer(Bundled, name="breast_cancer"):
    """569 biopsies, 30 measurements, benign or malignant (Wolberg, Street, Mangasarian, 1995)."""

    loader: ClassVar[str] = "load_breast_cancer"


@dataclass(frozen=True)
class Wine(Bundled, name="wine"):
    """178 wines, 13 measurements, 3 growers (Forina et al., 1988)."""

    loader: ClassVar[str] = "load_wine"


@dataclass(frozen=True)
class Digits(Bundled, name="digits"):
    """1,797 handwritten digits of 8 x 8 pixels (Alpaydin, Kaynak, 1998)."""

    loader: ClassVar[str] = "load_digits"

    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset:
        from sklearn.datasets import load_digits

        bunch = load_digits()
        images = (bunch.images / 16)[:, None]
        labels = [str(digit) for digit in range(10)]
        return split_off_test(self.name, images, bunch.target, labels, standardise=False)


@dataclass(frozen=True)
class Diabetes(Bundled, name="diabetes"):
    """442 patients, 10 measurements; to predict: how far the disease progressed in a year, a number
    (Efron et al., 2004)."""

    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset:
        from sklearn.datasets import load_diabetes

        bunch = load_diabetes(scaled=False)
        dataset = split_off_test(self.name, bunch.data, bunch.target)
        return replace(dataset, columns=tuple(bunch.feature_names))


@dataclass(frozen=True)
class Mnist(Source, name="mnist"):
    """70,000 handwritten digits of 28 x 28 pixels (LeCun, Cortes, Burges, 1998).

    Pixels are numbers from 0 to 1, or, with `pixels: signed`, from -1 to 1.
    """

    pixels: Literal["unit", "signed"] = "unit"
    site: ClassVar[str] = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    checksums: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
    }
    labels: ClassVar[tuple[str, ...]] = tuple(str(k) for k in range(10))

    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset:
        arrays: list[NDArray[np.uint8]] = []
        for name in self.checksums:
            path = self._file(name, folder, on_event)
            arrays.append(read_idx(path, 3 if "images" in name else 1))
        x, y, test_x, test_y = arrays
        return Dataset(
            self.name,
            to_pixels(x[:, None], self.pixels),
            to_labels(y),
            to_pixels(test_x[:, None], self.pixels),
            to_labels(test_y),
            self.labels,
        )

    def _file(self, name: str, folder: Path | None, on_event: OnEvent) -> Path:
        remote = Remote(self.site + name, self.checksums[name])
        names = [name, name.removesuffix(".gz")]
        return find_or_fetch(folder, self.name, names, remote, on_event)


@dataclass(frozen=True)
class FashionMnist(Mnist, name="fashion_mnist"):
    """70,000 pictures of clothes of 28 x 28 pixels (Xiao, Rasul, Vollgraf, 2017)."""

    site: ClassVar[str] = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
    checksums: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
    }
    labels: ClassVar[tuple[str, ...]] = (
        "t-shirt",
        "trousers",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "boot",
    )


@dataclass(frozen=True)
class Cifar10(Source, name="cifar10"):
    """60,000 colour pictures of 32 x 32 pixels, 10 classes (Krizhevsky, 2009).

    Pixels are numbers from 0 to 1, or, with `pixels: signed`, from -1 to 1.
    """

    pixels: Literal["unit", "signed"] = "unit"
    remote: ClassVar[Remote] = Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "md5:c58f30108f718f92721af3b95e74349a",
    )
    labels: ClassVar[tuple[str, ...]] = (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )

    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset:
        pictures = self._read_parquet(folder) or self._read_batches(folder, on_event)
        (x, y), (test_x, test_y) = pictures
        return Dataset(
            self.name,
            to_pixels(x, self.pixels),
            to_labels(y),
            to_pixels(test_x, self.pixels),
            to_labels(test_y),
            self.labels,
        )

    def _read_parquet(self, folder: Path | None) -> tuple[Pictures, Pictures] | None:
        """The training and the test set, where the folder holds both as parquet files."""
        train = find_file(folder, self.name, ["train.parquet"])
        test = find_file(folder, self.name, ["test.parquet"])
        if train is None or test is None:
            return None
        return read_image_parquet(train), read_image_parquet(test)

    def _read_batches(self, folder: Path | None, on_event: OnEvent) -> tuple[Pictures, Pictures]:
        """The training and the test set, from the file that the authors publish."""
        names = ["cifar-10-batches-py", "cifar-10-python.tar.gz"]
        path = find_or_fetch(folder, self.name, names, self.remote, on_event)
        train = read_cifar_batches(path, [f"data_batch_{number}" for number in range(1, 6)])
        test = read_cifar_batches(path, ["test_batch"])
        return train, test


@dataclass(frozen=True)
class FunctionSource(Source, name="function"):
    """Your own Python function, by import path: `package.module:function` returns a Dataset or
    (x, y) arrays.

    If y holds floats, they are numbers to predict; anything else is taken as classes.
    """

    path: str

    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset:
        function = import_object(self.path)
        if not callable(function):
            raise DataError(f"{self.path}: expected a function, got {shown(function)}")
        try:
            data = function()
        except Exception as error:  # whatever the user's code raises
            raise DataError(f"{self.path} failed: {type(error).__name__}: {error}") from error
        if isinstance(data, Dataset):
            return data
        try:
            x, y = (np.asarray(array) for array in data)
        except (TypeError, ValueError):
            wanted = "a Dataset or a pair of arrays (x, y)"
            raise DataError(f"{self.path}: expected {wanted}, got {type(data).__name__}") from None
        return split_off_test(self.path, x, y, standardise=False)


@dataclass(frozen=True)
class ArraysSource(Source, name="arrays"):
    """Your own arrays, given in Python as `dataset=(x, y)`, where samples have a shape, as pictures
    have. They are taken as they are.

    If y holds floats, they are numbers to predict; anything else is taken as classes.
    """

    path: str

    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset:
        x, y = recall_pair(self.path)
        return split_off_test("arrays", x, y, standardise=False)


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """The user's folder of data files: this one, or else the one that TACIT_DATA names."""
    name = folder or os.environ.get("TACIT_DATA")
    if not name:
        return None
    path = Path(name)
    if not path.is_dir():
        remedy = "check data, or the environment variable TACIT_DATA"
        raise DataError(f"the data folder {name} does not exist; {remedy}", parameters=("data",))
    return path


def find_file(folder: Path | None, dataset: str, names: Sequence[str]) -> Path | None:
    """The first of these files that lies in the folder or in its sub-folder for the data set."""
    if folder is None:
        return None
    for directory in (folder / dataset, folder):
        for name in names:
            if (directory / name).exists():
                return directory / name
    return None


def find_or_fetch(
    folder: Path | None, dataset: str, names: Sequence[str], remote: Remote, on_event: OnEvent
) -> Path:
    """A file of the user's folder or, where it is not there, from the cache or the network."""
    path = find_file(folder, dataset, names)
    if path is not None:
        return path
    try:
        return fetch(remote, cache_folder() / dataset, on_event)
    except DataError as error:
        if folder is None:
            raise
        files = " or ".join(names)
        raise DataError(
            f"neither {folder} nor {folder / dataset} holds {files}, and {error}",
            parameters=error.parameters,
        ) from None


def to_pixels(images: NDArray[np.uint8], pixels: str = "unit") -> Tensor:
    """Bytes as floats from 0 to 1, or, signed, from -1 to 1.

    >>> to_pixels(np.array([0, 51, 255], dtype=np.uint8), "signed")
    tensor([-1.0000, -0.6000,  1.0000])
    """
    floats = torch.from_numpy(images.astype(np.float32)).div_(255)
    if pixels == "signed":
        floats.sub_(0.5).mul_(2)
    return floats
