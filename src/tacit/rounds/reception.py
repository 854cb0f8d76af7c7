"""What the server reads of replies: the wire's server side, and the cohort made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.core.rows import Rows, pick
from tacit.core.vectors import pack
from tacit.federated.cohort import LOSS, TOTAL, WEIGHT, Cohort, SummedCohort, in_order
from tacit.federated.wire.stage import BUFFERS, Stage
from tacit.rounds.inbox import stacked
from tacit.rounds.participant import Reply
from tacit.rounds.reply_checks import join_column
from tacit.rounds.server_state import Losses, ServerState
from tacit.study.kinds.horizontal import HorizontalRun


@dataclass(frozen=True)
class Reception:
    """Replies as the server reads them: a row for each client."""

    ids: tuple[int, ...]
    messages: Rows
    samples: Tensor  # (K, 1)
    steps: Tensor  # (K, 1)
    losses: Tensor  # (K, 1)


def receive(run: HorizontalRun, replies: Sequence[Reply]) -> Reception:
    """Reads replies of which the server sees every single one."""
    return Reception(
        ids=tuple(reply.client for reply in replies),
        messages=_read(run.wire, _stack(replies)),
        samples=join_column(replies, "samples"),
        steps=join_column(replies, "steps"),
        losses=join_column(replies, "loss"),
    )


def make_cohort(
    run: HorizontalRun, reception: Reception, everyone: float, server_loss: Losses | None
) -> Cohort:
    """The clients as `aggregate` sees them; `everyone` is how many samples all clients have."""
    messages, ids, columns = in_order(
        reception.messages, reception.ids, reception.samples, reception.steps, reception.losses
    )
    samples, steps, losses = columns
    return Cohort(
        messages=messages,
        ids=ids,
        samples=samples,
        steps=steps,
        population=run.clients,
        everyone=everyone,
        combiner=run.combiner,
        weighting=run.algorithm.weights,
        client_losses=losses,
        server_loss=server_loss,
        needs_rows=run.algorithm.needs_rows,
    )


def make_summed_cohort(
    run: HorizontalRun, replies: Sequence[Reply], everyone: float
) -> SummedCohort:
    """The clients as `aggregate` sees them behind a stage that sums."""
    sums = _read_sums(run.wire, _stack(replies))
    ids = tuple(reply.client for reply in replies)
    return SummedCohort(sums, ids, run.clients, everyone, run.algorithm.weights)


def add_silent(
    reception: Reception, run: HorizontalRun, state: ServerState, silent: Mapping[int, int]
) -> Reception:
    """Adds rows for clients that did not reply, as if they had changed nothing.

    `silent` has their numbers of samples. Their updates are zero, and their buffers the server's. A
    column, such as FedNova's a, is the mean of those who replied.
    """
    count = len(silent)
    samples = reception.samples.new_tensor([[size] for size in silent.values()])
    loss = reception.losses.mean(0, keepdim=True)
    messages = {}
    for name, row in _message_without_change(reception, run, state).items():
        silent_rows = row.expand(count, -1)
        messages[name] = torch.cat([reception.messages[name], silent_rows])
    return Reception(
        ids=(*reception.ids, *silent),
        messages=messages,
        samples=torch.cat([reception.samples, samples]),
        steps=torch.cat([reception.steps, torch.zeros_like(samples)]),
        losses=torch.cat([reception.losses, loss.expand(count, 1)]),
    )


def _message_without_change(reception: Reception, run: HorizontalRun, state: ServerState) -> Rows:
    """What a client that changes nothing would send, as one row."""
    weights = reception.samples
    if run.algorithm.weights != "samples":
        weights = torch.ones_like(weights)
    buffers = pack(pick(state.buffers, None))
    message = {}
    for name, rows in reception.messages.items():
        if name in BUFFERS:
            message[name] = buffers[name]
        elif rows.shape[1] > 1:
            message[name] = torch.zeros_like(rows[:1])
        elif rows.is_floating_point():
            message[name] = (weights / weights.sum()).T @ rows
        else:
            message[name] = rows[:1]
    return message


def _stack(replies: Sequence[Reply]) -> Rows:
    messages = {}
    for name in replies[0].message:
        messages[name] = stacked([reply.message[name] for reply in replies])
    return messages


def _read(stages: Sequence[Stage], messages: Rows) -> Rows:
    """The wire's server side.

    The model's buffers and what clients have added for a sum do not go through the stages.
    """
    outside = (*BUFFERS, WEIGHT, LOSS)
    passing = {name: rows for name, rows in messages.items() if name in outside}
    messages = {name: rows for name, rows in messages.items() if name not in outside}
    for stage in reversed(stages):
        messages = stage.server(messages)
    return {**messages, **passing}


def _read_sums(stages: Sequence[Stage], messages: Rows) -> Rows:
    """The same behind a stage that sums: the sum of all messages, as one."""
    *readable, last = stages
    sums = last.server(last.add(messages))
    weighted_sums: Rows = {}
    plain_sums: Rows = {}
    for name, rows in sums.items():
        if name.startswith(TOTAL):
            plain_sums[name.removeprefix(TOTAL)] = rows
        else:
            weighted_sums[name] = rows
    message = _read(readable, weighted_sums)
    for name, rows in _read(readable, plain_sums).items():
        message[TOTAL + name] = rows
    return message
