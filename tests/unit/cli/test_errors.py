"""What the user can fix is one line that says what to do, with exit code 2.

No file is left behind.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from playground import SMALL

import tacit
from tacit.cli.main import main
from tacit.core.errors import StudyError

CSV = "a,b,y\n" + "".join(f"{k},{k % 7},{k % 2}\n" for k in range(60))
TABLE = "dataset={name: table, path: t.csv, target: y}"
ALGORITHM = """
from dataclasses import dataclass
from tacit.federated.algorithm import Algorithm

@dataclass(frozen=True)
class Own(Algorithm):
    def {hook}:
        {body}
"""
NET = """
from torch import nn

class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)

    def forward(self, x):
        if self.training:
            raise RuntimeError("boom\\nand more")
        return super().forward(x)
"""

COMMANDS = [
    (["rnu"], "tacit has no command 'rnu'; did you mean run? see tacit --help"),
    (["s.yaml"], "did you mean tacit run s.yaml?"),
    (
        ["run", "--otu", "x"],
        "tacit run has no option --otu; did you mean --out? see tacit run --help",
    ),
    (["run", "--rounds", "3"], "a setting is written without dashes, rounds=..."),
    (["run", "--out"], "option '--out' requires an argument; see tacit"),
    (["list", "algorithms", "splits"], "(splits); see tacit list --help"),
    (["list", "algoritms"], "there is no list of 'algoritms'; did you mean algorithms?"),
    (["new", "s.yaml"], "s.yaml exists already"),
    (["run", "rounds"], "there is no study file rounds; to change a setting, write rounds=..."),
    (["run", "rounds:5"], "write rounds=5"),
    (["run", "s.yaml", "rounds", "=", "5"], "without spaces around the ="),
    (["run", "s.yaml", "s.yaml"], "expected one study file"),
    (["run", ""], "empty name"),
    (["run", "nowhere.yaml"], "No such file or directory; tacit new writes one"),
    (["run", "s.yaml", "--data", "s.yaml"], "s.yaml is a file; expected the folder"),
    (["run", "s.yaml", "--data", "nowhere"], "the data folder nowhere does not exist"),
    (["run", "s.yaml", "--device", "gpu"], "device: expected cpu or cuda, got 'gpu' (--device)"),
    (["run", "s.yaml", "--device", "cuda:x"], "device: expected cpu or cuda"),
    (["run", "s.yaml", "--out", "s.yaml"], "s.yaml is a file; name a folder"),
    (
        ["run", "s.yaml", "--out", "."],
        ". is not empty; resume the study in it, or name another folder (--out, --resume)",
    ),
    (["run", "s.yaml", "--out", "/proc/x"], "cannot make the folder /proc/x"),
    (["run", "s.yaml", "--device", "cpu:foo"], "device: expected cpu or cuda"),
    (["run", "s.yaml", "--device", "cpu,cpu"], "to spread work over cores, use workers"),
    (
        ["run", "s.yaml", "--workers", "0"],
        "workers: expected a whole number of 1 or more, got 0 (--workers)",
    ),
    (
        ["run", "s.yaml", "--threads", "0"],
        "threads: expected a whole number of 1 or more, got 0 (--threads)",
    ),
    (
        ["run", "s.yaml", "dataset=mnist", "--data", "nowhere"],
        "the data folder nowhere does not exist",
    ),
    (["run", "--resume", "nowhere"], "holds no study to resume"),
    (["run", "s.yaml", "--resume", "x"], "--resume continues the study as it was"),
    (["run", "s.yaml", "--on", "nonsense"], "got 'nonsense' (--on)"),
    (["run", "s.yaml", "device=cuda"], "not a setting of the study: write --device cuda"),
]
SETTINGS = [
    ("rounds=", "rounds: expected a whole number, got nothing (null)"),
    ("rounds=2.5", "rounds: expected a whole number, got 2.5"),
    ("rounds=.inf", "rounds: expected a whole number"),
    ("self=1", "a study has no setting 'self'"),
    ("clients=500", "500 clients cannot share"),
    ("selection={name: listed, lists: [[0], [7]]}", "expected clients from 0 to 2, got 7"),
    ("dataset={name: table, path: no.csv, target: y}", "no.csv does not exist"),
    ("rounds='5'", "got '5'; leave out the quotes"),
    ("rounds.x=1", "rounds has no settings of its own"),
    ("=5", "expected key=value"),
    ("algoritm=fedavg", "a study has no setting 'algoritm'; did you mean algorithm?"),
    ("algorithm=fedpox", "no algorithm is called 'fedpox'; did you mean fedprox?"),
    ("algorithm=[fedavg", "is not valid YAML"),
    ("algorithm={name: fedprox, mu: 1, mu: 2}", "'mu' is set twice"),
    ("algorithm='{name: fedprox}'", "is text; leave out the quotes"),
    ("algorithm=my_methods.Own", "an import path has a colon: my_methods:Own"),
    ("algorithm=nowhere:Own", "No module named 'nowhere'"),
    ("algorithm=[]", "an empty list leaves nothing to run"),
    (
        "algorithm.mu=1",
        "algorithm is a list in this study; write all of it: algorithm={name: fedprox, mu: 1}",
    ),
    ("algorithm={name: clustered, clusters: 9}", "3 clients cannot form 9 clusters"),
    (
        "attackers={name: sign_flip}",
        "expected the word kind in place of name: {kind: sign_flip, ...}",
    ),
    ("attackers.count=2", "such as {kind: sign_flip, count: 2}"),
    ("combiner.f=3", "mean has no setting 'f'; krum has: {name: krum, f: 3}"),
    ("combiner=[mean, krum]", "combiner krum: krum withstands f liars"),
    ("clients=[3, 500]", "clients 500: 500 clients cannot share"),
    ("wire.bits=4", "wire is a list of stages; write all of it: wire={name: quantise, bits: 4}"),
    ("wire=none", "for no wire, use []"),
    ("wire=null", "for no wire, use []"),
    ("wire=[quantise, quantise]", "quantise is there twice"),
    ("model.arguments.width=8", "expected one dot"),
    ("model={name: mlp, hidden: 64}", "expected a list of whole numbers, got 64; write [64]"),
    ("model=module", "module needs path; write {name: module, path: ...}"),
    ("model=cnn", "cnn needs pictures"),
    ("missing=zeros", "missing: expected left_out or zero, got 'zeros'"),
    ("dataset={name: function, path: my_data.two}", "an import path has a colon: my_data:two"),
]
FILES: list[tuple[str | bytes, str]] = [
    ("", "e.yaml is empty; expected settings such as 'algorithm: fedavg'"),
    (b"\xff\xfe\x00", "it is not text"),
    ("- fedavg\n- fedprox\n", "got a list ['fedavg', 'fedprox']"),
    ("fedavg", "got the text 'fedavg'"),
    (
        "algorithm:\n\t- fedavg\n",
        "line 2, column 1: found character '\\t' that cannot start any token; indent with spaces",
    ),
    ("algorithm: [fedavg\nrounds: 3\n", "line 2, column 7: expected ',' or ']'"),
    ("rounds: 3\n  seed: 1\n", "line 2, column 7: mapping values are not allowed here"),
    (f"{SMALL}rounds: 5\n", "'rounds' is set twice, in lines 5 and 8; keep one of them"),
    ("algorithm:\n  name: fedprox\n  mu: 1\n  mu: 2\n", "'mu' is set twice, in lines 3 and 4"),
    ("algorithm: &a [*a]\n", "line 1, column 12: a value contains itself; write it out"),
    ("rounds: 2024-13-45\n", "is not valid YAML: month must be in 1..12"),
    ("rounds: " + "[" * 3000, "nested too deeply"),
    ("rounds: {a: " + str(list(range(99))) + "}", "expected a whole number, got {'a': [0, 1"),
    ("name: a/b\n", "expected a word that can be a folder's name"),
]
TABLES: list[tuple[str | bytes, str]] = [
    ("", "is not a table, or is damaged"),
    (b"\x00\xff\xfe" * 9, "t.csv is not in UTF-8; save it as CSV UTF-8"),
    ("a|b|y\n1|2|3\n", "each line was read as one column, 'a|b|y'; separate cells with commas"),
    ("a,b,y\n", "t.csv holds no rows"),
    (CSV.replace("3,3", "x,3"), "column a: expected a number, got 'x'"),
    (CSV.replace("3,3", "inf,3"), "infinite values in a"),
    (CSV.replace("y", "z"), "t.csv has no column 'y'"),
]
OWN_CODE = [
    ("model=mine:Net", NET, "mine:Net.forward raised RuntimeError: boom and more (mine.py:10)"),
    ("algorithm=mine:Own", "def f(:\n", "cannot import 'mine:Own': invalid syntax (mine.py:1)"),
    (
        "algorithm=mine:Own",
        "x = 1\n1 / 0\n",
        "its module raised ZeroDivisionError: division by zero (mine.py:2)",
    ),
    ("algorithm=mine:Own", "import sys\nsys.exit(3)\n", "its module raised SystemExit: 3"),
    (
        "algorithm=mine:Own",
        "class Own: ...\n",
        "mine:Own is not a subclass of tacit.federated.algorithm:Algorithm",
    ),
    (
        "dataset={name: function, path: mine:f}",
        "def f():\n    1 / 0\n",
        "division by zero (mine.py:2)",
    ),
    (
        "dataset={name: function, path: mine:f}",
        "def f():\n    return 'a', 'b'\n",
        "mine:f gave the engine something",
    ),
    (
        "combiner=mine:Half",
        "from tacit.federated.combine.combiner import Combiner\nclass Half(Combiner): ...\n",
        "mine:Half is not finished: it lacks __call__",
    ),
]
HOOKS = [
    (
        "aggregate(self, server, cohort)",
        "return 1 / 0",
        "mine:Own.aggregate raised ZeroDivisionError",
    ),
    (
        "correct(self, g, w, sent, mine, work)",
        "return g.nothing",
        "mine:Own.correct raised AttributeError",
    ),
    (
        "finish(self, w, sent, mine, work)",
        "return None",
        "mine:Own gave the engine something that it cannot use",
    ),
    (
        "check(self, optimiser)",
        "raise ValueError('never')",
        "mine:Own.check raised ValueError: never (mine.py:8)",
    ),
    (
        "server_init(self, x, population)",
        "return {}['x']",
        "mine:Own.server_init raised KeyError: 'x' (mine.py:8)",
    ),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a sound study, from which modules are imported afresh."""
    (tmp_path / "s.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return tmp_path


def check(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: list[str], line: str
) -> None:
    """The command refuses with this line, and as it should."""
    before = sorted(folder.rglob("*"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["tacit", *arguments])
        with pytest.raises(SystemExit) as exit:
            main()
    sys.modules.pop("mine", None)
    out, err = capsys.readouterr()
    assert (exit.value.code, out) == (2, ""), err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert line in err
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(("arguments", "line"), COMMANDS)
def test_a_wrong_command(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    check(capsys, folder, arguments, line)


@pytest.mark.parametrize(("override", "line"), SETTINGS)
def test_a_wrong_setting(
    folder: Path, capsys: pytest.CaptureFixture[str], override: str, line: str
) -> None:
    check(capsys, folder, ["run", "s.yaml", override], line)


@pytest.mark.parametrize(("text", "line"), FILES)
def test_a_wrong_file(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str | bytes, line: str
) -> None:
    (folder / "e.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    check(capsys, folder, ["run", "e.yaml"], line)


@pytest.mark.parametrize(("text", "line"), TABLES)
def test_a_wrong_table(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str | bytes, line: str
) -> None:
    (folder / "t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    check(capsys, folder, ["run", "s.yaml", TABLE], line)


@pytest.mark.parametrize(("override", "code", "line"), OWN_CODE)
def test_wrong_code_of_the_users_own(
    folder: Path, capsys: pytest.CaptureFixture[str], override: str, code: str, line: str
) -> None:
    (folder / "mine.py").write_text(code)
    check(capsys, folder, ["run", "s.yaml", override], line)


@pytest.mark.parametrize(("hook", "body", "line"), HOOKS)
def test_a_wrong_hook(
    folder: Path, capsys: pytest.CaptureFixture[str], hook: str, body: str, line: str
) -> None:
    (folder / "mine.py").write_text(ALGORITHM.format(hook=hook, body=body))
    check(capsys, folder, ["run", "s.yaml", "algorithm=mine:Own"], line)


def test_a_folder_in_place_of_a_study(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "d").mkdir()
    check(capsys, folder, ["run", "d"], "it is a folder; name the file in it")
    (folder / "d" / "study.yaml").write_text(SMALL)
    check(capsys, folder, ["run", "d"], "or continue it with: tacit.resume('d')")


def test_a_damaged_study_is_not_resumed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "d").mkdir()
    (folder / "d" / "study.yaml").write_text("algorithm: [fedavg\n")
    check(
        capsys,
        folder,
        ["run", "--resume", "d"],
        "cannot resume d: d/study.yaml is not valid YAML: line 2",
    )


def test_a_refused_point_of_a_grid_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = ["algorithm=[fedavg, fedplus]", "combiner=[mean, krum]", "clients=6", "seed=[0, 1]"]
    check(
        capsys,
        folder,
        ["run", "s.yaml", *grid],
        "error: fedplus with combiner krum: fedplus does not leave",
    )


def test_in_python_the_users_own_exception_is_chained(folder: Path) -> None:
    code = ALGORITHM.format(hook="aggregate(self, server, cohort)", body="return 1 / 0")
    (folder / "mine.py").write_text(code)
    sys.path.insert(0, str(folder))
    with pytest.raises(StudyError, match=r"mine:Own.aggregate raised ZeroDivisionError") as caught:
        tacit.run({"dataset": "iris", "model": "linear", "algorithm": "mine:Own"}, folder / "out")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    sys.modules.pop("mine", None)


def test_a_bug_of_ours_stays_a_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        return [].nothing  # type: ignore[attr-defined, no-any-return]

    broken.__code__ = broken.__code__.replace(
        co_filename=str(Path(tacit.__file__).parent / "rounds" / "server.py")
    )
    monkeypatch.setattr("tacit.simulation.kinds.horizontal.close_round", broken)
    monkeypatch.setattr(sys, "argv", ["tacit", "run", "s.yaml"])
    with pytest.raises(AttributeError, match="nothing"):
        main()


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (
            lambda: tacit.run(None),  # type: ignore[arg-type]
            "expected a study, its file or a dict of its settings, got nothing",
        ),
        (lambda: tacit.run({5: "x"}), "a study has no setting '5'"),  # type: ignore[dict-item]
        (lambda: tacit.run({"rounds": 1}, ""), "expected a folder's name for the results"),
        (lambda: tacit.run({"rounds": 1}, device=None), "device: expected cpu or cuda"),  # type: ignore[arg-type]
        (
            lambda: tacit.Study("a", algorithm=dict),
            "name your own by import path, package.module:name",
        ),
        (lambda: tacit.Results("nowhere"), "nowhere holds no study"),
    ],
)
def test_a_wrong_call(folder: Path, call: object, line: str) -> None:
    with pytest.raises(tacit.TacitError) as caught:
        call()  # type: ignore[operator]
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_metric_is_compared_with_metrics_only(folder: Path) -> None:
    results = tacit.run({"dataset": "iris", "model": "linear", "rounds": 1}, folder / "out")
    with pytest.raises(StudyError, match=r"there is no metric 'acuracy'; did you mean accuracy\?"):
        results.table("acuracy")
    with pytest.raises(StudyError, match=r"there is no metric 'status'; known: accuracy"):
        results.table("status")
    with pytest.raises(StudyError, match=r"there is no statistic 'men'; did you mean mean\?"):
        results.table("accuracy", "men")


def test_a_table_and_a_module_beside_the_study_are_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = folder / "studies"
    study.mkdir()
    (study / "t.csv").write_text(CSV)
    (study / "mine.py").write_text("from torch import nn\nNet = lambda: nn.Linear(2, 2)\n")
    (study / "s.yaml").write_text(
        "dataset: {name: table, path: t.csv, target: y}\nmodel: mine:Net\nrounds: 1\n"
    )
    monkeypatch.setattr(sys, "argv", ["tacit", "run", "studies/s.yaml", "--out", "out", "--quiet"])
    with pytest.raises(SystemExit) as exit:
        main()
    assert exit.value.code == 0, capsys.readouterr().err
    assert "path: studies/t.csv" in (folder / "out" / "study.yaml").read_text()
    sys.modules.pop("mine", None)


def test_a_study_that_another_process_runs_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    (folder / "out").mkdir()
    # the other process begins right after the check for an empty folder
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(()))
    with open(folder / "out" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StudyError, match="is being run by another process"):
            tacit.run({"dataset": "iris", "model": "linear"}, folder / "out")
    assert (folder / "out" / ".lock").exists()
