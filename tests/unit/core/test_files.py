"""Files that are whole or absent, and files that are not what they should be."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from tacit.core.files import Staged, read_at_most, replacing


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


@pytest.mark.skipif(sys.platform == "win32", reason="files have no such locks")
def test_what_a_killed_process_has_staged_is_removed_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "rows [1].csv"
    code = (
        "import sys; from pathlib import Path; from tacit.core.files import Staged\n"
        "Staged(Path(sys.argv[1])).write(lambda file: file.write(b'rows')); print(flush=True)\n"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with Staged(path):
            assert len(os.listdir(tmp_path)) == 2
        assert len(os.listdir(tmp_path)) == 1  # that of a process that lives
        process.kill()
    assert len(os.listdir(tmp_path)) == 1
    with Staged(tmp_path / "other.csv"):
        assert len(os.listdir(tmp_path)) == 2
    with Staged(path):
        assert len(os.listdir(tmp_path)) == 1
    assert os.listdir(tmp_path) == []


def test_a_pipe_beside_a_staged_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".rows.csv.sent.staged")
    publish(tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_bytes() == b"new"


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def publish(path: Path) -> None:
    with Staged(path) as file:
        file.write(writing(b"new"))
        file.publish()


def replace(path: Path) -> None:
    with replacing(path, "wb") as file:
        file.write(b"new")


@pytest.mark.parametrize("write", [publish, replace])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_a_file_that_is_replaced_keeps_its_permissions(
    write: Callable[[Path], None], mode: int, tmp_path: Path
) -> None:
    path = tmp_path / "result.csv"
    path.write_text("old")
    path.chmod(mode)
    write(path)
    assert path.read_text() == "new"
    assert permissions(path) == mode


@pytest.mark.parametrize("write", [publish, replace])
def test_a_new_file_gets_the_permissions_of_the_umask(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "result.csv")
    finally:
        os.umask(before)
    assert permissions(tmp_path / "result.csv") == 0o640


def test_a_file_stays_with_its_group_or_no_group_may_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.csv"
    path.write_text("old")
    path.chmod(0o664)
    other = next((group for group in os.getgroups() if group != os.getegid()), None)
    if other is None and os.geteuid() != 0:
        pytest.skip("this user is in one group only")
    group = other or 12345
    os.chown(path, -1, group)
    replace(path)
    assert (path.stat().st_gid, permissions(path)) == (group, 0o664)

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chown", refused)  # as for somebody who is not in that group
    replace(path)
    assert permissions(path) == 0o604


def test_special_and_large_files_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "small").write_bytes(b"12345")
    wrong = {
        Path("/dev/zero"): "it is not a regular file",
        tmp_path / "pipe": "it is not a regular file",
        tmp_path: "Is a directory",
        tmp_path / "huge": "it has more than 1,048,576 bytes",
        tmp_path / "none": "No such file or directory",
        tmp_path / "a\0b": "no file can have such a name",
        tmp_path / "\ud800": "no file can have such a name",
    }
    for path, complaint in wrong.items():
        with pytest.raises(OSError) as caught:
            read_at_most(path)
        assert caught.value.strerror == complaint
    with pytest.raises(OSError, match="it has more than 4 bytes"):
        read_at_most(tmp_path / "small", 4)
    assert read_at_most(tmp_path / "small", 5) == b"12345"
    assert read_at_most(Path("/proc/self/status")).startswith(b"Name:")
