"""What private set intersection loads: nothing of training, and pandas only for tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src"
TRAINING = (
    "torch",
    "sklearn",
    "tacit.execution.devices",
    "tacit.execution.planner",
    "tacit.execution.runner",
    "tacit.federated",
    "tacit.models",
    "tacit.report",
    "tacit.rounds",
    "tacit.simulation",
    "tacit.study",
    "tacit.training",
)
TOLD = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
"""
COMMAND = "from tacit.cli.main import main; main()"
LISTS = """
import tacit
results = tacit.psi({"alice": ["1", "2", None], "bob": ["2", "3", float("nan")]}, "nin")
assert results["alice"].rows.tolist() == [1], results
assert results["bob"].missing == 1, results
"""
TABLES = """
import pandas, tacit
tables = {name: pandas.DataFrame({"nin": ["1", "2"]}) for name in ("alice", "bob")}
assert tacit.psi(tables, "nin")["bob"].size == 2
"""


def loaded_by(program: str, *arguments: str, cwd: Path) -> set[str]:
    """The modules that a new Python process has loaded when it ends."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", TOLD + program, *arguments],
        capture_output=True, text=True, timeout=120, check=False, cwd=cwd, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def of_packages(modules: set[str], packages: tuple[str, ...]) -> list[str]:
    inside = tuple(f"{package}." for package in packages)
    return sorted(module for module in modules if module in packages or module.startswith(inside))


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text("nin,age\n1,30\n2,40\n")
    (tmp_path / "b.csv").write_text("nin,town\n2,Toledo\n3,Ronda\n")
    return tmp_path


def test_comparing_tables_on_the_command_line_loads_nothing_of_training(tables: Path) -> None:
    loaded = loaded_by(COMMAND, "psi", "--local", "a.csv", "b.csv", "--key", "nin", cwd=tables)
    assert (tables / "a-tryout.csv").read_text() == "nin,age\n2,40\n"
    assert "tacit.vertical.psi" in loaded
    assert of_packages(loaded, TRAINING) == []


@pytest.mark.parametrize("program", [LISTS, TABLES], ids=["lists", "tables"])
def test_comparing_in_python_loads_nothing_of_training(program: str, tmp_path: Path) -> None:
    loaded = loaded_by(program, cwd=tmp_path)
    assert "tacit.vertical.psi" in loaded
    assert of_packages(loaded, TRAINING) == []


def test_comparing_lists_loads_no_pandas(tmp_path: Path) -> None:
    assert of_packages(loaded_by(LISTS, cwd=tmp_path), ("pandas", "pyarrow")) == []


def test_help_loads_neither_numbers_nor_tables(tmp_path: Path) -> None:
    loaded = loaded_by(COMMAND, "psi", "--help", cwd=tmp_path)
    assert of_packages(loaded, (*TRAINING, "numpy", "pandas", "pyarrow", "tacit.channel")) == []
    vertical = of_packages(loaded, ("tacit.vertical",))
    assert vertical == ["tacit.vertical", "tacit.vertical.psi_options"]  # what help shows


def test_importing_tacit_loads_neither_numbers_nor_tables(tmp_path: Path) -> None:
    loaded = loaded_by("import tacit", cwd=tmp_path)
    assert of_packages(loaded, (*TRAINING, "numpy", "pandas", "pyarrow", "asyncio", "yaml")) == []
