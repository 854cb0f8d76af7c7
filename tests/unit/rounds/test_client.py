"""The client's half of a round: several clients in one call are what each is alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from playground import FAST, simulate, tiny_dataset

from tacit.core.rows import join, pick
from tacit.rounds.client import draw_batches, take_part
from tacit.rounds.participant import ClientOutcome
from tacit.rounds.server import broadcast
from tacit.simulation.kinds.horizontal import Simulation
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.study.study import Study

CASES: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fednova": {"algorithm": "fednova"},
    "scaffold, I": {
        "algorithm": {"name": "scaffold", "option": "I"},
        "model": {"name": "mlp", "hidden": [16]},
    },
    "scaffold, II": {
        "algorithm": "scaffold",
        "wire": [{"name": "top_k", "share": 0.2}, "quantise"],
    },
    "sums": {"algorithm": "scaffold", "wire": ["sum"]},
    "poisson": {"sampling": "poisson", "batch_size": 3},
    "batch norm and dropout": {
        "dataset": {"name": "function", "path": "own_code:make_data"},
        "model": {"name": "module", "path": "own_code:Net"},
        "batch_size": 10,
        "split": "iid",
    },
}


def played(simulation: Simulation, clients: list[int]) -> list[ClientOutcome]:
    """The second round of these clients, in one call."""
    state = simulation.states[0]
    trainer = simulation.trainer
    participants = []
    sent = []
    batches = []
    for client in clients:
        memory = state.recall(client)
        participants.append(replace(state.participant(client), memory=memory))
        sent.append(broadcast(state.run, state.server, client))
        shard = state.train[client]
        batches.append(draw_batches(state.run, client, state.round, shard, trainer))
    buffers = join([pick(state.buffers, None) for _ in clients])
    outcomes = take_part(participants, join(sent), batches, trainer, buffers)
    return [outcome for outcome in outcomes if outcome is not None]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_clients_in_one_call_are_what_each_is_alone_to_the_bit(
    case: str, dtype: torch.dtype
) -> None:
    uneven = {
        "split": {"name": "quantity_skew", "beta": 2.0},
        "local_epochs": [1, 4, 2, 1, 3],
        "batch_size": 7,
    }
    run = Study(**{**FAST, "clients": 5, **uneven, **CASES[case]}).runs()[0]
    assert isinstance(run, HorizontalRun)
    data = run.dataset.load()
    if dtype == torch.float64:
        data = replace(data, x=data.x.double(), test_x=data.test_x.double())
    simulation = Simulation([("run", run)], data)
    list(simulation.play_round())
    for client, together in enumerate(played(simulation, list(range(5)))):
        (alone,) = played(simulation, [client])
        torch.testing.assert_close(vars(together.reply), vars(alone.reply), rtol=0, atol=0)
        torch.testing.assert_close(vars(together.memory), vars(alone.memory), rtol=0, atol=0)
        assert together.figures == alone.figures


def test_a_client_that_saw_no_sample_has_no_figures() -> None:
    sampling = {"name": "function", "path": "own_batches:always_empty"}
    simulation = simulate(tiny_dataset(), sampling=sampling)
    for client in simulation.records[-1]["clients"]:  # type: ignore[attr-defined]
        assert client["steps"] == 2
        assert client["train_loss"] is None
        assert client["train_accuracy"] is None
