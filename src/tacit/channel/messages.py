"""Messages of named NumPy arrays, tables and plain values, of any size and without pickle.

A message is a mapping from names to arrays, to pandas tables, or to what JSON can hold. It travels
as one stream of bytes, cut into pieces: the length of a header, the header in JSON, then the bytes
of all arrays in C order, little-endian. Nothing in it is code, and what comes is checked before
anything is made room for.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.channel.frames import Buffer, GarbageError
from tacit.channel.table_columns import columns_of, is_table, table_of
from tacit.core.errors import DataError

Contents = Mapping[str, Any]
Array = NDArray[Any]
PIECE = 1 << 20  # bytes in which a message is cut
LARGEST_HEADER = 1 << 20  # bytes
LARGEST_MESSAGE = 1 << 30  # bytes that are taken unless the program expects more
LARGEST_ARRAY = 1 << 48  # bytes, also of what an axis of length 0 leaves empty
MOST_DIMENSIONS = 32
LENGTH = struct.Struct("!I")
NUMBERS = "?bBhHiIqQefdFD"
TIMES = tuple(
    f"{kind}8[{unit}]" for kind in "Mm" for unit in ("D", "h", "m", "s", "ms", "us", "ns")
)
DTYPES = {np.dtype(code).newbyteorder("<").str: np.dtype(code) for code in (*NUMBERS, *TIMES)}


def pieces(message: Contents) -> Iterator[Buffer]:
    """The bytes of a message, in the pieces in which it is sent; large arrays are not copied."""
    arrays, header = _header(message)
    together = bytearray(LENGTH.pack(len(header)) + header)
    for array in arrays:
        raw = _bytes(array)
        if len(together) + len(raw) <= PIECE:
            together += raw
            continue
        yield bytes(together)
        together = bytearray()
        for start in range(0, len(raw), PIECE):
            yield raw[start : start + PIECE]
    if together:
        yield bytes(together)


def _bytes(array: Array) -> memoryview:
    raw: Any = array.reshape(-1).view(np.uint8)
    return memoryview(raw)


def encode(message: Contents) -> bytes:
    """A message as one piece."""
    return b"".join(pieces(message))


def decode(raw: Buffer, largest: int = LARGEST_MESSAGE) -> dict[str, Any]:
    """The message in these bytes; a GarbageError where they are none."""
    assembly = Assembly(largest)
    assembly.add(raw)
    if not assembly.complete:
        raise GarbageError("sent a message that ends too early")
    return assembly.message()


def _header(message: Contents) -> tuple[list[Array], bytes]:
    """The arrays of a message, as they are sent, and the header that describes all of it."""
    arrays: list[Array] = []
    entries: list[list[Any]] = []
    tables: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for name, value in message.items():
        if isinstance(value, np.ndarray | np.generic):
            _add(name, np.asanyarray(value), arrays, entries)
        elif is_table(value):
            tables[name], columns = columns_of(value)
            for part, column in columns.items():
                _add(f"{name}/{part}", column, arrays, entries)
        else:
            values[name] = value
    try:
        text = json.dumps({"arrays": entries, "tables": tables, "values": values})
    except (TypeError, ValueError, RecursionError):
        raise DataError(
            "a message holds arrays, tables, numbers, text, and lists or mappings of these; "
            f"got {_strange(values)}"
        ) from None
    header = text.encode()
    if len(header) > LARGEST_HEADER:
        raise DataError(
            f"a message's names and values may have {LARGEST_HEADER} bytes, these have "
            f"{len(header)}; put them into arrays, or into several messages"
        )
    return arrays, header


def _add(name: str, array: Array, arrays: list[Array], entries: list[list[Any]]) -> None:
    """Notes an array in C order and little-endian, which most are already."""
    if isinstance(array, np.ma.MaskedArray):
        raise DataError(f"{name}: what a masked array hides would be sent; fill its gaps first")
    dtype = array.dtype.newbyteorder("<")
    if dtype.str not in DTYPES:
        raise DataError(
            f"{name}: arrays of {array.dtype} cannot be sent; expected numbers or times"
        )
    arrays.append(np.asarray(array, dtype, order="C"))
    entries.append([name, dtype.str, list(array.shape)])


def _strange(values: Mapping[str, Any]) -> str:
    """What cannot be sent, by its type alone: the value may be secret."""
    for name, value in values.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            return f"{name} of type {type(value).__name__}"
    return "a name that is no text"


@dataclass(frozen=True)
class ArrayEntry:
    """An array that is to come."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @classmethod
    def parse(cls, raw: Any) -> ArrayEntry:
        if not isinstance(raw, list) or len(raw) != 3:
            raise GarbageError("sent a message whose header cannot be read")
        name, code, shape = raw
        known = isinstance(name, str) and isinstance(code, str) and code in DTYPES
        if not known or not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS:
            raise GarbageError("sent a message with an array of unknown kind")
        if not all(type(length) is int and length >= 0 for length in shape):
            raise GarbageError("sent a message with an array of impossible shape")
        entry = cls(name, DTYPES[code], tuple(shape))
        if math.prod(max(1, length) for length in shape) * entry.dtype.itemsize >= LARGEST_ARRAY:
            raise GarbageError("sent a message with an array of impossible shape")
        return entry


