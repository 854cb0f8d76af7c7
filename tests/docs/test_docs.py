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
    shapes = [NUMBER.sub("#", " ".join(text.split())) for text in (printed, shown)]
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=False)
    return shapes[0] == shapes[1] and all(abs(float(a) - float(b)) <= 0.021 for a, b in pairs)


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
            with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a study's cautions
                exec(compile(code, page.name, "exec"), names)
            printed = out.getvalue()
        elif kind == "sh":
            run_block(code, folder)
        elif kind == "text" and printed is not None:
            assert same_output(printed, code), f"printed:\n{printed}\nthe page shows:\n{code}"
            printed = None


def run_block(code: str, folder: Path) -> None:
    """Runs shell commands: in this process if all are plain `tacit` commands, else by bash."""
    commands = [shlex.split(line) for line in code.replace("\\\n", " ").splitlines()]
    is_plain = not re.search("[&|<>;$]", code) and all(words[:1] == ["tacit"] for words in commands)
    if not is_plain:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(
            ["bash", "-euc", code], capture_output=True, text=True, env=environment, cwd=folder
        )
        assert done.returncode == 0, done.stderr
        return
    for words in commands:
        command = tacit(*words[1:], cwd=folder)
        assert command.returncode == 0, command.stderr


def writer(name: str) -> ModuleType:
    """A script of docs/ that writes a page."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_lists_of_methods_are_what_the_registry_holds() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    methods = writer("write_methods")
    assert methods.with_list(readme) == readme, "run: make docs"
    assert methods.long_page() == (ROOT / "docs" / "methods.md").read_text(encoding="utf-8"), (
        "run: make docs"
    )


def test_the_reproduction_shows_what_the_studies_found() -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert writer("write_reproduction").page(page) == page, "run: make docs"
    assert "| *thesis* | *0.6427* (-0.012)" in page


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
