"""The server among replies that lie: they are refused by name, and the honest ones count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from playground import FAST, tiny_dataset
from torch import Tensor

from tacit.federated.algorithm import Algorithm
from tacit.federated.cohort import WEIGHT
from tacit.rounds.participant import Reply
from tacit.rounds.reply_checks import form_of
from tacit.rounds.server import RoundEnd, close_round, expected_form
from tacit.rounds.server_state import ServerState
from tacit.rounds.transmission import transmit
from tacit.simulation.kinds.horizontal import Simulation
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.study.study import Study

CLIENTS = 4
TOP_K = {"name": "top_k", "share": 0.2}


def a_round(**settings: Any) -> tuple[HorizontalRun, ServerState, list[Reply]]:
    """A run before its first round, and the honest replies of that round."""
    study = Study("lies", **{**FAST, "clients": CLIENTS, **settings})
    run = study.runs()[0]
    assert isinstance(run, HorizontalRun)
    simulation = Simulation([("run", run)], tiny_dataset())
    state = simulation.states[0]
    jobs = [(state, client) for client in run.participants(0)]
    drafts = simulation.gather_drafts(jobs)["run"]
    outcomes = transmit(run, 0, drafts, state.recall)
    return run, state.server_state, [outcome.reply for outcome in outcomes]


def close(run: HorizontalRun, state: ServerState, replies: list[Reply], **options: Any) -> RoundEnd:
    form = expected_form(run, state)
    chosen = run.participants(0)
    return close_round(run, state, replies, chosen=chosen, form=form, everyone=100.0, **options)


def saying(**entries: Any) -> Callable[[Reply], Reply]:
    return lambda reply: replace(reply, message={**reply.message, **entries})


def without(name: str) -> Callable[[Reply], Reply]:
    def shorten(reply: Reply) -> Reply:
        message = {key: rows for key, rows in reply.message.items() if key != name}
        return replace(reply, message=message)

    return shorten


def column(name: str, value: Any) -> Callable[[Reply], Reply]:
    return lambda reply: replace(reply, **{name: value})


def number(value: float) -> Tensor:
    return torch.full((1, 1), value, dtype=torch.float64)


LIES: dict[str, tuple[Callable[[Reply], Reply], str]] = {
    "one number for all": (
        saying(dx=number(5.0)),
        r"expected dx \(1, 18\) float64, got dx \(1, 1\) float64",
    ),
    "two rows": (saying(dx=torch.zeros(2, 18, dtype=torch.float64)), r"got dx \(2, 18\) float64"),
    "another type": (saying(dx=torch.zeros(1, 18, dtype=torch.int64)), r"got dx \(1, 18\) int64"),
    "no tensor": (saying(dx="x"), r"got dx \(str\)"),
    "a number": (saying(dx=torch.tensor(1.0)), r"got dx \(\) float32"),
    "more than asked": (
        saying(extra=number(1.0)),
        r"expected nothing more, got extra \(1, 1\) float64",
    ),
    "nothing": (without("dx"), r"expected dx \(1, 18\) float64, got nothing more"),
    "buffers": (saying(buffers=number(1.0)), r"got buffers \(1, 1\) float64"),
    "no samples": (
        column("samples", None),
        r"expected the column samples \(1, 1\) float64, got nothing more",
    ),
    "wide samples": (
        column("samples", torch.ones(1, 3)),
        r"got the column samples \(1, 3\) float32",
    ),
    "negative samples": (column("samples", number(-1e6)), "expected samples above 0, got -1e"),
    "no end of samples": (
        column("samples", number(float("inf"))),
        "expected samples above 0, got inf",
    ),
    "no number of samples": (
        column("samples", number(float("nan"))),
        "expected samples above 0, got nan",
    ),
    "no steps": (column("steps", number(0.0)), "expected steps above 0, got 0"),
    "no loss": (column("loss", None), r"expected the column loss \(1, 1\) float64"),
    "an old round": (column("round", -1), "it is of round 0, and this is round 1"),
    "a stranger": (column("client", 99), "this client was not chosen for the round"),
    "below zero": (column("client", -1), "this client was not chosen for the round"),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("copies", [1, 9])
def test_a_reply_that_lies_is_refused_and_the_others_count_however_often_it_comes(
    lie: str, copies: int
) -> None:
    run, state, honest = a_round()
    make_lie, why = LIES[lie]
    lying = make_lie(honest[0])
    end = close(run, state, [lying] * copies + honest[1:])
    alone = close(run, state, honest[1:])
    assert [reply.client for reply, _ in end.refused] == [lying.client] * copies
    assert end.accepted == (1, 2, 3)
    assert end.state is not None
    assert alone.state is not None
    assert torch.equal(end.state.server["x"], alone.state.server["x"])
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(end.refused[0][1])


def test_where_all_lie_the_model_stays_as_it_was() -> None:
    run, state, honest = a_round()
    make_lie, _ = LIES["one number for all"]
    end = close(run, state, [make_lie(reply) for reply in honest])
    assert not end.enough
    assert end.state is not None
    assert torch.equal(end.state.server["x"], state.server["x"])
    assert end.state.round == 1


def test_a_client_counts_once_with_its_first_reply() -> None:
    run, state, honest = a_round()
    second = saying(dx=torch.zeros_like(honest[0].message["dx"]))(honest[0])
    end = close(run, state, [*honest, second])
    alone = close(run, state, honest)
    assert [why for _, why in end.refused] == ["this client has replied before"]
    assert end.state is not None
    assert alone.state is not None
    assert torch.equal(end.state.server["x"], alone.state.server["x"])


def test_only_clients_that_were_chosen_count() -> None:
    _, _, everybody = a_round()
    run, state, _ = a_round(selection={"name": "fraction", "c": 0.5})
    end = close(run, state, everybody)
    assert list(end.accepted) == run.participants(0)
    assert len(end.refused) == 2


def test_who_has_replied_is_not_missing() -> None:
    run, state, honest = a_round(missing="zero")
    end = close(run, state, honest, silent_sizes={0: 50})
    alone = close(run, state, honest)
    assert end.state is not None
    assert alone.state is not None
    assert torch.equal(end.state.server["x"], alone.state.server["x"])


@pytest.mark.parametrize("weight", [-1000.0, 0.0, float("nan")])
def test_weights_that_add_up_to_nothing_leave_the_model_as_it_was(weight: float) -> None:
    run, state, honest = a_round(wire=["sum"])
    weigh = saying(**{WEIGHT: number(weight)})
    end = close(run, state, [weigh(reply) for reply in honest])
    assert not end.enough
    assert end.state is not None
    assert torch.equal(end.state.server["x"], state.server["x"])


@pytest.mark.parametrize("algorithm", sorted(Algorithm.known()))
@pytest.mark.parametrize("wire", [[], [TOP_K, "quantise"], ["sum"]], ids=str)
def test_a_server_knows_the_form_of_replies_before_they_come(
    algorithm: str, wire: list[Any]
) -> None:
    if wire == ["sum"] and Algorithm.known()[algorithm].needs_rows:
        return
    rule = {"optimiser": {"name": "nesterov", "lr": 0.1}} if algorithm == "fednag" else {}
    run, state, replies = a_round(algorithm=algorithm, wire=wire, **rule)
    assert {form_of(reply) for reply in replies} == {expected_form(run, state)}


def test_a_loss_that_is_not_finite_is_no_reason_to_refuse() -> None:
    """The model may be about to diverge, and a robust rule withstands such a row."""
    run, state, honest = a_round(combiner="median")
    nan = float("nan")
    damage = saying(dx=torch.full_like(honest[0].message["dx"], nan))
    lose = column("loss", number(nan))
    end = close(run, state, [lose(damage(honest[0])), *honest[1:]])
    assert end.accepted == (0, 1, 2, 3)
    assert end.state is not None
