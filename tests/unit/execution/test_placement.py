"""The options that say where a study is played: shown one by one, and checked at once."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playground import FAST

import tacit
from tacit.core.errors import StudyError
from tacit.execution.placement import ExecutionOptions, Placement

FUNCTIONS = [tacit.run, tacit.resume, tacit.plan]
DEFAULTS = {
    "data": None,
    "device": "cpu",
    "workers": None,
    "threads": None,
    "on": None,
    "exact": False,
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_signature_shows_every_option_with_its_type_and_default(
    function: Callable[..., Any],
) -> None:
    parameters = inspect.signature(function).parameters
    options = {name: parameters[name] for name in DEFAULTS}
    assert {name: option.default for name, option in options.items()} == DEFAULTS
    assert {option.kind for option in options.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert options["workers"].annotation == "int | None"
    assert "options" not in parameters
    assert set(ExecutionOptions.__annotations__) == set(DEFAULTS)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_help_shows_every_option(function: Callable[..., Any]) -> None:
    text = pydoc.plain(pydoc.render_doc(function))
    assert "device: 'str' = 'cpu', workers: 'int | None' = None" in text
    assert "exact: 'bool' = False" in text
    assert "tacit.run" in text or "`workers`: how many processes share the work" in text


@pytest.mark.parametrize(
    ("function", "wrong", "text"),
    [
        (tacit.run, "worker", r"run\(\) got .* 'worker'; did you mean workers\?"),
        (tacit.run, "on_evnt", r"run\(\) got .* 'on_evnt'; did you mean on_event\?"),
        (tacit.resume, "devise", r"resume\(\) got .* 'devise'; did you mean device\?"),
        (tacit.plan, "xyz", r"plan\(\) got .* 'xyz'; known: data, device, exact, on, "),
        (tacit.plan, "on_event", r"plan\(\) got an unexpected keyword argument 'on_event'"),
    ],
)
def test_an_unknown_option_is_named(
    function: Callable[..., Any], wrong: str, text: str, tmp_path: Path
) -> None:
    with pytest.raises(TypeError, match=text):
        function(tmp_path / "a", **{wrong: 2})
    assert not list(tmp_path.iterdir())


def test_options_are_taken_as_they_are() -> None:
    assert Placement.of({}) == Placement()
    options = ExecutionOptions(data="somewhere", workers=2, on="ray", exact=True)
    assert Placement.of(options) == Placement("cpu", 2, None, "ray", True)


@pytest.mark.parametrize(
    ("options", "text", "parameters"),
    [
        ({"workers": 0}, "workers: expected a whole number of 1 or more, got 0", ["workers"]),
        ({"workers": True}, "workers: expected a whole number", ["workers"]),
        ({"threads": -1}, "threads: expected a whole number of 1 or more, got -1", ["threads"]),
        ({"threads": 10**6}, "threads: this machine has ", ["threads"]),
        ({"device": "gpu"}, "device: expected cpu or cuda, got 'gpu'", ["device"]),
        ({"device": "cuda:x"}, "device: expected cpu or cuda", ["device"]),
        ({"device": "cpu:0"}, "device: expected cpu or cuda", ["device"]),
        ({"device": "cpu,cpu"}, "to spread work over cores, use workers", ["device"]),
        ({"device": "cuda:0,cuda:1", "on": "ray"}, "on Ray every worker takes one", ["device"]),
        ({"on": ""}, "on: expected a Ray cluster's address", ["on"]),
        ({"on": 3}, "on: expected a Ray cluster's address", ["on"]),
    ],
)
def test_a_placement_that_makes_no_sense_is_refused(
    options: dict[str, Any], text: str, parameters: list[str]
) -> None:
    with pytest.raises(StudyError, match=text) as caught:
        tacit.plan(FAST, **options)
    assert list(caught.value.parameters) == parameters
    assert "--" not in str(caught.value)


def test_several_gpus_are_named_and_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert Placement("cuda:0,cuda:1").devices == ("cuda:0", "cuda:1")
    with pytest.raises(StudyError, match="to use several GPUs, name them all") as caught:
        Placement("cuda", workers=2)
    assert caught.value.parameters == ("device", "workers")
    with pytest.raises(StudyError, match="this machine has 2 GPUs, from cuda:0; got 'cuda:2'"):
        Placement("cuda:2")
