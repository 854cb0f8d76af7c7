"""A device, a pipe or an endless file in the place of one that people write by hand."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import tacit


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


KINDS = [
    (make_pipe, "it is not a regular file"),
    (make_device, "it is not a regular file"),
    (make_huge, "bytes"),
    (Path.mkdir, "directory"),
]
Make = Callable[[Path], None]


@pytest.fixture
def consortium(tmp_path: Path) -> Path:
    assert tacit("cert", "init", "heart", cwd=tmp_path).returncode == 0
    assert tacit("cert", "issue", "alice", "--with-key", cwd=tmp_path).returncode == 0
    return tmp_path / "consortium"


@pytest.mark.parametrize(("make", "complaint"), KINDS)
@pytest.mark.parametrize("name", ["consortium.yaml", "ca.pem", "alice.pem"])
def test_a_consortium_of_special_files_is_refused_at_once(
    name: str, make: Make, complaint: str, consortium: Path
) -> None:
    (consortium / name).unlink()
    make(consortium / name)
    start = time.perf_counter()
    done = tacit("cert", "show", "consortium/consortium.yaml", cwd=consortium.parent)
    assert time.perf_counter() - start < 5
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert name in done.stderr
    assert complaint in done.stderr


@pytest.mark.parametrize("path", ["/dev/zero", "a\\0b", "~nobody-of-this-name/ca.pem", "x" * 5000])
def test_a_consortium_that_names_a_strange_file_is_refused(path: str, consortium: Path) -> None:
    for key in ("ca", "parties: {alice: {certificate"):
        end = "}}" if "{" in key else ""
        text = f'consortium: heart\n{key}: "{path}"{end}\n'
        (consortium / "consortium.yaml").write_text(text)
        done = tacit("cert", "show", cwd=consortium.parent)
        assert "Traceback" not in done.stderr
        assert done.stderr.count("\n") <= 1
        assert done.returncode == 2 or (key != "ca" and "not here" in done.stdout)


@pytest.mark.parametrize(("make", "complaint"), KINDS)
def test_a_special_file_is_no_study_and_no_result(
    make: Make, complaint: str, tmp_path: Path
) -> None:
    make(tmp_path / "s.yaml")
    done = tacit("run", "s.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert complaint in done.stderr or "it is a folder" in done.stderr
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "study.yaml").touch()
    make(tmp_path / "sent" / "outline.json")
    done = tacit("report", "sent", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "outline.json is damaged" in done.stderr
