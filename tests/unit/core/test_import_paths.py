"""A study can name the user's own code, and no other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import tacit
from tacit.core.errors import DataError, StudyError
from tacit.core.import_paths import import_object
from tacit.data.datasets import Source
from tacit.models.model import Model, make_module
from tacit.training.sampling import FunctionSampling

ESCAPING = """\
import functools
import os
from subprocess import check_output
import numpy as np
import torch
from numpy import save
from torch import nn
import tacit
import tacit.cli.main
from tacit import run

class Box:
    os = os

class Net(nn.Linear):
    def __init__(self): super().__init__(4, 3)

@functools.cache
def cached(): return 1

READY = nn.Linear(4, 3)
made = functools.partial(nn.Linear, 4, 3)
text = ""
"""


@pytest.fixture
def escaping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "escaping.py").write_text(ESCAPING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "escaping", raising=False)


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("subprocess:check_output", "Python itself"),
        ("builtins:eval", "Python itself"),
        ("os:system", "Python itself"),
        ("antigravity:fly", "Python itself"),
        ("test.support.os_helper:unlink", "Python itself"),
        ("torch.hub:load", "torch, which tacit needs"),
        ("torch.nn.functional:relu", "torch, which tacit needs"),
        ("torch.nn.modules.module:warnings.warn", "Python itself"),
        ("numpy:save", "numpy, which tacit needs"),
        ("yaml:unsafe_load", "pyyaml, which tacit needs"),
        ("sympy:sympify", "sympy, which tacit needs"),  # torch needs it
        ("joblib:load", "joblib, which tacit needs"),  # and scikit-learn this
        ("pip:main", "pip"),
        ("tacit:run", "tacit"),
        ("tacit.cli.main:app", "tacit"),
        ("escaping:os.system", "Python itself"),
        ("escaping:os.environ", "Python itself"),
        ("escaping:Box.os.system", "Python itself"),
        ("escaping:check_output", "Python itself"),
        ("escaping:text.join", "Python itself"),
        ("escaping:Net.__init__.__globals__", "Python itself"),
        ("escaping:np.save", "numpy, which tacit needs"),
        ("escaping:save", "numpy, which tacit needs"),
        ("escaping:torch.load", "torch, which tacit needs"),
        ("escaping:Net.load_state_dict", "torch, which tacit needs"),
        ("escaping:run", "tacit"),
        ("escaping:tacit.cli.main.app", "tacit"),
    ],
)
@pytest.mark.usefixtures("escaping")
def test_what_is_not_the_users_own_is_refused_wherever_it_is_named(path: str, owner: str) -> None:
    imported = set(sys.modules)
    with pytest.raises(StudyError, match=f"belongs to {owner}") as caught:
        make_module(Model.build(path), (4,), 3, 0)
    assert "\n" not in str(caught.value)
    for function in (
        Source.build({"name": "function", "path": path}).load,
        lambda: FunctionSampling(path).batches(torch.arange(4), 1, 2, torch.Generator()),
        lambda: tacit.Study(algorithm=path),
    ):
        with pytest.raises(StudyError, match="belongs to"):
            function()
    assert {"antigravity", "torch.hub", "pip"} & (set(sys.modules) - imported) == set()


@pytest.mark.usefixtures("escaping")
def test_what_the_user_has_written_is_found_however_it_is_decorated_or_made() -> None:
    for name in ("Net", "cached", "READY", "made"):
        assert import_object(f"escaping:{name}") is getattr(sys.modules["escaping"], name)
    for path in ("escaping:Net", "escaping:READY", "escaping:made"):
        assert make_module(Model.build(path), (4,), 3, 0)(torch.zeros(2, 4)).shape == (2, 3)


def test_modules_of_torch_and_methods_of_tacit_may_be_named() -> None:
    linear = {"in_features": 4, "out_features": 3}
    spec = {"name": "module", "path": "torch.nn:Linear", "arguments": linear}
    assert make_module(Model.build(spec), (4,), 3, 0)(torch.zeros(2, 4)).shape == (2, 3)
    path = "tacit.federated.algorithms.fedprox:FedProx"
    study = tacit.Study(algorithm={"name": path, "mu": 0.5}, model="tacit.models.model:Linear")
    assert [run.algorithm.mu for run in study.runs()] == [0.5]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("class Thing:\n    def __init__(self): 1 / 0\n", "got the class Thing"),
        ("Thing = 5\n", "expected a class or a function, got 5"),
        ("def Thing(): return 5\n", "expected a torch.nn.Module, got int"),
    ],
)
def test_a_model_is_a_module_its_class_or_a_function_that_makes_it(
    code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thing.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "thing", raising=False)
    with pytest.raises(StudyError, match=f"thing:Thing: .*{message}"):
        make_module(Model.build("thing:Thing"), (4,), 3, 0)


def test_data_come_from_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thing.py").write_text("DATA = [[1.0], [2.0]], [0, 1]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "thing", raising=False)
    source = Source.build({"name": "function", "path": "thing:DATA"})
    with pytest.raises(DataError, match=r"thing:DATA: expected a function, got \(\[\[1.0\]"):
        source.load()


def test_a_name_that_a_module_lacks_is_refused_with_the_modules_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thing.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "thing", raising=False)
    with pytest.raises(StudyError, match=f"no attribute 'Net' .{tmp_path}/thing.py"):
        import_object("thing:Net")
