"""Files that are whole or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.core.files import Staged


def test_a_staged_file_takes_its_place_when_it_is_published_and_the_last_text_counts(
    tmp_path: Path,
) -> None:
    place = tmp_path / "deep" / "rows.csv"
    with Staged(place) as file:
        file.write(lambda stream: stream.write(b"a long first text") and None)
        file.write(lambda stream: stream.write(b"second") and None)
        assert not place.exists()
        file.publish()
    assert place.read_bytes() == b"second"
    assert [path.name for path in place.parent.iterdir()] == ["rows.csv"]


def test_a_staged_file_that_is_not_published_leaves_nothing_behind_and_the_old_one_as_it_was(
    tmp_path: Path,
) -> None:
    old = tmp_path / "old.csv"
    old.write_text("old")
    for place in (old, tmp_path / "new" / "folder" / "rows.csv"):
        with Staged(place) as file:
            file.write(lambda stream: stream.write(b"text") and None)
    assert [path.name for path in tmp_path.iterdir()] == ["old.csv"]
    assert old.read_text() == "old"


def test_a_place_where_nothing_can_be_written_is_known_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as caught:
        Staged(tmp_path / "file" / "rows.csv")
    assert caught.value.filename == str(tmp_path / "file" / "rows.csv")
