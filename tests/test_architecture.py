"""The shape of the code, where a linter cannot see it. import-linter holds the layers."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "tacit"
FILES = sorted(path for path in SOURCE.rglob("*.py") if not path.name.startswith("test_"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
MODULES = {
    ".".join(("tacit", *path.relative_to(SOURCE).with_suffix("").parts)): path for path in FILES
}
WORDS = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
CAMEL_CASE = re.compile(r"_?[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")
MOST_TOKENS = 300  # of a function
IN_ANOTHER_LANGUAGE = {SOURCE / "training" / "kernels.py"}  # Triton's, which knows few forms


def imports_of(path: Path) -> set[str]:
    """Our modules that a module imports: at its top, inside a function, or for its types alone."""
    named: set[str] = set()
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return named & MODULES.keys()


def importers(name: str) -> list[str]:
    """The modules that import a package, at their top or inside a function."""
    found = []
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(module.split(".")[0] == name for module in modules):
                found.append(str(path.relative_to(SOURCE)))
    return sorted(set(found))


def test_the_first_file_to_read_is_short() -> None:
    assert len((SOURCE / "federated" / "algorithm.py").read_text().splitlines()) <= 111


def count_tokens(path: Path) -> Counter[int]:
    """For each line, the tokens that a reader has to take in; docstrings do not count."""
    docstrings = set()
    for node in ast.walk(TREES[path]):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            docstrings.update(range(first.lineno, (first.end_lineno or 0) + 1))
    text = path.read_text(encoding="utf-8")
    counts: Counter[int] = Counter()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type in WORDS and line not in docstrings:
            counts[line] += 1
    return counts


def test_files_stay_short() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {str(path): length for path, length in lengths.items() if length > 400} == {}


def test_functions_hold_no_more_than_a_reader_can() -> None:
    too_full = {}
    for path in set(FILES) - IN_ANOTHER_LANGUAGE:
        counts = count_tokens(path)
        for node in ast.walk(TREES[path]):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = range(node.lineno, (node.end_lineno or 0) + 1)
                tokens = sum(counts[line] for line in lines)
                if tokens > MOST_TOKENS:
                    too_full[f"{path.relative_to(SOURCE)}: {node.name}"] = tokens
    assert too_full == {}, "divide them by meaning"


def aliases_of(tree: ast.Module) -> set[str]:
    """The names in CamelCase that a module assigns: of types, mostly."""
    names = set()
    for node in tree.body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and CAMEL_CASE.fullmatch(target.id):
                names.add(target.id)
    return names


def test_a_word_names_one_class_or_alias() -> None:
    """The command line is left out: there, an alias describes an option, such as Data or Out."""
    homes: dict[str, list[str]] = {}
    for path, tree in TREES.items():
        file = path.relative_to(SOURCE)
        names = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        if file.parts[0] != "cli":
            names += aliases_of(tree)
        for name in names:
            homes.setdefault(name.strip("_").lower(), []).append(f"{file}: {name}")
    assert {word: places for word, places in homes.items() if len(places) > 1} == {}


@pytest.mark.parametrize(
    ("package", "homes"),
    [
        ("cryptography", ["channel/x509_files.py", "channel/x509_making.py"]),
        ("pooch", ["data/download.py"]),
        ("pickle", ["data/readers.py"]),
        ("gmpy2", ["vertical/groups/gmp.py"]),
        ("rbcl", ["vertical/groups/sodium.py"]),
        ("ray", ["execution/ray.py"]),
        ("multiprocessing", ["execution/planner.py", "execution/processes.py"]),
    ],
)
def test_a_package_with_a_price_is_imported_in_one_place(package: str, homes: list[str]) -> None:
    assert importers(package) == homes


def test_algorithms_hold_arithmetic_and_no_loop() -> None:
    for path in (SOURCE / "federated" / "algorithms").glob("*.py"):
        checks = [
            node for node in ast.walk(TREES[path]) if getattr(node, "name", "") == "__post_init__"
        ]
        inside = {
            inner for node in checks for inner in ast.walk(node)
        }  # a constructor may check field after field
        loops = [
            n
            for n in ast.walk(TREES[path])
            if isinstance(n, ast.For | ast.While) and n not in inside
        ]
        assert not loops, f"{path} loops: the loops over rounds, steps and clients are the engine's"


def test_folders_are_nouns_from_the_field() -> None:
    names = {
        part.lower() for path in FILES for part in path.relative_to(SOURCE).with_suffix("").parts
    }
    assert not names & {"utils", "util", "common", "helpers", "manager", "misc"}


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    graph = {name: imports_of(path) - {name} for name, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


@pytest.mark.parametrize(
    ("importing", "forbidden"),
    [
        ("report", ("execution", "simulation", "rounds")),
        ("execution.plan", ("simulation",)),
        ("execution.planner", ("simulation",)),
        ("execution.estimates", ("simulation",)),
    ],
)
def test_what_needs_no_engine_imports_none(importing: str, forbidden: tuple[str, ...]) -> None:
    for name, path in MODULES.items():
        if name == f"tacit.{importing}" or name.startswith(f"tacit.{importing}."):
            rooms = {module.split(".")[1] for module in imports_of(path)}
            assert rooms.isdisjoint(forbidden), name


def test_a_section_of_the_report_imports_nothing_that_made_the_results() -> None:
    for name, path in MODULES.items():
        if name.startswith("tacit.report.sections."):
            rooms = {module.split(".")[1] for module in imports_of(path)}
            assert rooms <= {"report", "records", "core"}, name
            folder = ".".join(name.split(".")[:4])
            sections = [module for module in imports_of(path) if "report.sections." in module]
            assert all(module.startswith(folder) for module in sections), name


def test_a_section_of_the_report_can_be_taken_away() -> None:
    for name, path in MODULES.items():
        if not name.startswith("tacit.report.sections."):
            sections = {module for module in imports_of(path) if "report.sections." in module}
            assert not sections, name


def test_algorithms_know_no_single_split() -> None:
    for path in (SOURCE / "federated" / "algorithms").glob("*.py"):
        splits = {name for name in imports_of(path) if name.startswith("tacit.data.splits.")}
        assert splits <= {"tacit.data.splits.split"}, path


ITS_OWN_KIND = {
    # The section of the report that only fusions have. A section may import neither kinds nor their
    # engines, and a kind knows no section, so there is nobody else who could tell them.
    "report/sections/fusion/section.py",
}


def kinds_of_runs() -> set[str]:
    """The names of the kinds, which are those of their files."""
    return {path.stem for path in (SOURCE / "study" / "kinds").glob("*.py")} - {"__init__"}


def test_only_a_kinds_own_files_ask_which_kind_a_run_is() -> None:
    own = ("study/kinds/", "simulation/kinds/")
    for path, tree in TREES.items():
        if path.relative_to(SOURCE).as_posix().startswith(own):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ("fusion", "centralised"):
                pytest.fail(f"{path}:{node.lineno} reads .{node.attr} of a run")


def names_a_kind(node: ast.AST) -> bool:
    """Whether it compares with, or looks up, the name of a kind of run."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        is_asked = any(isinstance(side, ast.Attribute) and side.attr == "kind" for side in sides)
    elif isinstance(node, ast.Match):
        sides = [case.pattern for case in node.cases]
        is_asked = isinstance(node.subject, ast.Attribute) and node.subject.attr == "kind"
    else:
        return False
    names = set()
    for side in sides:
        names |= {leaf.value for leaf in ast.walk(side) if isinstance(leaf, ast.Constant)}
    return is_asked and not names.isdisjoint(kinds_of_runs())


