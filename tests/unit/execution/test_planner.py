from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own_code import Memorious, Net
from playground import FAST
from torch import nn

import tacit
from tacit.core.errors import StudyError
from tacit.execution import devices, planner
from tacit.execution.estimates import RunCost, measure_model
from tacit.execution.plan import Block
from tacit.execution.blocks import divided, fitted
from tacit.execution.placement import Placement
from tacit.execution.planner import cannot_travel
from tacit.execution.runner import plan_study
from tacit.federated.algorithm import Algorithm
from tacit.models.model import Model
from tacit.records.history import read_lines
from tacit.study.study import Study

GRID: dict[str, Any] = {
    "dataset": "digits",
    "model": "mlp",
    "clients": 3,
    "rounds": 2,
    "algorithm": ["fedavg", {"name": "fedprox", "mu": [0.1, 1]}, "fedsgd"],
    "split": ["iid", "quantity_skew"],
    "seed": [0, 1],
    "local_epochs": {"grid": [[1, 2, 3]]},
    "centralised": True,
}


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has four cores."""
    monkeypatch.setattr(devices, "cores", lambda: 4)
    monkeypatch.setattr(planner, "cores", lambda: 4)


def run_costs(*steps: int) -> dict[str, RunCost]:
    return {str(k): RunCost(1, count, count, 1, 1, 1.0, 0.0) for k, count in enumerate(steps)}


def test_the_steps_of_a_plan_are_those_that_are_done(tmp_path: Path) -> None:
    planned = tacit.plan(GRID)
    tacit.run(GRID, tmp_path / "a")
    done: dict[str, int] = {}
    for record in read_lines(tmp_path / "a" / "history.jsonl"):
        done[record["run"]] = done.get(record["run"], 0) + sum(
            client["steps"] for client in record["clients"]
        )
    assert {run: block.steps for block in planned.blocks for run in block.runs} == done
    assert all(block.steps == 2 * block.round_steps for block in planned.blocks)


def test_on_a_cpu_every_run_is_a_block_and_on_a_gpu_every_group(tmp_path: Path) -> None:
    alone = tacit.plan(GRID)
    assert [len(block.runs) for block in alone.blocks] == [1] * len(alone.blocks)
    assert [block.index for block in alone.blocks] == list(range(len(alone.blocks)))
    together = tacit.plan(
        GRID, device="cuda", on="ray"
    )  # the cluster's GPUs; nothing is asked of it yet
    assert len(together.blocks) < len(alone.blocks)
    assert sorted(run for block in together.blocks for run in block.runs) == [
        block.runs[0] for block in alone.blocks
    ]
    assert all(block.at_once == block.rows for block in together.blocks)
    halves = tacit.plan(GRID, device="cuda", on="ray", workers=2)
    assert len(halves.blocks) > len(together.blocks)
    assert sum(block.steps for block in halves.blocks) == sum(block.steps for block in alone.blocks)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 6))
def test_parts_hold_every_run_once_and_about_the_same_work(steps: list[int], count: int) -> None:
    costs, run = run_costs(*steps), Study(**FAST).runs()[0]
    parts = divided([(id, run) for id in costs], min(count, len(steps)), costs)
    assert sorted(int(id) for part in parts for id, _ in part) == list(range(len(steps)))
    assert all(part == sorted(part, key=lambda one: int(one[0])) for part in parts)
    work = [sum(costs[id].steps for id, _ in part) for part in parts]
    assert max(work) - min(work) <= max(steps)


@given(st.integers(1, 500), st.integers(1, 10**6), st.integers(0, 10**9), st.integers(0, 10**9))
def test_rows_at_a_time_fit_the_memory_or_are_one(
    rows: int, row: int, fixed: int, room: int
) -> None:
    block = Block(0, ("a",), rows, 1, 1, 1, fixed + row, 1.0)
    found = fitted(block, row, room)
    assert 1 <= found.at_once <= rows
    assert found.bytes == fixed + found.at_once * row
    assert found.bytes <= room or found.at_once == 1
    assert found.at_once == rows or found.bytes + row > room  # no more would fit
    assert fitted(block, row, None).at_once == rows


def test_a_models_numbers_are_counted() -> None:
    """The CNN on 3 x 32 x 32, by hand: each convolution gives channels x side^2 outputs of (inputs x 25) products."""
    data = Study(**FAST).runs()[0].dataset.load()
    pictures = type(data)(
        "noise", torch.rand(2, 3, 32, 32), data.y[:2], torch.rand(2, 3, 32, 32), data.y[:2], ("a",)
    )
    found = measure_model(Model.build("cnn").make((3, 32, 32), 10), pictures)
    assert found.parameters == 62_006
    products = 6 * 28**2 * 75 + 16 * 10**2 * 150 + 400 * 120 + 120 * 84 + 84 * 10
    assert found.operations == 2 * products
    outputs = (
        2 * 6 * 28**2 + 6 * 14**2 + 2 * 16 * 10**2 + 16 * 5**2
    )  # convolution, ReLU, pooling, twice
    assert found.activations == outputs + 400 + 2 * (120 + 84) + 10


def test_what_costs_memory_costs_it_in_the_estimate() -> None:
    def block(**changed: Any) -> Block:
        return tacit.plan({**FAST, "model": "mlp", **changed}).blocks[0]

    plain = block()
    assert block(model={"name": "mlp", "hidden": [256]}).bytes > plain.bytes
    assert block(optimiser="adam").bytes > plain.bytes
    assert block(batch_size=None).bytes > plain.bytes
    assert block(algorithm="scaffold").bytes > plain.bytes
    assert block(split="feature_noise").bytes > plain.bytes


def test_a_small_study_stays_here_and_a_large_one_is_spread_where_there_are_cores() -> None:
    small = tacit.plan({**FAST, "seed": [0, 1]})
    assert small.workers == 0
    assert "too little to pay for starting processes" in small.why
    large = tacit.plan({**FAST, "dataset": "digits", "rounds": 10_000, "seed": [0, 1, 2]})
    assert large.workers == (
        min(len(os.sched_getaffinity(0)), 3) if len(os.sched_getaffinity(0)) > 1 else 0
    )
    own = tacit.plan({**FAST, "rounds": 100_000, "seed": [0, 1], "algorithm": Memorious()})
    assert own.workers == 0
    assert tacit.plan({**FAST, "seed": [0, 1], "algorithm": Memorious()}, workers=2).workers == 2
    assert tacit.plan({**FAST, "seed": [0, 1]}, workers=5).workers == 2  # no more than blocks
    assert tacit.plan({**FAST, "seed": [0, 1], "rounds": 100_000}, workers=1).workers == 0


@pytest.mark.usefixtures("four_cores")
def test_a_client_is_computed_by_one_thread_and_spare_cores_take_others() -> None:
    pictures = {
        "dataset": {"name": "function", "path": "own_code:make_pictures"},
        "model": "cnn",
        "rounds": 1,
    }
    for clients, settings, beside in (
        (8, {}, 4),
        (2, {}, 2),
        (1, {}, 1),
        (2, {"seed": [0, 1]}, 2),
        (8, {"model": ["cnn", "linear"]}, 1),
    ):
        plan = tacit.plan({**pictures, "clients": clients, **settings}, workers=1)
        assert (plan.threads, plan.beside) == (1, beside), (clients, settings)
    shared = tacit.plan({**pictures, "clients": 8, "seed": [0, 1]}, workers=2)
    assert (shared.threads, shared.beside) == (1, 2)
    assert tacit.plan({**pictures, "clients": 8}, threads=3).beside == 1
    short = tacit.plan({**FAST, "clients": 4})
    assert (short.threads, short.beside) == (1, 1)  # threads would wait for each other's Python


@pytest.mark.usefixtures("four_cores")
def test_threads_are_what_was_asked_for() -> None:
    assert tacit.plan({**FAST, "seed": [0, 1]}).threads == 1
    assert tacit.plan({**FAST, "seed": [0, 1]}, workers=2).threads == 1
    assert tacit.plan({**FAST, "seed": [0, 1]}, threads=3).threads == 3
    with pytest.raises(StudyError, match="this machine has 4 cores for this process, got 5000"):
        tacit.plan(FAST, threads=5000)


def test_what_only_this_python_knows_stays_here() -> None:
    class Inner(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 3)

    @dataclass(frozen=True)
    class Private(Algorithm):
        pass

    for settings in ({"model": Inner}, {"algorithm": Private()}, {"model": nn.Linear(4, 3)}):
        study = Study(**{**FAST, **settings, "seed": [0, 1]})
        assert cannot_travel([("a", study.runs()[0])]) is not None
        found = plan_study(study, Placement(workers=2))
        assert found.workers == 0
        assert "is known in this Python only" in str(found.caution)
    imported = Study(
        **{**FAST, "dataset": {"name": "function", "path": "own_code:make_data"}, "model": Net}
    )
    assert cannot_travel([("a", imported.runs()[0])]) is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"workers": 0}, "workers: expected a whole number of 1 or more, got 0"),
        ({"workers": True}, "workers: expected a whole number"),
        ({"threads": -1}, "threads: expected a whole number of 1 or more, got -1"),
        ({"device": "cpu,cpu"}, "to spread work over cores, use workers"),
        ({"device": "cuda:0,cuda:1", "on": "ray"}, "on Ray every worker takes one"),
        ({"on": ""}, "on: expected a Ray cluster's address"),
    ],
)
def test_places_that_make_no_sense_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(StudyError, match=text):
        tacit.plan(FAST, **options)


def test_a_plan_is_told_in_words_and_as_values() -> None:
    found = tacit.plan({**FAST, "seed": list(range(30))})
    text = str(found)
    assert text.startswith("30 runs in 30 blocks, ")
    assert "in this process, on cpu, with 1 thread each" in text
    assert text.endswith("... and 10 more blocks")
    assert " about\n" in text
    assert " about\n" not in str(
        tacit.plan(FAST, device="cuda", on="ray")
    )  # seconds are told of cores only
    values = json.loads(json.dumps(found.to_dict()))
    assert len(values["blocks"]) == 30
    assert values["blocks"][3]["runs"] == ["003-iid-fedavg-seed-3"]


FUSIONS: dict[str, Any] = {
    **FAST,
    "model": "mlp",
    "initial": "different",
    "fusion": ["pfnm", "spahm", "average"],
}


def test_fusions_in_one_shot_share_their_training_and_longer_ones_their_machine() -> None:
    once, often = (
        plan_study(Study(**{**FUSIONS, "rounds": n}), Placement(workers=3)) for n in (1, 4)
    )
    assert [len(block.runs) for block in once.blocks] == [3]
    assert [len(block.runs) for block in often.blocks] == [1, 1, 1]
    alone = plan_study(Study(**{**FUSIONS, "rounds": 1, "fusion": "pfnm"}), Placement())
    assert once.blocks[0].steps == alone.blocks[0].steps
    assert once.blocks[0].seconds == pytest.approx(alone.blocks[0].seconds)


def test_a_plan_knows_the_widest_network() -> None:
    small, wide, same = (
        plan_study(Study(**{**FUSIONS, "rounds": 1, "fusion": "pfnm", **more}), Placement())
        .blocks[0]
        .bytes
        for more in ({}, {"widths": [5, 2000, 5]}, {"model": {"name": "mlp", "hidden": [2000]}})
    )
    assert wide == same > 10 * small
