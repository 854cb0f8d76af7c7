"""Readers for the usual file formats. A broken file gets one line that names it."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import os
import pickle
import re
import struct
import tarfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError

IDX_UNSIGNED_BYTE = 0x08
SNIFFED_LINES = 1000
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "<NA>", "#N/A")  # gaps
Pictures = tuple[NDArray[np.uint8], NDArray[np.int64]]  # (n, channels, height, width), and labels


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turns any error while reading into a DataError that names the file."""
    if not os.path.exists(path):
        raise DataError(f"{path} does not exist; expected {kind}")
    if not path.is_file() and not path.is_dir():  # a pipe could keep us waiting for ever
        raise DataError(f"{path} is a device or a pipe; expected {kind}")
    try:
        yield
    except PermissionError:
        raise DataError(f"{path} cannot be opened; check its permissions") from None
    except UnicodeDecodeError:
        raise DataError(
            f"{path} is not in UTF-8; save it as CSV UTF-8, as spreadsheets call it"
        ) from None
    except DataError:
        raise
    except Exception as error:  # a damaged file can fail anywhere in the library that reads it
        lines = str(error).splitlines() or [type(error).__name__]
        raise DataError(f"{path} is not {kind}, or is damaged: {lines[0]}") from None


def read_idx(path: Path, wanted: int | None = None) -> NDArray[np.uint8]:
    """An IDX file of unsigned bytes, gzipped or not, of the wanted number of dimensions."""
    with reading(path, "an IDX file"):
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
        zeros, kind, dimensions = struct.unpack(">HBB", raw[:4])
        if zeros or kind != IDX_UNSIGNED_BYTE:
            raise ValueError("its first bytes are not those of an IDX file of unsigned bytes")
        if wanted is not None and dimensions != wanted:
            raise ValueError(f"it has {dimensions} dimensions, not {wanted}")
        start = 4 + 4 * dimensions
        shape = struct.unpack(f">{dimensions}I", raw[4:start])
        body = np.frombuffer(raw, np.uint8, offset=start)
        promised = np.prod(shape, dtype=np.int64)
        if body.size != promised:
            raise ValueError(f"its header promises {promised} values and {body.size} follow")
        return body.reshape(shape)


def read_cifar_batches(path: Path, names: list[str]) -> Pictures:
    """CIFAR's python batches of these names, in a folder or in the tar file that they come in."""
    with reading(path, "CIFAR-10 in python batches"):
        images: list[NDArray[np.uint8]] = []
        labels: list[NDArray[np.int64]] = []
        for raw in _batch_files(path, names):
            batch = _ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
            images.append(np.asarray(batch[b"data"], np.uint8))
            labels.append(np.asarray(batch[b"labels"], np.int64))
        all_labels = np.concatenate(labels)
        return np.concatenate(images).reshape(len(all_labels), 3, 32, 32), all_labels


def read_image_parquet(path: Path) -> Pictures:
    """The images and labels of a parquet file as on the Hugging Face hub."""
    import pyarrow.parquet as pq
    from PIL import Image

    with reading(path, "a parquet file of images"):
        table = pq.read_table(path)
        columns = table.column_names
        image_columns = [name for name in ("img", "image") if name in columns]
        if not image_columns or "label" not in columns:
            names = ", ".join(columns)
            raise ValueError(f"expected the columns img (or image) and label, found {names}")
        encoded = table[image_columns[0]].combine_chunks().field("bytes").to_pylist()
        pictures = [Image.open(io.BytesIO(raw)) for raw in encoded]
        images = np.stack([np.asarray(picture) for picture in pictures])
        labels = table["label"].to_numpy().astype(np.int64)
    if images.ndim == 3:  # no channels: grey
        return images[:, None], labels
    return images.transpose(0, 3, 1, 2), labels


def read_table(path: Path, *, as_text: bool = False) -> Any:
    """A CSV or parquet file as a pandas table.

    `as_text` leaves a CSV's cells as they are written, such as 007.
    """
    import pandas as pd  # only here: comparing lists of people needs none of it

    cells: dict[str, Any] = {"keep_default_na": False, "na_values": list(MISSING)}
    if as_text:
        cells = {"keep_default_na": False, "na_values": [], "dtype": str}
    with reading(path, "a table"):
        if path.suffix in (".parquet", ".pq"):
            return pd.read_parquet(path)
        if path.suffix == ".tsv":
            return _read_csv(path, sep="\t", **cells)
        if path.suffix in (".csv", ".txt", ".gz"):
            return _read_csv(path, **_sniff_marks(path), **cells)
        raise ValueError(
            "expected a name that ends in .csv, .tsv or .parquet; save it as one of these"
        )


def repeated_names(path: Path) -> list[str]:
    """The names that a CSV file gives to several columns. pandas calls the second `a.1`."""
    if path.suffix not in (".csv", ".tsv", ".txt", ".gz"):
        return []
    separator = "\t" if path.suffix == ".tsv" else _sniff_marks(path)["sep"]
    header = next(csv.reader(_first_lines(path), delimiter=separator), [])
    counts = Counter(header)
    return [name for name, count in counts.items() if name and count > 1]


def _read_csv(path: Path, **options: Any) -> Any:
    """A CSV whose rows are no longer than its header: pandas would shift all columns by one."""
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            return pd.read_csv(path, index_col=False, **options)
        except pd.errors.ParserWarning:
            raise DataError(
                f"{path}: its rows have more cells than its header; "
                "name all columns, or take out the separators at the ends of the rows"
            ) from None


def _sniff_marks(path: Path) -> dict[str, Any]:
    """What separates the cells of a CSV file and, if semicolons do, its decimals."""
    lines = _first_lines(path)
    head = lines[0] if lines else ""
    commas = head.count(",")
    semicolons = head.count(";")
    if head.count("\t") > max(commas, semicolons):
        return {"sep": "\t"}
    if semicolons <= commas:
        return {"sep": ","}
    cells: list[str] = []
    for line in lines[1:]:
        cells += [cell.strip(' "\n') for cell in line.split(";")]
    decimal_commas = sum(re.fullmatch(r"[-+]?\d+,\d+", cell) is not None for cell in cells)
    decimal_points = sum(re.fullmatch(r"[-+]?\d+\.\d+", cell) is not None for cell in cells)
    return {"sep": ";", "decimal": "," if decimal_commas > decimal_points else "."}


def _first_lines(path: Path) -> list[str]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", errors="replace") as file:
        return list(itertools.islice(file, SNIFFED_LINES))


class _ArraysOnly(pickle.Unpickler):
    """Reads arrays and plain values from a pickle, such as CIFAR's batches, and runs nothing."""

    allowed: ClassVar = {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
    rebuilders: ClassVar = {
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self.rebuilders:
            return super().find_class("numpy._core.multiarray", name)
        if (module, name) in self.allowed:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no array needs")


def _batch_files(path: Path, names: list[str]) -> Iterator[bytes]:
    if path.is_dir():
        for name in names:
            yield (path / name).read_bytes()
        return
    with tarfile.open(path) as tar:
        members = {Path(member.name).name: member for member in tar.getmembers()}
        for name in names:
            file = tar.extractfile(members[name])
            if file is None:
                raise ValueError(f"{name} in it is not a file")
            yield file.read()