def test_only_a_kinds_own_files_compare_kinds() -> None:
    own = ("study/kinds/", "simulation/kinds/")
    comparing = set()
    for path, tree in TREES.items():
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(own) and any(map(names_a_kind, ast.walk(tree))):
            comparing.add(name)
    assert comparing == ITS_OWN_KIND, "ask the run itself, by a method that its kind overrides"


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ('run.kind == "fusion"', True),
        ('"fusion" != run.kind', True),
        ('run.kind in ("horizontal", "reference")', True),
        ('match run.kind:\n    case "reference": pass', True),
        ("run.kind is None", False),
        ('values.dtype.kind == "f"', False),
        ("frame.kind is Kind.BYE", False),
    ],
)
def test_comparisons_of_a_runs_kind_are_recognised(code: str, is_found: bool) -> None:
    assert any(map(names_a_kind, ast.walk(ast.parse(code)))) == is_found


def test_private_names_of_torch_are_looked_up_in_one_module() -> None:
    for path, tree in TREES.items():
        if path == SOURCE / "core" / "torch_private.py":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
                private = [alias.name for alias in node.names if alias.name.startswith("_")]
                assert not private, f"{path}:{node.lineno} imports {private} of torch"
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "torch"
            ):
                public = not node.attr.startswith("_") or node.attr.startswith("__")
                assert public, f"{path}:{node.lineno} uses torch.{node.attr}"
