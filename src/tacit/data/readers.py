"""Readers for the usual file formats. A broken file gets one line that names it."""

from __future__ import annotations

import gzip
import io
import pickle
import re
import struct
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import DataError

IDX_UNSIGNED_BYTE = 0x08
SNIFFED_LINES = 1000
MISSING = (
    "",
    "NA",
    "N/A",
    "n/a",
    "NaN",
    "nan",
    "NULL",
    "null",
    "<NA>",
    "#N/A",
)  # what stands for a gap


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turns what may go wrong while reading into a DataError that names the file."""
    if not path.exists():
        raise DataError(f"{path} does not exist; expected {kind}")
    try:
        yield
    except PermissionError:
        raise DataError(f"{path} may not be read; check its permissions") from None
    except UnicodeDecodeError:
        raise DataError(
            f"{path} is not in UTF-8; save it as CSV UTF-8, as spreadsheets call it"
        ) from None
    except DataError:
        raise
    except Exception as error:  # a damaged file can fail anywhere in the library that reads it
        detail = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path} is not {kind}, or is damaged: {detail}") from None


def read_idx(path: Path, wanted: int | None = None) -> NDArray[np.uint8]:
    """An IDX file of unsigned bytes, gzipped or not, of the wanted number of dimensions."""
    with reading(path, "an IDX file"):
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        zeros, kind, dimensions = struct.unpack(">HBB", raw[:4])
        if zeros or kind != IDX_UNSIGNED_BYTE:
            raise ValueError("its first bytes are not those of an IDX file of unsigned bytes")
        if wanted is not None and dimensions != wanted:
            raise ValueError(f"it has {dimensions} dimensions, not {wanted}")
        shape = struct.unpack(f">{dimensions}I", raw[4 : 4 + 4 * dimensions])
        body = np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions)
        if body.size != np.prod(shape, dtype=np.int64):
            raise ValueError(
                f"its header promises {np.prod(shape, dtype=np.int64)} values and {body.size} follow"
            )
        return body.reshape(shape)


def read_cifar_batches(path: Path, names: list[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (n, 3, 32, 32) and labels of CIFAR's python batches, in a folder or in the tar file they come in."""
    with reading(path, "CIFAR-10 in python batches"):
        batches = [
            _ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
            for raw in _batch_files(path, names)
        ]
        images = np.concatenate([np.asarray(batch[b"data"], np.uint8) for batch in batches])
        labels = np.concatenate([np.asarray(batch[b"labels"], np.int64) for batch in batches])
        return images.reshape(len(labels), 3, 32, 32), labels


def read_image_parquet(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (n, channels, height, width) and labels of a parquet file as on the Hugging Face hub."""
    import pyarrow.parquet as pq
    from PIL import Image

    with reading(path, "a parquet file of images"):
        table = pq.read_table(path)
        image = next((name for name in ("img", "image") if name in table.column_names), None)
        if image is None or "label" not in table.column_names:
            raise ValueError(
                f"expected the columns img (or image) and label, found {', '.join(table.column_names)}"
            )
        encoded = table[image].combine_chunks().field("bytes").to_pylist()
        images = np.stack([np.asarray(Image.open(io.BytesIO(raw))) for raw in encoded])
        labels = table["label"].to_numpy().astype(np.int64)
    return (images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)), labels


def read_table(path: Path, *, as_text: bool = False) -> Any:
    """A CSV or parquet file as a pandas table; `as_text` leaves a CSV's cells as they are written, such as 007."""
    import pandas as pd  # only here: comparing lists of people needs none of it

    gaps: Any = {"keep_default_na": False, "na_values": [] if as_text else list(MISSING)}
    gaps |= {"dtype": str} if as_text else {}
    with reading(path, "a table"):
        if path.suffix in (".parquet", ".pq"):
            return pd.read_parquet(path)
        if path.suffix == ".tsv":
            return pd.read_csv(path, sep="\t", **gaps)
        if path.suffix in (".csv", ".txt", ".gz"):
            return pd.read_csv(path, **_marks(path), **gaps)
        raise ValueError(
            "expected a name that ends in .csv, .tsv or .parquet; save it as one of these"
        )


def _marks(path: Path) -> dict[str, Any]:
    """What separates the cells of a CSV file, commas or semicolons, and where these do, the whole from the decimals."""
    stated: Any = {"mode": "rt", "encoding": "utf-8-sig", "errors": "replace"}
    with gzip.open(path, **stated) if path.suffix == ".gz" else path.open(**stated) as file:
        lines = [line for _, line in zip(range(SNIFFED_LINES), file, strict=False)]
    head = lines[0] if lines else ""
    if head.count("\t") > max(head.count(","), head.count(";")):
        return {"sep": "\t"}
    if head.count(";") <= head.count(","):
        return {"sep": ","}
    cells = [cell.strip(' "\n') for line in lines[1:] for cell in line.split(";")]
    commas, points = (
        sum(bool(re.fullmatch(rf"[-+]?\d+{mark}\d+", cell)) for cell in cells)
        for mark in (",", r"\.")
    )
    return {"sep": ";", "decimal": "," if commas > points else "."}


class _ArraysOnly(pickle.Unpickler):
    """CIFAR's python batches are pickles; this reads arrays and plain values from one, and runs nothing."""

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
        yield from ((path / name).read_bytes() for name in names)
        return
    with tarfile.open(path) as tar:
        members = {Path(member.name).name: member for member in tar.getmembers()}
        for name in names:
            file = tar.extractfile(members[name])
            if file is None:
                raise ValueError(f"{name} in it is no file")
            yield file.read()
