from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from commands import Done, tacit
from torch import nn

from tacit.models.weight_files import read_state


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with two networks, and things that are none."""
    for k, width in enumerate((4, 6)):
        torch.manual_seed(k)
        module = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2))
        torch.save(module.state_dict(), tmp_path / f"{k}.pt")
    torch.save(module, tmp_path / "whole.pt")
    (tmp_path / "counts.csv").write_text("5,1\n0,9\n")
    (tmp_path / "words.csv").write_text("many,few\n")
    return tmp_path


def fuse(*arguments: str, cwd: Path) -> Done:
    return tacit("fuse", *arguments, cwd=cwd)


def test_networks_in_files_become_one(models: Path) -> None:
    done = fuse("0.pt", "1.pt", "gamma=3", "-o", "out.safetensors", "--plot", "m.svg", cwd=models)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "fused 2 models: out.safetensors"
    state = read_state(models / "out.safetensors")
    assert state["0.weight"].shape == (len(state["0.bias"]), 3)
    assert 6 <= len(state["0.bias"]) <= 10
    assert (models / "m.svg").read_bytes().startswith(b"<?xml")


def test_json_output_holds_the_assignment(models: Path) -> None:
    options = ("--counts", "counts.csv", "class_weights=true", "--seed", "1", "--json")
    done = fuse("0.pt", "1.pt", *options, "--out", "out.pt", cwd=models)
    fused = json.loads(done.stdout)
    assert fused["models"] == ["0.pt", "1.pt"]
    assert [len(neurons) for neurons in fused["assignment"][0]] == [4, 6]
    assert fused["widths"] == [len(read_state(models / "out.pt")["0.bias"])]
    assert fuse("0.pt", "1.pt", "-o", "quiet.pt", "-q", cwd=models).stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["0.pt", "-o", "x.pt"], "two models or more"),
        (["0.pt", "1.pt"], "missing option '--out'"),
        (["0.pt", "1.pt", "-o", "1.pt"], "1.pt is one of the models to fuse; name another file"),
        (["0.pt", "whole.pt", "-o", "x.pt"], "which could run code here"),
        (["0.pt", "2.pt", "-o", "x.pt"], "2.pt: there is no such file"),
        (["0.pt", "1.pt", "gama=2", "-o", "x.pt"], "did you mean gamma?"),
        (["0.pt", "1.pt", "gamma=[", "-o", "x.pt"], "gamma: '[' is not valid YAML"),
        (["0.pt", "1.pt", "--method", "pfn", "-o", "x.pt"], "did you mean pfnm?"),
        (
            ["0.pt", "1.pt", "--method", "average", "-o", "x.pt"],
            "average needs networks of the same widths",
        ),
        (["0.pt", "1.pt", "class_weights=true", "-o", "x.pt"], "needs counts"),
        (
            ["0.pt", "1.pt", "--counts", "words.csv", "-o", "x.pt"],
            "words.csv: expected numbers between commas",
        ),
        (["0.pt", "1.pt", "--counts", "none.csv", "-o", "x.pt"], "none.csv"),
        (["0.pt", "1.pt", "--counts", "counts.csv", "-o", "x.pt"], "does not use counts"),
        (
            ["0.pt", "1.pt", "name=spahm", "-o", "x.pt"],
            "the method is an option, such as --method spahm",
        ),
        (["0.pt", "1.pt", "-o", "x.xyz"], "expected a name that ends in .pt"),
        (["0.pt", ".", "-o", "x.pt"], ". is not a file"),
        (
            ["0.pt", "1.pt", "--plot", "m.jpg", "-o", "x.pt"],
            "expected a name that ends in .svg, .png or .pdf",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(
    models: Path, arguments: list[str], said: str
) -> None:
    before = {path.name: path.read_bytes() for path in models.iterdir()}
    done = fuse(*arguments, cwd=models)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert {path.name: path.read_bytes() for path in models.iterdir()} == before
