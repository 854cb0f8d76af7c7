"""The data sets: five that come with scikit-learn, three that are downloaded or read from a folder, and your own.

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
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.errors import DataError
from tacit.core.events import OnEvent, ignore
from tacit.core.registry import Registered, import_object
from tacit.data.dataset import Dataset as Dataset
from tacit.data.dataset import to_labels
from tacit.data.download import Remote, cache_folder, fetch
from tacit.data.holdout import split_off_test
from tacit.data.readers import read_cifar_batches, read_idx, read_image_parquet


@dataclass(frozen=True)
class Source(Registered, family="datasets", home="tacit.data"):
    """Where a data set comes from. `load` reads it; `folder` is where the user keeps downloaded files."""

    @abstractmethod
    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset: ...


@dataclass(frozen=True)
class Bundled(Source):
    """A data set that comes with scikit-learn. A fifth of it, the same for every seed, is the test set."""

    loader: ClassVar[str]

    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset:
        import sklearn.datasets

        found = getattr(sklearn.datasets, self.loader)()
        made = split_off_test(
            self.name, found.data, found.target, [str(name) for name in found.target_names]
        )
        return replace(made, columns=tuple(map(str, found.feature_names)))


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

        found = load_digits()
        images = (found.images / 16)[:, None]
        return split_off_test(
            self.name, images, found.target, [str(k) for k in range(10)], standardise=False
        )


@dataclass(frozen=True)
class Diabetes(Bundled, name="diabetes"):
    """442 patients, 10 measurements; how far the disease went in a year, a number (Efron et al., 2004)."""

    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset:
        from sklearn.datasets import load_diabetes

        found = load_diabetes(scaled=False)
        return replace(
            split_off_test(self.name, found.data, found.target), columns=tuple(found.feature_names)
        )


@dataclass(frozen=True)
class Mnist(Source, name="mnist"):
    """70,000 handwritten digits of 28 x 28 pixels (LeCun, Cortes, Burges, 1998).

    Pixels are numbers from 0 to 1, or, `pixels: signed`, from -1 to 1.
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
        x, y, test_x, test_y = (
            read_idx(self._file(name, folder, on_event), 3 if "images" in name else 1)
            for name in self.checksums
        )
        images = [to_pixels(part[:, None], self.pixels) for part in (x, test_x)]
        return Dataset(
            self.name, images[0], to_labels(y), images[1], to_labels(test_y), self.labels
        )

    def _file(self, name: str, folder: Path | None, on_event: OnEvent) -> Path:
        remote = Remote(self.site + name, self.checksums[name])
        return find_or_fetch(folder, self.name, [name, name.removesuffix(".gz")], remote, on_event)


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
        *("t-shirt", "trousers", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "boot"),
    )


@dataclass(frozen=True)
class Cifar10(Source, name="cifar10"):
    """60,000 colour pictures of 32 x 32 pixels, 10 classes (Krizhevsky, 2009).

    Pixels are numbers from 0 to 1, or, `pixels: signed`, from -1 to 1.
    """

    pixels: Literal["unit", "signed"] = "unit"
    remote: ClassVar[Remote] = Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "md5:c58f30108f718f92721af3b95e74349a",
    )
    labels: ClassVar[tuple[str, ...]] = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )

    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset:
        (x, y), (test_x, test_y) = self._parquet(folder) or self._batches(folder, on_event)
        images = [to_pixels(part, self.pixels) for part in (x, test_x)]
        return Dataset(
            self.name, images[0], to_labels(y), images[1], to_labels(test_y), self.labels
        )

    def _parquet(self, folder: Path | None) -> Any:
        files = [find_file(folder, self.name, [f"{part}.parquet"]) for part in ("train", "test")]
        return [read_image_parquet(file) for file in files if file] if all(files) else None

    def _batches(self, folder: Path | None, on_event: OnEvent) -> Any:
        usual = ["cifar-10-batches-py", "cifar-10-python.tar.gz"]
        path = find_or_fetch(folder, self.name, usual, self.remote, on_event)
        parts = [f"data_batch_{k}" for k in range(1, 6)], ["test_batch"]
        return [read_cifar_batches(path, names) for names in parts]


@dataclass(frozen=True)
class FunctionSource(Source, name="function"):
    """Your own Python function, by import path: `package.module:function` returns a Dataset or (x, y) arrays.

    Where y holds floats, they are numbers to predict; anything else is classes.
    """

    path: str

    def load(self, folder: Path | None = None, on_event: OnEvent = ignore) -> Dataset:
        function = import_object(self.path)
        try:
            made = function()
        except Exception as error:  # whatever the user's code raises
            raise DataError(f"{self.path} failed: {type(error).__name__}: {error}") from error
        if isinstance(made, Dataset):
            return made
        try:
            x, y = (np.asarray(part) for part in made)
        except (TypeError, ValueError):
            raise DataError(
                f"{self.path}: expected a Dataset or a pair of arrays (x, y), got {type(made).__name__}"
            ) from None
        return split_off_test(self.path, x, y, standardise=False)


def data_folder(given: str | os.PathLike[str] | None = None) -> Path | None:
    """The user's folder of data files: the one given, or TACIT_DATA."""
    named = given or os.environ.get("TACIT_DATA")
    if named and not Path(named).is_dir():
        raise DataError(f"the data folder {named} does not exist; check --data or TACIT_DATA")
    return Path(named) if named else None


def find_file(folder: Path | None, dataset: str, names: Sequence[str]) -> Path | None:
    """The first of these files that lies in the folder or in its sub-folder for the data set."""
    places = [] if folder is None else [folder / dataset, folder]
    return next(
        (place / name for place in places for name in names if (place / name).exists()), None
    )


def find_or_fetch(
    folder: Path | None, dataset: str, names: Sequence[str], remote: Remote, on_event: OnEvent
) -> Path:
    """A file of the user's folder or, where it is not there, from the cache or the network."""
    if found := find_file(folder, dataset, names):
        return found
    try:
        return fetch(remote, cache_folder() / dataset, on_event)
    except DataError as error:
        if folder is None:
            raise
        raise DataError(
            f"neither {folder} nor {folder / dataset} holds {' or '.join(names)}, and {error}"
        ) from None


def to_pixels(images: NDArray[np.uint8], pixels: str = "unit") -> Tensor:
    """Bytes as floats from 0 to 1, or, signed, from -1 to 1.

    >>> to_pixels(np.array([0, 51, 255], dtype=np.uint8), "signed")
    tensor([-1.0000, -0.6000,  1.0000])
    """
    floats = torch.from_numpy(images.astype(np.float32)).div_(255)
    return floats.sub_(0.5).mul_(2) if pixels == "signed" else floats
