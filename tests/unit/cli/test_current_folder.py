"""People run commands in folders that somebody has sent them: what lies there is not run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

INSTALLED = ("yaml", "rich", "typer", "numpy", "torch", "matplotlib", "pandas", "cryptography")
STANDARD = ("inspect", "difflib", "socket", "pickle", "tempfile", "threading", "ipaddress")
TRAP = "open('sprung', 'a').write(__name__ + '\\n')\n"
STUDY = "dataset: iris\nmodel: linear\nsplit: iid\nrounds: 1\nclients: 2\nseed: [0, 1]\n"
OWN = STUDY.replace("linear", "mine:Net")
MINE = f"""{TRAP}
import sys
from torch import nn
assert sys.path[-1] == {{folder!r}} and {{folder!r}} not in sys.path[:-1], sys.path
class Net(nn.Linear):
    def __init__(self): super().__init__(4, 3)
"""
SCRIPT = [str(Path(sys.executable).with_name("tacit"))]
MODULE = [sys.executable, "-m", "tacit"]
UNBUFFERED = [sys.executable, "-W", "ignore", "-um", "tacit"]
PROGRAMS = pytest.mark.parametrize(
    "program", [SCRIPT, MODULE, UNBUFFERED], ids=["script", "module", "unbuffered"]
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules that note in a file that they have been run."""
    for name in (*INSTALLED, *STANDARD):
        (tmp_path / f"{name}.py").write_text(TRAP)
    (tmp_path / "mine.py").write_text(MINE.format(folder=str(tmp_path)))
    (tmp_path / "s.yaml").write_text(STUDY)
    (tmp_path / "own.yaml").write_text(OWN)
    return tmp_path


def run(command: list[str], folder: Path) -> tuple[int, str, set[str]]:
    """The exit code of a command, what it said on stderr, and the traps that it has sprung."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    sprung = folder / "sprung"
    names = set(sprung.read_text().split()) if sprung.exists() else set()
    sprung.unlink(missing_ok=True)
    return done.returncode, done.stderr, names


@PROGRAMS
def test_commands_without_own_code_import_nothing_of_the_current_folder(
    program: list[str], folder: Path
) -> None:
    for arguments in (["cert", "init", "heart"], ["cert", "show"]):
        assert run([*program, *arguments], folder) == (0, "", set())


def test_an_intersection_imports_nothing_of_the_current_folder(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.csv").write_text("nin\n1\n2\n")
    local = ["psi", "--local", "a.csv", "b.csv", "--key", "nin", "--quiet"]
    assert run([*SCRIPT, *local], folder) == (0, "", set())
    assert run([*SCRIPT, "cert", "init", "heart"], folder) == (0, "", set())
    for name in ("alice", "bob"):
        made = run([*SCRIPT, "cert", "issue", name, "--with-key", "-q"], folder)
        assert made == (0, "", set())
    alone = ["psi", "--party", "alice", "--data", "a.csv", "--key", "nin", "--patience", "1", "-q"]
    code, line, sprung = run([*SCRIPT, *alone, "--listen", "localhost:0"], folder)
    assert (code, sprung) == (2, set())
    assert line.startswith("error: bob has not connected to ")


def test_an_intersection_takes_nobodys_own_group(folder: Path) -> None:
    code, line, sprung = run([*SCRIPT, "psi", "--key", "a", "--group", "mine:Net"], folder)
    assert (code, sprung) == (2, set())
    assert line == "error: --group: mine:Net is no name; see tacit list groups\n"


def test_a_study_without_own_code_imports_nothing_of_its_folder_in_workers_either(
    folder: Path,
) -> None:
    assert run([*SCRIPT, "splits", "s.yaml", "--quiet"], folder) == (0, "", set())
    assert run([*SCRIPT, "run", "s.yaml", "--plan"], folder) == (0, "", set())
    command = ["run", "s.yaml", "--workers", "2", "--quiet", "--out", "out"]
    assert run([*SCRIPT, *command], folder) == (0, "", set())
    environment = json.loads((folder / "out" / "environment.json").read_text())
    assert environment[0]["place"] == "2 worker processes"


def test_own_code_is_found_after_everything_else_and_a_report_needs_none(folder: Path) -> None:
    command = ["run", "own.yaml", "--workers", "2", "--quiet", "--out", "out"]
    assert run([*MODULE, *command], folder) == (0, "", {"mine"})
    assert run([*SCRIPT, "run", "--plan", "--resume", "out"], folder) == (0, "", {"mine"})
    assert run([*SCRIPT, "report", "out", "--quiet"], folder) == (0, "", set())
    assert watched(folder) == set()


def watched(folder: Path) -> set[str]:
    """The traps that are sprung where the report is served, and looked at."""
    command = [*SCRIPT, "watch", "out", "--json", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        with urllib.request.urlopen(address, timeout=60) as page:
            assert page.status == 200
        process.send_signal(signal.SIGINT)
    sprung = folder / "sprung"
    return set(sprung.read_text().split()) if sprung.exists() else set()


def test_a_folder_that_holds_nothing_which_the_study_names_is_not_looked_into(
    folder: Path,
) -> None:
    sent = folder / "sent"
    sent.mkdir()
    mine = MINE.format(folder=str(sent))
    (sent / "mine.py").write_text(f"{mine}assert {str(folder)!r} not in sys.path, sys.path\n")
    (sent / "own.yaml").write_text(OWN)
    (folder / "mine.py").unlink()
    assert run([*MODULE, "run", "--plan", "sent/own.yaml"], folder) == (0, "", {"mine"})


def test_a_module_of_the_users_own_that_imports_tacit_keeps_its_folder(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import tacit, helper; print(helper.WORD)")
    (tmp_path / "helper.py").write_text("WORD = 'found'")
    command = [sys.executable, "-um", "script"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "found\n", done.stderr
