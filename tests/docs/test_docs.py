"""The pages are executed: Python and shell blocks run in order, and printed output is compared."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType

import pytest
from commands import own_modules, tacit

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+\.\d+")


def same_output(printed: str, shown: str) -> bool:
    """Equal but for white space and the last digits of numbers, which differ between CPUs."""
    if without_numbers(printed) != without_numbers(shown):
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True)
    return all(abs(float(a) - float(b)) <= 0.021 for a, b in pairs)


def without_numbers(text: str) -> str:
    """The text with plain spaces, and a mark in place of each number."""
    return NUMBER.sub("#", " ".join(text.split()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_runs_as_it_stands(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with own_modules():
        play(page, tmp_path)


def play(page: Path, folder: Path) -> None:
    """Runs the blocks of a page in order."""
    names: dict[str, object] = {"__name__": "__main__"}
    printed: str | None = None
    for kind, file, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        if file:
            (folder / file).write_text(code)
        elif kind == "python":
            printed = run_python(code, page.name, names)
        elif kind == "sh":
            run_shell(code, folder)
        elif kind == "text" and printed is not None:
            assert same_output(printed, code), f"printed:\n{printed}\nthe page shows:\n{code}"
            printed = None


def run_python(code: str, title: str, names: dict[str, object]) -> str:
    """Executes code among the names of earlier blocks; returns what it printed."""
    with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a study's cautions
        exec(compile(code, title, "exec"), names)
    return out.getvalue()


def run_shell(code: str, folder: Path) -> None:
    """Runs shell commands: in this process if all are plain `tacit` commands, else by bash."""
    commands = [shlex.split(line) for line in code.replace("\\\n", " ").splitlines()]
    only_tacit = all(words[:1] == ["tacit"] for words in commands)
    if not only_tacit or re.search("[&|<>;$]", code):
        run_bash(code, folder)
        return
    for words in commands:
        command = tacit(*words[1:], cwd=folder)
        assert command.returncode == 0, command.stderr


def run_bash(code: str, folder: Path) -> None:
    programs = Path(sys.executable).parent  # among them the command `tacit`
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euc", code], capture_output=True, text=True, env=environment, cwd=folder
    )
    assert done.returncode == 0, done.stderr


def writer(name: str) -> ModuleType:
    """A script of docs/ that writes a page."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lists_of_methods_are_what_the_registry_holds() -> None:
    script = writer("write_methods")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert script.with_list(readme) == readme, "run: make docs"
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert script.long_page() == page, "run: make docs"


def test_the_reproduction_shows_what_the_studies_found() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert writer("write_reproduction").page(page) == page, "run: make docs"
    assert "| *thesis* | *0.6427* (-0.012)" in page


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
        for target in targets:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
