"""`tacit list` reads source texts; what it says is what the registry holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.cli.families import families
from tacit.cli.list import row
from tacit.cli.method_texts import read_families
from tacit.core.class_texts import REQUIRED

FAMILIES = families()


def test_the_texts_hold_the_families_of_the_registry_in_the_same_order() -> None:
    assert list(read_families()) == list(FAMILIES)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_the_texts_hold_the_members_of_the_registry(family: str) -> None:
    expected = [row(name, cls) for name, cls in FAMILIES[family].known().items()]
    rows = read_families()[family]
    assert json.dumps(rows, default=str) == json.dumps(expected, default=str)


def test_a_setting_without_a_default_is_required() -> None:
    (listed,) = [row for row in read_families()["selections"] if row["name"] == "listed"]
    assert listed["settings"] == {"lists": REQUIRED}


def test_methods_are_listed_without_torch_and_pandas(tmp_path: Path) -> None:
    code = "import sys; from tacit.cli.main import main; sys.argv = ['tacit', 'list']\n"
    code += "try: main()\nfinally: print('torch' in sys.modules, 'pandas' in sys.modules)"
    script = tmp_path / "script.py"
    script.write_text(code)
    command = [sys.executable, str(script)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert listed.stdout.splitlines()[-1] == "False False"
