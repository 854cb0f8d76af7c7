"""Last batches that are smaller are left out, where a study says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from playground import FAST, simulate, tiny_dataset
from torch import nn

import tacit
from tacit.core.errors import StudyError

DROP_LAST = {"name": "epochs", "drop_last": True}


class Normed(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.Linear(inputs, 4), nn.BatchNorm1d(4), nn.Linear(4, outputs))


def test_batch_norm_can_leave_out_a_lone_sample() -> None:
    data = tiny_dataset(66)  # 22 samples each, of which 2 are tests: batches of 19 leave one
    settings: Any = {"model": Normed, "batch_size": 19, "fine_tuning": 1}
    with pytest.raises(StudyError, match=r"or leave that sample out: .*drop_last: true\}"):
        simulate(data, **settings)
    engine = simulate(data, sampling=DROP_LAST, **settings)
    for client in engine.records[-1]["clients"]:  # type: ignore[attr-defined]
        assert client["steps"] == 1


def test_batch_norm_still_refuses_a_client_of_one_sample() -> None:
    with pytest.raises(StudyError, match=r"has 1 in batches of 19; use another batch_size$"):
        simulate(
            tiny_dataset(30),
            model=Normed,
            batch_size=19,
            clients=30,
            local_test=0,
            sampling=DROP_LAST,
        )


def test_a_servers_lone_sample_is_left_out_too() -> None:
    settings: Any = {"model": Normed, "batch_size": 9, "server_samples": 10, "pretraining": 1}
    with pytest.raises(StudyError, match="10 server_samples leave one for the last batch"):
        simulate(tiny_dataset(70), **settings)
    engine = simulate(tiny_dataset(70), sampling=DROP_LAST, **settings)
    assert engine.states[0].status == "finished"


def test_steps_are_counted_as_they_are_taken() -> None:
    """Clients of 33 and 32 samples both do one step of 32, so FedNova is FedAvg."""
    settings: Any = {"clients": 2, "local_test": 0, "batch_size": 32, "sampling": DROP_LAST}
    settings["algorithm"] = [{"name": "fedavg"}, {"name": "fednova"}]
    even, normalised = simulate(tiny_dataset(65), **settings).states
    torch.testing.assert_close(even.server["x"], normalised.server["x"])
    even, normalised = simulate(tiny_dataset(65), **{**settings, "sampling": "epochs"}).states
    assert not torch.allclose(even.server["x"], normalised.server["x"])


def test_the_plan_expects_the_steps_that_are_taken() -> None:
    for sampling in ("epochs", DROP_LAST):
        settings: Any = {"sampling": sampling, "local_epochs": 2}
        engine = simulate(**settings)
        steps = 0
        for record in engine.records:  # type: ignore[attr-defined]
            steps += sum(client["steps"] for client in record["clients"])
        assert tacit.plan({**FAST, **settings}).blocks[0].steps == steps