class Assembly:
    """A message of which pieces come one after the other."""

    def __init__(self, largest: int = LARGEST_MESSAGE, *, is_hashed: bool = False) -> None:
        self.largest = largest
        self.is_hashed = is_hashed
        self.digest = hashlib.sha256()  # of all that came, if it is hashed
        self._start = bytearray()  # until the header is there
        self._header: dict[str, Any] | None = None
        self._entries: list[ArrayEntry] = []
        self._arrays: dict[str, Array] = {}
        self._target = memoryview(b"")  # what is left of the array that is being filled
        self._filled = 0  # arrays

    @property
    def complete(self) -> bool:
        return self._header is not None and self._filled == len(self._entries)

    def add(self, piece: Buffer) -> None:
        """The next bytes; a GarbageError where they cannot belong to a message."""
        rest = memoryview(piece)
        if self.is_hashed:
            self.digest.update(rest)
        if self._header is None:
            self._start += rest
            if not self._has_header():
                return
            rest = memoryview(bytes(self._start))
            self._start.clear()
        while rest and self._filled < len(self._entries):
            count = min(len(rest), len(self._target))
            self._target[:count] = rest[:count]
            self._target = self._target[count:]
            rest = rest[count:]
            self._skip_filled()
        if rest:
            raise GarbageError("sent a message that is longer than it says")

    @property
    def begun(self) -> bool:
        """Whether any of it has come."""
        return self._header is not None or bool(self._start)

    @property
    def has_tables(self) -> bool:
        return self._header is not None and bool(self._header["tables"])

    def limit(self, largest: int) -> None:
        """From now on the message may have so many bytes, also where it has begun."""
        self.largest = largest
        self._check_size()

    def message(self) -> dict[str, Any]:
        """The complete message."""
        for array in self._arrays.values():
            if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
                raise GarbageError("sent truth values that are neither true nor false")
        assert self._header is not None
        message: dict[str, Any] = dict(self._header["values"])
        arrays = dict(self._arrays)
        for name, description in self._header["tables"].items():
            message[name] = table_of(name, description, arrays)
        message.update(arrays)
        return message

    def _has_header(self) -> bool:
        """Reads the header as soon as it is there, and makes room for the first array."""
        if len(self._start) < LENGTH.size:
            return False
        (length,) = LENGTH.unpack_from(self._start)
        if length > LARGEST_HEADER:
            raise GarbageError(f"announced a header of {length} bytes; at most {LARGEST_HEADER}")
        end = LENGTH.size + length
        if len(self._start) < end:
            return False
        self._header = _read_header(bytes(self._start[LENGTH.size : end]))
        self._entries = [ArrayEntry.parse(raw) for raw in self._header["arrays"]]
        self._check_entries()
        del self._start[:end]
        self._make_room()
        self._skip_filled()
        return True

    def _check_entries(self) -> None:
        assert self._header is not None
        names = [entry.name for entry in self._entries]
        names += [*self._header["values"], *self._header["tables"]]
        if len(set(names)) < len(names):
            raise GarbageError("sent a message in which a name comes twice")
        self._check_size()

    def _check_size(self) -> None:
        size = sum(entry.size for entry in self._entries)
        if size > self.largest:
            raise GarbageError(f"announced a message of {size} bytes; at most {self.largest}")

    def _make_room(self) -> None:
        if self._filled < len(self._entries):
            entry = self._entries[self._filled]
            array = np.empty(entry.shape, entry.dtype)
            self._arrays[entry.name] = array
            self._target = _bytes(array)

    def _skip_filled(self) -> None:
        while self._filled < len(self._entries) and not self._target:
            self._filled += 1
            self._make_room()


def _read_header(raw: bytes) -> dict[str, Any]:
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError):
        header = None
    kinds = {"arrays": list, "tables": dict, "values": dict}
    if not isinstance(header, dict) or {k: type(v) for k, v in header.items()} != kinds:
        raise GarbageError("sent a message whose header cannot be read")
    return header
