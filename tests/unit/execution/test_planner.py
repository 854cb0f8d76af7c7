from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from own_code import Memorious, Net
from playground import FAST
from torch import nn

import tacit
from tacit.core import machine
from tacit.core.errors import StudyError
from tacit.execution import planner
from tacit.execution.placement import Placement
from tacit.execution.planner import cannot_travel
from tacit.execution.runner import plan_study
from tacit.federated.algorithm import Algorithm
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
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(planner, "usable_cores", lambda: 4)


def test_the_steps_of_a_plan_are_those_that_are_done(tmp_path: Path) -> None:
    planned = tacit.plan(GRID)
    tacit.run(GRID, tmp_path / "a")
    done: Counter[str] = Counter()
    for record in read_lines(tmp_path / "a" / "history.jsonl"):
        done[record["run"]] += sum(client["steps"] for client in record["clients"])
    assert {run: block.steps for block in planned.blocks for run in block.runs} == done
    assert all(block.steps == 2 * block.round_steps for block in planned.blocks)


def test_on_a_cpu_every_run_is_a_block_and_on_a_gpu_every_group(tmp_path: Path) -> None:
    alone = tacit.plan(GRID)
    assert [len(block.runs) for block in alone.blocks] == [1] * len(alone.blocks)
    assert [block.index for block in alone.blocks] == list(range(len(alone.blocks)))
    together = tacit.plan(GRID, device="cuda", on="ray")  # which asks nothing of the cluster
    assert len(together.blocks) < len(alone.blocks)
    runs = sorted(run for block in together.blocks for run in block.runs)
    assert runs == [block.runs[0] for block in alone.blocks]
    assert all(block.at_once == block.rows for block in together.blocks)
    halves = tacit.plan(GRID, device="cuda", on="ray", workers=2)
    assert len(halves.blocks) > len(together.blocks)
    assert sum(block.steps for block in halves.blocks) == sum(block.steps for block in alone.blocks)


@pytest.mark.usefixtures("four_cores")
def test_a_small_study_stays_here_and_a_large_one_is_spread_where_there_are_cores() -> None:
    small = tacit.plan({**FAST, "seed": [0, 1]})
    assert small.workers == 0
    assert "too little to be worth starting processes; ask for more workers" in small.why
    large = tacit.plan({**FAST, "dataset": "digits", "rounds": 10_000, "seed": [0, 1, 2]})
    assert large.workers == 3  # no more than runs
    larger = tacit.plan({**FAST, "dataset": "digits", "rounds": 10_000, "seed": [*range(9)]})
    assert larger.workers == 4  # no more than cores
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
    for clients, settings, side_by_side in (
        (8, {}, 4),
        (2, {}, 2),
        (1, {}, 1),
        (2, {"seed": [0, 1]}, 2),
        (8, {"model": ["cnn", "linear"]}, 1),
    ):
        plan = tacit.plan({**pictures, "clients": clients, **settings}, workers=1)
        assert (plan.threads, plan.side_by_side) == (1, side_by_side), (clients, settings)
    shared = tacit.plan({**pictures, "clients": 8, "seed": [0, 1]}, workers=2)
    assert (shared.threads, shared.side_by_side) == (1, 2)
    assert tacit.plan({**pictures, "clients": 8}, threads=3).side_by_side == 1
    short = tacit.plan({**FAST, "clients": 4})
    assert (short.threads, short.side_by_side) == (
        1,
        1,
    )  # threads would wait for each other's Python


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
        plan = plan_study(study, Placement(workers=2))
        assert plan.workers == 0
        assert "is known in this Python only" in str(plan.caution)
        assert plan_study(study, Placement(on="ray")).on is None
        with pytest.raises(StudyError, match=r"so a Ray cluster cannot play it") as caught:
            plan_study(study, Placement(on="ray", device="cuda"))
        assert caught.value.parameters == ("on",)
    imported = Study(
        **{**FAST, "dataset": {"name": "function", "path": "own_code:make_data"}, "model": Net}
    )
    assert cannot_travel([("a", imported.runs()[0])]) is None


def test_a_plan_is_told_in_words_and_as_values() -> None:
    plan = tacit.plan({**FAST, "seed": list(range(30))})
    text = str(plan)
    assert text.startswith("30 runs in 30 blocks, ")
    assert "in this process, on cpu, with 1 thread each" in text
    assert text.endswith("... and 10 more blocks")
    assert " about\n" in text
    on_gpu = tacit.plan(FAST, device="cuda", on="ray")
    assert " about\n" not in str(on_gpu)  # seconds are estimated for cores only
    values = json.loads(json.dumps(plan.to_dict()))
    assert len(values["blocks"]) == 30
    assert values["blocks"][3]["runs"] == ["003-iid-fedavg-seed-3"]


FUSIONS: dict[str, Any] = {
    **FAST,
    "model": "mlp",
    "initial": "different",
    "fusion": ["pfnm", "spahm", "average"],
}


def test_fusions_in_one_shot_share_their_training_and_longer_ones_their_machine() -> None:
    once = plan_study(Study(**{**FUSIONS, "rounds": 1}), Placement(workers=3))
    often = plan_study(Study(**{**FUSIONS, "rounds": 4}), Placement(workers=3))
    assert [len(block.runs) for block in once.blocks] == [3]
    assert [len(block.runs) for block in often.blocks] == [1, 1, 1]
    alone = plan_study(Study(**{**FUSIONS, "rounds": 1, "fusion": "pfnm"}), Placement())
    assert once.blocks[0].steps == alone.blocks[0].steps
    assert once.blocks[0].seconds == pytest.approx(alone.blocks[0].seconds)


def test_a_plan_knows_the_widest_network() -> None:
    def planned_bytes(**changed: Any) -> int:
        study = Study(**{**FUSIONS, "rounds": 1, "fusion": "pfnm", **changed})
        return plan_study(study, Placement()).blocks[0].bytes

    small = planned_bytes()
    wide = planned_bytes(widths=[5, 2000, 5])
    all_wide = planned_bytes(model={"name": "mlp", "hidden": [2000]})
    assert wide == all_wide > 10 * small
