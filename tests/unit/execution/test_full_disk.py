"""A disk that is full: the study stops, says which file it could not write, and goes on later.

A limit on the size of files stands for the disk: writing fails in the same places.
"""

from __future__ import annotations

import errno
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from commands import Done
from commands import tacit as tacit_command
from folders import assert_same_results
from playground import FAST, StopAfter, assert_same

import tacit
from tacit.execution.play import Failed

resource = pytest.importorskip("resource")  # on Windows there is none

SETTINGS = {
    **FAST,
    "rounds": 12,
    "model": {"name": "mlp", "hidden": [64, 64]},
    "algorithm": ["fedavg", "fedprox"],
    "split": ["iid", "quantity_skew"],
}
# A size that no file may exceed, and the file that is the first to do so.
BEFORE = [(200, "splits.json"), (1200, "outline.json")]  # the study can be resumed
LATER = [
    (5000, "history.jsonl"),
    (15000, "models/000-iid-fedavg.pt"),
    (25000, "history.jsonl"),
    (None, "report.html"),  # as many bytes as lie between the history and the report
]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Within it, no file of this process can grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study without a disturbance."""
    folder = tmp_path_factory.mktemp("whole") / "study"
    tacit.run(SETTINGS, folder, workers=1)
    return folder


@pytest.mark.parametrize(("size", "file"), BEFORE)
def test_a_disk_that_is_full_before_the_first_round_keeps_nothing(
    tmp_path: Path, size: int, file: str
) -> None:
    folder = tmp_path / "study"
    with pytest.raises(OSError) as caught, files_up_to(size):
        tacit.run(SETTINGS, folder, workers=1)
    assert caught.value.filename == str(folder / file)
    assert not hasattr(caught.value, "__notes__")
    assert not folder.exists()


@pytest.mark.parametrize(("size", "file"), LATER)
def test_a_disk_that_is_full_later_stops_a_study_that_resumes_to_the_same_bits(
    tmp_path: Path, size: int | None, file: str, whole: Path
) -> None:
    folder = tmp_path / "study"
    with pytest.raises(OSError) as caught, files_up_to(size or _size_of_no_report(whole)):
        tacit.run(SETTINGS, folder, workers=1)
    assert caught.value.filename == str(folder / file)
    assert caught.value.__notes__ == [f"continue with: tacit.resume({str(folder)!r})"]
    tacit.resume(folder, workers=1)
    assert_same(folder, whole)
    assert_same_results(folder, whole)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.execution.runner.CHECKPOINT_SECONDS", 0.0)
    folder = tmp_path / "study"
    with pytest.raises(KeyboardInterrupt):
        tacit.run(SETTINGS, folder, workers=1, on_event=StopAfter(20))
    checkpoints = {path: path.read_bytes() for path in (folder / "checkpoints").iterdir()}
    with pytest.raises(OSError) as caught, files_up_to(15000):
        tacit.resume(folder, workers=1)
    assert caught.value.__notes__ == [f"continue with: tacit.resume({str(folder)!r})"]
    assert {path: path.read_bytes() for path in (folder / "checkpoints").iterdir()} == checkpoints
    tacit.resume(folder, workers=1)
    assert_same(folder, whole)


def test_a_full_disk_stops_worker_processes_too(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "study"
    with pytest.raises(OSError) as caught, files_up_to(15000):
        tacit.run(SETTINGS, folder, workers=2)
    assert Path(caught.value.filename).is_relative_to(folder)
    tacit.resume(folder, workers=2)
    assert_same(folder, whole)


@pytest.mark.parametrize("size", [5000, None])
def test_the_command_line_names_the_file_and_the_command_that_goes_on(
    tmp_path: Path, size: int | None, whole: Path
) -> None:
    file = dict(LATER)[size]
    size = size or _size_of_no_report(whole)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(SETTINGS))
    with files_up_to(size):
        full = tacit_command("run", "study.yaml", "--out", "out", "--workers", "1", cwd=tmp_path)
    assert full.returncode == 2
    assert full.stderr.splitlines() == [
        f"error: File too large: out/{file}; nothing is lost: fix that, and continue with:"
        " tacit run --resume out"
    ]
    still_full = _resume_in(tmp_path, size)
    assert still_full.returncode == 2
    assert still_full.stderr == full.stderr
    assert tacit_command("run", "--resume", "out", "--quiet", cwd=tmp_path).returncode == 0
    assert_same(tmp_path / "out", whole)


def test_a_worker_tells_of_a_full_disk_as_it_was() -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/tmp")
    failed = pickle.loads(pickle.dumps(Failed.of(error)))
    again = failed.error()
    assert isinstance(again, OSError)
    assert (again.errno, again.filename, str(again)) == (errno.ENOSPC, "/tmp", str(error))


def _size_of_no_report(whole: Path) -> int:
    """A size for which all files are small enough except for the report."""
    sizes = sorted(path.stat().st_size for path in whole.rglob("*") if path.is_file())
    assert sizes[-1] == (whole / "report.html").stat().st_size
    return (sizes[-2] + sizes[-1]) // 2


def _resume_in(folder: Path, size: int) -> Done:
    with files_up_to(size):
        return tacit_command("run", "--resume", "out", "--workers", "1", cwd=folder)
