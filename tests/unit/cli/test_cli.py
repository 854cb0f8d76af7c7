from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from commands import new_process, tacit
from playground import SMALL

from tacit.study.study import Study


def test_a_study_ends_by_naming_its_report(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SMALL)
    settings = ("rounds=3", "algorithm=fedprox", "algorithm.mu=1")
    done = new_process("run", "s.yaml", *settings, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    report = tmp_path / done.stdout.strip().splitlines()[-1].removeprefix("report: ")
    assert report.read_text().startswith("<!doctype html>")
    assert "http://" not in report.read_text().replace("http://www.w3.org", "")
    resolved = yaml.safe_load((report.parent / "study.yaml").read_text())
    assert resolved["rounds"] == 3
    assert resolved["algorithm"] == {"name": "fedprox", "mu": 1, "weights": "samples"}
    assert resolved["model"] == {"name": "linear"}


def test_json_output_is_json_and_quiet_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SMALL)
    summary = json.loads(tacit("run", "s.yaml", "--json", cwd=tmp_path).stdout)
    assert [run["status"] for run in summary["runs"]] == ["finished"] * 2
    assert Path(tmp_path, summary["report"]).exists()
    done = tacit("run", "s.yaml", "--quiet", "--out", "q", cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    again = tacit("run", "--resume", "q", cwd=tmp_path)
    assert "report: q/report.html" in again.stdout


def test_a_plan_is_shown_and_nothing_is_done(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SMALL)
    shown = tacit("run", "s.yaml", "--plan", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("2 runs in 2 blocks, ")
    assert "--" not in shown.stdout
    shown = tacit("run", "s.yaml", "--plan", "--workers", "2", "--json", cwd=tmp_path)
    plan = json.loads(shown.stdout)
    assert (plan["workers"], plan["threads"], len(plan["blocks"])) == (2, 1, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]
    tacit("run", "s.yaml", "--out", "done", "--quiet", cwd=tmp_path)
    shown = tacit("run", "--resume", "done", "--plan", cwd=tmp_path)
    assert shown.stdout == "nothing is left to do\n"


def test_new_writes_a_study_that_runs(tmp_path: Path) -> None:
    assert tacit("new", "mine.yaml", cwd=tmp_path).returncode == 0
    text = (tmp_path / "mine.yaml").read_text()
    assert "# " in text
    assert len(Study.from_file(tmp_path / "mine.yaml").runs()) == 2
    assert tacit("run", "mine.yaml", "rounds=1", cwd=tmp_path).returncode == 0
    refused = tacit("new", "mine.yaml", cwd=tmp_path)
    assert refused.returncode == 2
    assert "exists already" in refused.stderr
    assert tacit("new", "mine.yaml", "--force", cwd=tmp_path).returncode == 0


def test_the_version_is_shown(tmp_path: Path) -> None:
    done = tacit("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"tacit {version('tacit')}\n")


def test_modules_beside_the_study_are_found_without_a_path(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self): super().__init__(4, 3)\n"
    )
    (tmp_path / "s.yaml").write_text(SMALL)
    script = Path(sys.executable).with_name("tacit")
    done = subprocess.run(
        [script, "run", "s.yaml", "model=mine:Net"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_table_in_a_pipe_is_never_cut(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SMALL)
    mus = "algorithm={name: fedprox, mu: [0.1, 0.2]}"
    splits = "split=[iid, {name: label_dirichlet, beta: [0.7, 0.8, 0.9]}]"
    done = tacit("run", "s.yaml", mus, splits, "seed=[0,1]", "clients=[2,3]", cwd=tmp_path)
    assert "…" not in done.stdout
    assert "fedprox(mu=0.2), clients=3" in done.stdout
    assert "label_dirichlet(beta=0.9)" in done.stdout
    assert "mean and deviation over 2 seeds" in done.stdout


def test_list_shows_what_the_registry_holds(tmp_path: Path) -> None:
    lists = json.loads(tacit("list", "--json", cwd=tmp_path).stdout)
    assert {"algorithms", "splits", "datasets", "models", "optimisers"} <= set(lists)
    assert {"combiners", "selections"} <= set(lists)
    assert {"name", "summary", "settings", "choices"} == set(lists["algorithms"][0])
    assert tacit("list", "stages", "--quiet", cwd=tmp_path).stdout == "quantise\nsum\ntop_k\n"
    shown = tacit("list", "algorithms", cwd=tmp_path).stdout
    assert "weights=samples|uniform" in shown
    assert "v_init=null" in shown
    assert "None" not in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_a_study_without_a_file_says_that_it_is_the_built_in_one(tmp_path: Path) -> None:
    settings = "rounds=1 seed=0 algorithm=fedavg split=iid dataset=iris centralised=false"
    small = settings.split()
    assert "built-in study" in tacit("run", *small, cwd=tmp_path).stderr
    assert tacit("run", *small, "--json", cwd=tmp_path).stderr == ""


def test_of_a_large_grid_one_table_is_printed(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SMALL)
    mus = "algorithm={name: fedplus, mu: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]}"
    done = tacit("run", "s.yaml", mus, "rounds=1", cwd=tmp_path)
    assert "in the report: Clients' own tests" in done.stdout
    assert done.stdout.count("fedplus(mu=13)") == 1


def test_bad_input_is_one_line_and_exit_code_two(tmp_path: Path) -> None:
    done = tacit("run", "nowhere.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: cannot read the study nowhere.yaml")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


ABSURD = "optimiser={name: sgd, lr: 1.0e30}"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["algorithm=fedavg"], "error: the run diverged: "),
        (["algorithm=[fedavg, fedprox]"], "error: all 2 runs diverged: "),
    ],
)
def test_a_study_of_which_every_run_diverged_has_an_exit_code(
    tmp_path: Path, settings: list[str], line: str
) -> None:
    (tmp_path / "s.yaml").write_text(SMALL)
    options = ["model=mlp", ABSURD, "--out", "out", "--quiet"]
    done = tacit("run", "s.yaml", *settings, *options, cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith(line)
    assert "smaller learning rate" in done.stderr
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "out" / "report.html").exists()
    again = tacit("run", "--resume", "out", "--json", cwd=tmp_path)
    assert again.returncode == 3
    assert {run["status"] for run in json.loads(again.stdout)["runs"]} == {"diverged"}


def test_one_run_that_did_not_diverge_is_enough(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SMALL)
    rates = "optimiser={name: sgd, lr: [1.0e30, 0.1]}"
    settings = ["algorithm=fedavg", "model=mlp", rates]
    done = tacit("run", "s.yaml", *settings, "--out", "out", "--json", cwd=tmp_path)
    assert done.returncode == 0
    statuses = [run["status"] for run in json.loads(done.stdout)["runs"]]
    assert sorted(statuses) == ["diverged", "finished"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_run_that_can_be_resumed(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    (tmp_path / "s.yaml").write_text(SMALL)
    command = [sys.executable, "-m", "tacit", "run", "s.yaml", "rounds=100000", "--out", "long"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        # background jobs of a shell ignore SIGINT
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    history = tmp_path / "long" / "history.jsonl"
    while process.poll() is None and not (history.exists() and history.stat().st_size):
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert said.splitlines()[-1] == "stopped; continue with: tacit run --resume long"


def test_a_reader_that_goes_early_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m tacit list --json | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == "{"
    assert done.stdout.splitlines()[1] in ("0", "141")  # 0 where all of it fitted into the pipe
    assert done.stderr == ""


def test_importing_tacit_imports_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    heavy = ("torch", "matplotlib", "pandas", "numpy")
    code = f"import sys, tacit, tacit.cli.main; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
