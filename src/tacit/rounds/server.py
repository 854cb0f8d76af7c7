"""The server's half of a round: validate, the wire's server side, the cohort, aggregate.

It is a function of the run's settings, the server's state and the replies. It sees messages or,
behind a stage that sums, one sum of them. It says which replies it has accepted; the clients keep
their memories by that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, pick
from tacit.core.vectors import pack, unpack
from tacit.federated.algorithm import Server
from tacit.federated.cohort import Cohort, SummedCohort
from tacit.rounds.client import example_reply
from tacit.rounds.participant import Reply
from tacit.rounds.reception import add_silent, make_cohort, make_summed_cohort, receive
from tacit.rounds.reply_checks import Refused, ReplyForm, form_of, validate
from tacit.rounds.server_data import ServerData
from tacit.rounds.server_state import ServerState
from tacit.study.kinds.horizontal import HorizontalRun


@dataclass(frozen=True)
class RoundEnd:
    """What came of a round at the server."""

    state: ServerState | None  # None: its numbers are not finite, so nothing is kept
    accepted: tuple[int, ...] = ()  # the clients whose replies count
    enough: bool = True  # replies to change the model
    refused: Refused = ()


def broadcast(run: HorizontalRun, server: Server, client: int) -> Rows:
    """What the server sends to a client, as one row."""
    x = server["x"]
    message = {}
    for name, value in run.algorithm.send(server, client).items():
        message[name] = torch.as_tensor(value).to(x).reshape(1, -1)
    return message


def expected_form(run: HorizontalRun, state: ServerState) -> ReplyForm:
    """The form of every reply of this run, which a server knows before the first one arrives."""
    client = run.participants(state.round)[0]
    sent = broadcast(run, state.server, client)
    return form_of(example_reply(run, sent, state.buffers))


def close_round(
    run: HorizontalRun,
    before: ServerState,
    replies: Sequence[Reply],
    *,
    chosen: Collection[int],
    form: ReplyForm,
    everyone: float,
    silent_sizes: Mapping[int, int] | None = None,
    server_data: ServerData | None = None,
) -> RoundEnd:
    """Makes the next state from the replies of chosen clients that have this form.

    Other replies are refused. `everyone` is how many training samples all clients have;
    `silent_sizes` names the chosen clients that did not reply, with how many samples they have.
    """
    replies, refused = validate(before.round, replies, chosen, form)
    silent = _silent_clients(run, replies, silent_sizes or {})
    if not replies or len(replies) + len(silent) < run.combiner.quorum:
        return _unchanged(before, refused)
    cohort: Cohort | SummedCohort
    if run.sums:
        cohort = make_summed_cohort(run, replies, everyone)
        if not cohort.weighs:
            return _unchanged(before, refused)
    else:
        reception = receive(run, replies)
        if silent:
            reception = add_silent(reception, run, before, silent)
        server_loss = server_data.losses(before) if server_data else None
        cohort = make_cohort(run, reception, everyone, server_loss)
    after = _next_state(run, before, cohort, server_data)
    if after is None:
        return RoundEnd(None, refused=refused)
    accepted = tuple(reply.client for reply in replies)
    return RoundEnd(after, accepted, refused=refused)


def _unchanged(before: ServerState, refused: Refused) -> RoundEnd:
    """The end of a round with too few replies to change the model."""
    state = replace(before, round=before.round + 1)
    return RoundEnd(state, enough=False, refused=refused)


def _silent_clients(
    run: HorizontalRun, replies: Sequence[Reply], silent_sizes: Mapping[int, int]
) -> dict[int, int]:
    """The clients that count as ones that change nothing, with how many samples they have."""
    if run.missing != "zero":
        return {}
    replied = {reply.client for reply in replies}
    return {client: size for client, size in silent_sizes.items() if client not in replied}


def _next_state(
    run: HorizontalRun, before: ServerState, cohort: Any, server_data: ServerData | None
) -> ServerState | None:
    """The server's state after the round; None if its numbers are not finite."""
    server = run.algorithm.aggregate(before.server, cohort)
    _check_server(run, server, before.server["x"])
    buffers = _mean_buffers(cohort, before.buffers)
    after = ServerState(server, buffers, before.round + 1)
    if not _is_finite(after):
        return None
    if run.distillation:
        assert server_data is not None
        after = server_data.distil(before, after, cohort)
    return replace(after, server=projected(after.server, run.radius))


def _check_server(run: HorizontalRun, server: Any, x: Tensor) -> None:
    shape = None
    if isinstance(server, Mapping):
        shape = getattr(server.get("x"), "shape", None)
    if shape != x.shape:
        raise StudyError(
            f"{run.algorithm.name}.aggregate must return the server's state, with x of {len(x)}"
        )


def _mean_buffers(cohort: Cohort | SummedCohort, like: Rows) -> Rows:
    """The model's next buffers: floats are averaged, whole numbers are the first client's."""
    if not like:
        return {}
    names = pack(pick(like, None))
    entries = {}
    if "buffers" in names:
        entries["buffers"] = cohort.mean("buffers")
    if "counters" in names:  # refused behind a stage that sums
        assert isinstance(cohort, Cohort)
        entries["counters"] = cohort.messages["counters"][0]
    return unpack(entries, like)


def _is_finite(state: ServerState) -> bool:
    for value in (*state.server.values(), *state.buffers.values()):
        if isinstance(value, Tensor) and not torch.isfinite(value).all():
            return False
    return True


def projected(server: Server, radius: float | None) -> Server:
    """The server's state with x in the ball: the nearest point of it to x."""
    if radius is None:
        return server
    x = server["x"]
    norm = max(float(x.norm()), 1e-30)
    return {**server, "x": x * min(1.0, radius / norm)}
