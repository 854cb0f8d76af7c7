"""Models that come as Python objects."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import own_code
import pytest
import torch
from torch import nn

import tacit
from tacit.core.errors import StudyError
from tacit.models import own
from tacit.models.model import Model, make_module
from tacit.study.study import Study

SMALL: dict[str, Any] = {"dataset": "iris", "clients": 3, "rounds": 1}


class Sized(nn.Module):
    def __init__(self, inputs: int, outputs: int, width: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


class Shaped(nn.Sequential):
    def __init__(self, shape: tuple[int, ...], *, classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))


def weights(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def initial_weights(model: Model, seed: int = 0) -> torch.Tensor:
    return weights(make_module(model, (4,), 3, seed))


def test_sizes_that_a_constructor_asks_for_are_filled_in() -> None:
    sized = make_module(Model.build(Sized), (4,), 3, 0)
    assert sized(torch.zeros(2, 4)).shape == (2, 3)
    shaped = make_module(Model.build(Shaped), (1, 8, 8), 10, 0)
    assert shaped(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    model = Model.build(lambda inputs, outputs: nn.Linear(inputs, outputs))
    assert make_module(model, (4,), 1, 0)(torch.zeros(2, 4)).shape == (2, 1)


def test_arguments_that_are_given_go_before_those_that_are_filled_in() -> None:
    spec = {"name": "module", "path": "own_code:Far", "arguments": {"outputs": 5}}
    message = r"it gives \(5,\); a class that has the parameters inputs and outputs"
    with pytest.raises(StudyError, match=message):
        make_module(Model.build(spec), (4,), 3, 0)


def test_a_study_takes_a_class_a_function_and_a_module(tmp_path: Path) -> None:
    class Local(nn.Linear):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__(inputs, outputs)

    models = [Sized, Local, lambda inputs, outputs: nn.Linear(inputs, outputs), Sized(4, 3), "mlp"]
    study = Study(**SMALL, model=models)
    assert len(study.runs()) == 5
    results = tacit.run(study, tmp_path / "a")
    for run in results.runs:
        assert results.model(run)(torch.zeros(2, 4)).shape == (2, 3)
    assert tacit.resume(tmp_path / "a").summary()["status"].tolist() == ["finished"] * 5
    assert Study.from_file(tmp_path / "a" / "study.yaml").to_dict() == study.to_dict()


def test_a_class_may_come_with_arguments() -> None:
    model = {"name": "module", "path": Sized, "arguments": {"width": {"grid": [5, 6]}}}
    runs = Study(**SMALL, model=model).runs()
    assert [len(initial_weights(run.model)) for run in runs] == [43, 51]  # 8 w + 3


def test_a_module_starts_every_seed_from_its_own_weights_as_they_were() -> None:
    module = Sized(4, 3)
    start = weights(module).clone()
    model = Study(**SMALL, model=module).runs()[0].model
    with torch.no_grad():
        module.layers[0].weight.zero_()
    assert torch.equal(initial_weights(model, 0), start)
    assert torch.equal(initial_weights(model, 1), start)


def test_modules_with_other_weights_and_functions_with_other_code_have_other_names() -> None:
    factories = [lambda outputs, k=k: nn.Linear(4, outputs, bias=k) for k in (True, False)]
    partials = [functools.partial(Sized, width=width) for width in (3, 4)]
    modules = [Sized(4, 3), Sized(4, 3)]
    functions = [lambda outputs: nn.Linear(4, outputs)]
    names = {own.remember(value) for value in (*factories, *partials, *modules, *functions)}
    assert len(names) == 7
    module = make_module(Model.build(partials[0]), (4,), 3, 0)
    assert module(torch.zeros(2, 4)).shape == (2, 3)
    assert own.remember(Sized) == f"{__name__}:Sized"
    assert own.remember(own_code.Net) == "own_code:Net"


def test_the_same_object_is_found_again_and_another_sessions_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = Sized(4, 3)
    model = Model.build(module)
    spec = model.spec()
    monkeypatch.setattr(own, "OWN", {})
    message = r"was given as a Python object, .* pass the same object to a Study first"
    with pytest.raises(StudyError, match=message):
        make_module(Model.build(spec), (4,), 3, 0)
    Study(**SMALL, model=module)
    assert torch.equal(initial_weights(Model.build(spec)), weights(module))


def test_a_class_of_a_script_is_resumed_by_the_script_and_refused_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "OWN", {})
    script = """
import sys, tacit
from torch import nn

class Net(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)

study = tacit.Study(dataset="iris", clients=3, rounds=1, model=Net)
results = tacit.resume("out") if "again" in sys.argv else tacit.run(study, "out")
print(results.model(results.best()))
"""
    (tmp_path / "script.py").write_text(script)
    for arguments in ([], ["again"]):
        process = subprocess.run(
            [sys.executable, "script.py", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert process.stdout.startswith("Net(")
    assert "path: __main__:Net" in (tmp_path / "out" / "study.yaml").read_text()
    with pytest.raises(StudyError, match="__main__:Net was given as a Python object"):
        tacit.resume(tmp_path / "out")


def test_what_is_no_model_is_refused_in_one_line() -> None:
    with pytest.raises(StudyError, match=r"expected a torch\.nn\.Module, got int"):
        make_module(Model.build(lambda: 3), (4,), 3, 0)
    with pytest.raises(StudyError, match="model: expected a name"):
        Study(**SMALL, model=3)


def test_objects_of_one_name_are_told_apart() -> None:
    def local(width: int) -> type[nn.Module]:
        class Net(nn.Linear):
            W = width

            def __init__(self) -> None:
                super().__init__(4, 3)

        return Net

    def listed(sizes: list[int]) -> Any:
        return lambda: nn.Sequential(nn.Linear(4, sizes[0]), nn.Linear(sizes[0], 3))

    def keyed(width: int) -> Any:
        def make(*, width: int = width) -> nn.Module:
            return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 3))

        return make

    def twin(width: int) -> type[nn.Module]:
        def initialise(self: nn.Linear) -> None:
            nn.Linear.__init__(self, 4, 3)

        return type("Twin", (nn.Linear,), {"__init__": initialise, "W": width})

    pairs = [
        [local(4), local(64)],
        [listed([4]), listed([64])],
        [keyed(4), keyed(64)],
        [twin(1), twin(2)],
    ]
    for pair in pairs:
        assert len(Study("o", model=pair, dataset="iris").runs()) == 2


def test_a_study_keeps_the_class_it_was_given() -> None:
    def named(width: int) -> type[nn.Module]:
        def initialise(self: nn.Sequential) -> None:
            nn.Sequential.__init__(self, nn.Linear(4, width), nn.Linear(width, 3))

        attributes = {"__module__": "nowhere", "__init__": initialise}
        return type("Given", (nn.Sequential,), attributes)

    first = Study("first", model=named(5), dataset="iris")
    Study("second", model=named(7), dataset="iris")
    module = first.runs()[0].model.make((4,), 3)
    assert module[0].out_features == 5  # type: ignore[index]


def test_what_a_module_draws_when_it_is_imported_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
from torch import nn

class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)

net = Net()
"""
    (tmp_path / "drawing_when_imported.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)

    def module(name: str) -> nn.Module:
        return make_module(Model.build(f"drawing_when_imported:{name}"), (4,), 2, 0)

    first = module("Net")  # which imports it
    second = module("Net")
    assert torch.equal(first.weight, second.weight)
    ready = module("net")
    del sys.modules["drawing_when_imported"]
    torch.manual_seed(5)
    assert torch.equal(ready.weight, module("net").weight)
