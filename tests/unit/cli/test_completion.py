from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.cli.completion import complete, names_of
from tacit.cli.families import families
from tacit.study.settings import SETTINGS


def offered(folder: Path, *words: str) -> list[str]:
    """What bash is offered for the last of these words."""
    asked = {
        "COMP_WORDS": "\n".join(("tacit", *words)),
        "COMP_CWORD": str(len(words)),
        "_TACIT_COMPLETE": "complete_bash",
    }
    command = [sys.executable, "-m", "tacit"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **asked}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_bash_completes_names_families_and_commands(tmp_path: Path) -> None:
    assert offered(tmp_path, "run", "algorithm", "=", "fedp") == [
        "fedplus",
        "fedprox",
        "fedprox_adaptive",
    ]
    assert offered(tmp_path, "list", "sp") == ["splits"]
    assert offered(tmp_path, "ru") == ["run"]
    assert offered(tmp_path, "run", "--device", "c")[:2] == ["cpu", "cuda"]
    assert offered(tmp_path, "run", "--on", "ra")[0] == "ray"


def test_study_files_folders_and_settings_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rover.yaml").touch()
    (tmp_path / "rest.txt").touch()
    (tmp_path / "r" / "in").mkdir(parents=True)
    (tmp_path / "r" / "one.yml").touch()
    assert complete([], "r") == ["rover.yaml", "r/", "rounds=", "radius="]
    assert complete([], "r/") == ["r/one.yml", "r/in/"]
    assert complete(["rover.yaml"], "split") == [
        "split=",
        *(f"split={name}" for name in names_of("split")),
    ]
    assert complete([], "nowhere/") == []


def test_every_shells_way_to_cut_words_is_understood() -> None:
    assert complete([], "split=ii") == ["split=iid"]
    assert complete(["split", "="], "ii") == ["iid"]
    assert complete(["split"], "") == names_of("split")
    assert complete([], "missing=") == ["missing=left_out", "missing=zero"]
    assert complete([], "centralised=t") == ["centralised=true"]


def test_every_setting_with_a_family_has_names() -> None:
    named = [key for key in SETTINGS if f"{key}s" in families()]
    assert {"algorithm", "dataset", "split", "combiner", "optimiser"} <= set(named)
    assert all(names_of(key) for key in named)
