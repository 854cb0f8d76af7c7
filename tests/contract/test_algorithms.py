"""Every registered algorithm keeps the contract, whoever wrote it."""

from __future__ import annotations

import copy

import pytest
import torch
from playground import (
    Quadratic,
    a_cohort,
    an_optimiser_for,
    play,
    sent_rows,
    simulate,
    tiny_dataset,
    varied,
)

from tacit.core.rows import columns
from tacit.federated.algorithm import Algorithm
from tacit.federated.client_side import client_class
from tacit.federated.cohort import in_order
from tacit.study.study import describe
from tacit.training.batches import ListedBatches, Samples
from tacit.training.row_trainer import RowTrainer
from tacit.training.trainer import Work

NAMES = list(Algorithm.known())
UNEQUAL = {
    "split": {"name": "quantity_skew", "beta": 2.0},
    "local_epochs": [3, 1, 2],
    "batch_size": [7, 5, 64],
}


@pytest.fixture(params=NAMES)
def algorithm(request: pytest.FixtureRequest) -> Algorithm:
    return Algorithm.build(request.param)


def two_runs(algorithm: Algorithm) -> dict[str, object]:
    """Two values of every float field, also the optimiser's.

    Clients have unequal data, epochs and batches.
    """
    items = {"algorithm": algorithm, "optimiser": an_optimiser_for(algorithm)}
    pairs = {name: [varied(item, 1.0), varied(item, 0.9)] for name, item in items.items()}
    return {**pairs, "rounds": 3, **UNEQUAL}


@pytest.mark.parametrize("form", ["loop", "vmap"])
def test_rows_together_equal_each_row_alone(algorithm: Algorithm, form: str) -> None:
    study = two_runs(algorithm)
    together = simulate(tiny_dataset(), form=form, at_once=100, model="mlp", **study)
    alone = simulate(tiny_dataset(), form="loop", at_once=1, model="mlp", **study)
    for batched, single in zip(together.states, alone.states, strict=True):
        torch.testing.assert_close(batched.server["x"], single.server["x"], rtol=1e-9, atol=1e-11)
        assert batched.method_memory.keys() == single.method_memory.keys()
        for client, rows in batched.method_memory.items():
            torch.testing.assert_close(rows, single.method_memory[client], rtol=1e-9, atol=1e-11)
    has_no_floats = varied(algorithm, 0.9) == algorithm
    assert len(alone.states) == (2 if has_no_floats else 4)


def test_looped_rows_of_two_runs_equal_each_run_alone_to_the_bit(algorithm: Algorithm) -> None:
    study = two_runs(algorithm)
    together = simulate(form="loop", at_once=1, **study)
    for state in together.states:
        alone = simulate(form="loop", at_once=1, **describe(state.run))
        assert torch.equal(state.server["x"], alone.states[0].server["x"])


def test_the_order_in_which_clients_reply_is_irrelevant(algorithm: Algorithm) -> None:
    message, server, work = a_round_of_messages(algorithm)
    samples = [3, 1, 2, 5]
    order = [2, 0, 3, 1]
    moved = {name: rows[order] for name, rows in message.items()}
    moved_samples = torch.tensor(samples, dtype=torch.float64)[order][:, None]
    moved_back, ids, (n, steps) = in_order(moved, order, moved_samples, work.steps[order])
    assert ids == (0, 1, 2, 3)
    straight_cohort = a_cohort(message, samples, work.steps, algorithm)
    sorted_cohort = a_cohort(moved_back, n.flatten().tolist(), steps, algorithm)
    straight_state = algorithm.aggregate(server, straight_cohort)
    sorted_state = algorithm.aggregate(server, sorted_cohort)
    for name, value in straight_state.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(sorted_state[name]))


def test_hooks_leave_their_inputs_untouched(algorithm: Algorithm) -> None:
    message, server, work = a_round_of_messages(algorithm)
    before = copy.deepcopy((message, server))
    algorithm.aggregate(server, a_cohort(message, [1, 2, 3, 4], work.steps, algorithm))
    torch.testing.assert_close((message, server), before, rtol=0, atol=0)


@pytest.mark.parametrize(
    "name", [name for name, cls in Algorithm.known().items() if cls.neutral is not None]
)
def test_its_neutral_setting_is_fedavg(name: str) -> None:
    settings = Algorithm.known()[name].neutral or {}
    algorithm = Algorithm.build({"name": name, **settings})
    study = {"optimiser": an_optimiser_for(algorithm), "rounds": 4}
    study |= {"local_epochs": 2, "batch_size": 8}
    if work := algorithm.local_work:
        study |= {"local_epochs": work.epochs, "batch_size": work.batch_size}
    neutral = simulate(tiny_dataset(), algorithm=algorithm, **study).states[0]
    fedavg = simulate(tiny_dataset(), algorithm="fedavg", **study).states[0]
    torch.testing.assert_close(neutral.server["x"], fedavg.server["x"], rtol=1e-10, atol=1e-12)


def test_it_converges_on_a_quadratic(algorithm: Algorithm) -> None:
    centres = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    states = play(algorithm, Quadratic(centres), steps=[3] * 4, samples=[5] * 4, rounds=300)
    if algorithm.name == "local":
        torch.testing.assert_close(states[-1]["mine"]["w"], centres)
        return
    best = centres.mean(0)
    first_gap = (states[0]["x"] - best).norm()
    last_gap = (states[-1]["x"] - best).norm()
    assert last_gap < 1e-2 * first_gap


def a_round_of_messages(
    algorithm: Algorithm,
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], Work]:
    """Messages of four clients after one round of hooks, which leave their inputs alone."""
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(5, dtype=torch.float64, generator=draw)
    server = algorithm.server_init(x, 4)
    sent = sent_rows(algorithm, server, 4)
    view = columns([algorithm] * 4, client_class(type(algorithm)), x)
    optimiser = an_optimiser_for(algorithm)
    rule = columns([optimiser] * 4, type(optimiser), x)
    mine = view.client_init(sent["x"])
    w, mine, begun = view.begin(sent, mine)
    n = torch.ones(4, 1, dtype=torch.float64)
    who = torch.arange(4)
    problem = Quadratic(torch.randn(4, 5, dtype=torch.float64, generator=draw))
    trainer = RowTrainer(None, Samples(who, who), gradient=problem)
    before = copy.deepcopy((w, sent, mine))
    trained = trainer.train(
        w,
        [ListedBatches([shard] * 3) for shard in who.split(1)],
        optimiser=rule,  # type: ignore[arg-type]
        rule=view,
        start=begun,
        sent=sent,
        mine=mine,
        samples=n,
        epochs=n,
        full_of=who.split(1),
        seeds=range(4),
    )
    message, _ = view.finish(trained.w, sent, mine, trained.work)
    view.personal(sent, mine)
    torch.testing.assert_close((w, sent, mine), before, rtol=0, atol=0)
    g = w - problem.centres
    untouched = g.clone()
    view.correct(g, w, sent, mine, trained.work)
    assert torch.equal(g, untouched)
    return message, dict(server), trained.work
