"""Files that are whole or absent."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tacit.core.files import Staged


def writing(content: bytes) -> Callable[[IO[bytes]], None]:
    def fill(file: IO[bytes]) -> None:
        file.write(content)

    return fill


def test_a_staged_file_takes_its_place_when_it_is_published_and_the_last_text_counts(
    tmp_path: Path,
) -> None:
    path = tmp_path / "deep" / "rows.csv"
    with Staged(path) as file:
        file.write(writing(b"a long first text"))
        file.write(writing(b"second"))
        assert not path.exists()
        file.publish()
    assert path.read_bytes() == b"second"
    assert os.listdir(path.parent) == ["rows.csv"]


def test_a_staged_file_that_is_not_published_leaves_nothing_behind_and_the_old_one_as_it_was(
    tmp_path: Path,
) -> None:
    old = tmp_path / "old.csv"
    old.write_text("old")
    for path in (old, tmp_path / "new" / "folder" / "rows.csv"):
        with Staged(path) as file:
            file.write(writing(b"text"))
    assert os.listdir(tmp_path) == ["old.csv"]
    assert old.read_text() == "old"


def test_a_folder_where_nothing_can_be_written_is_noticed_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "rows.csv"
    with pytest.raises(OSError) as caught:
        Staged(path)
    assert caught.value.filename == str(path)
