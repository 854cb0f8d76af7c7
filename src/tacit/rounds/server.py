"""The server's half of a round: validate, the wire's server side, the cohort, aggregate, and the next state.

It is a function of the run's settings, the server's state and the replies. It sees messages or, behind a stage that
sums, one sum of them. What it accepted it says; the clients keep their memories by that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, pick
from tacit.core.vectors import pack, unpack
from tacit.federated.algorithm import Server
from tacit.federated.cohort import LOSS, TOTAL, WEIGHT, Cohort, SummedCohort, in_order
from tacit.federated.wire.stage import BUFFERS, Stage
from tacit.rounds.client import Reply, example_reply
from tacit.rounds.inbox import stacked
from tacit.study.kinds.horizontal import HorizontalRun

COLUMNS = ("samples", "steps", "loss")  # of a reply, unless the server sees sums only
Form = tuple[str, ...]  # a reply's entries and columns, with their shapes and types
Losses = Callable[[Tensor, int], Tensor]  # dx rows (K, P), sample size -> loss (K, 1)


@dataclass(frozen=True)
class ServerState:
    """Where a run's server stands between two rounds."""

    server: Server  # "x" is the global model
    buffers: Rows
    round: int = 0


class Aid(Protocol):
    """What a server has beside its clients' messages: a sample of its own, and public data."""

    def losses(self, state: ServerState) -> Losses | None:
        """The loss of the global model moved by each row, for combiners that judge updates."""

    def distil(self, before: ServerState, after: ServerState, cohort: Cohort) -> ServerState:
        """The new global model, drawn to what the clients' models predict."""


@dataclass(frozen=True)
class RoundEnd:
    """What came of a round at the server."""

    state: ServerState | None  # None: its numbers are not finite, so nothing is kept
    accepted: tuple[int, ...] = ()  # the clients whose replies count
    enough: bool = True  # replies to change the model
    refused: tuple[tuple[Reply, str], ...] = ()  # replies that do not count, and why


def broadcast(run: HorizontalRun, server: Server, client: int) -> Rows:
    """What the server sends to a client, as one row."""
    x = server["x"]
    entries = run.algorithm.send(server, client)
    return {name: torch.as_tensor(value).to(x).reshape(1, -1) for name, value in entries.items()}


def expected_form(run: HorizontalRun, state: ServerState) -> Form:
    """The form of every reply of this run, which a server knows before the first one arrives."""
    client = run.participants(state.round)[0]
    return form_of(example_reply(run, broadcast(run, state.server, client), state.buffers))


def form_of(reply: Reply) -> Form:
    """What a reply consists of."""
    columns = {f"the column {name}": getattr(reply, name) for name in COLUMNS}
    tensors = {
        **reply.message,
        **{name: value for name, value in columns.items() if value is not None},
    }
    return tuple(_described(name, tensors[name]) for name in sorted(tensors))


def close_round(
    run: HorizontalRun,
    before: ServerState,
    replies: Sequence[Reply],
    *,
    chosen: Collection[int],
    form: Form,
    everyone: float,
    missing: Mapping[int, int] | None = None,
    aid: Aid | None = None,
) -> RoundEnd:
    """Makes the next state of the replies of chosen clients that have this form; others are refused.

    `everyone` is how many training samples all clients have; `missing` names the chosen clients that did not reply,
    with how many samples they have.
    """
    replies, refused = validate(before.round, replies, chosen, form)
    replied = {reply.client for reply in replies}
    missing = {client: size for client, size in (missing or {}).items() if client not in replied}
    votes = len(replies)
    if run.missing == "zero":  # a silent client counts as one that changes nothing
        votes += len(missing)
    if not replies or votes < run.combiner.quorum:
        unchanged = replace(before, round=before.round + 1)
        return RoundEnd(unchanged, enough=False, refused=refused)
    cohort = _gathered(run, before, replies, everyone, missing, aid)
    if isinstance(cohort, SummedCohort) and not cohort.weighs:
        return RoundEnd(replace(before, round=before.round + 1), enough=False, refused=refused)
    server = run.algorithm.aggregate(before.server, cohort)
    _check_server(run, server, before.server["x"])
    after = ServerState(server, _mean_buffers(cohort, before.buffers), before.round + 1)
    if not _is_finite(after):
        return RoundEnd(None, refused=refused)
    if run.distillation:
        assert aid is not None
        after = aid.distil(before, after, cohort)
    after = replace(after, server=projected(after.server, run.radius))
    return RoundEnd(after, tuple(reply.client for reply in replies), refused=refused)


def validate(
    round: int, replies: Sequence[Reply], chosen: Collection[int], form: Form
) -> tuple[list[Reply], tuple[tuple[Reply, str], ...]]:
    """The replies that count, by client, each one's first; and the others, with what is wrong with them.

    Whether their numbers are finite is not asked here: robust rules withstand such rows, and a model that diverges is
    told from one client that fails by whoever runs the study.
    """
    asked = frozenset(chosen)
    flaws = [_flaw_of_form(reply, round, asked, form) for reply in replies]
    readable = [k for k, flaw in enumerate(flaws) if flaw is None]
    for k, flaw in zip(readable, _flaws_of_figures([replies[k] for k in readable]), strict=True):
        flaws[k] = flaw
    sound: dict[int, Reply] = {}
    refused = []
    for reply, flaw in zip(replies, flaws, strict=True):
        if flaw is None and reply.client in sound:
            flaw = "this client has replied before"
        if flaw is None:
            sound[reply.client] = reply
        else:
            refused.append((reply, flaw))
    return [sound[client] for client in sorted(sound)], tuple(refused)


def _flaw_of_form(reply: Reply, round: int, chosen: Collection[int], form: Form) -> str | None:
    """What is wrong with a reply, numbers aside."""
    if reply.round != round:
        return f"it is of round {reply.round + 1}, and this is round {round + 1}"
    if reply.client not in chosen:
        return "this client was not chosen for the round"
    given = form_of(reply)
    if given != form:
        return f"expected {_listed(form, given)}, got {_listed(given, form)}"
    return None


def _flaws_of_figures(replies: Sequence[Reply]) -> list[str | None]:
    """What is wrong with the figures of replies of one form; they are read together, since a GPU is waited for once."""
    flaws: list[str | None] = [None] * len(replies)
    for name in ("samples", "steps"):
        if not replies or getattr(replies[0], name) is None:
            continue
        for k, value in enumerate(_column(replies, name)[:, 0].tolist()):
            if not 0 < value < math.inf:
                flaws[k] = f"expected {name} above 0, got {value:g}"
    return flaws


def _listed(form: Form, other: Form) -> str:
    """What one form has and another has not."""
    return ", ".join(entry for entry in form if entry not in other) or "nothing more"


def _described(name: str, value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"{name} ({type(value).__name__})"
    return f"{name} {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"


def projected(server: Server, radius: float | None) -> Server:
    """The server's state with x in the ball: the nearest point of it to x."""
    if radius is None:
        return server
    return {**server, "x": server["x"] * min(1.0, radius / max(float(server["x"].norm()), 1e-30))}


def _gathered(
    run: HorizontalRun,
    state: ServerState,
    replies: Sequence[Reply],
    everyone: float,
    missing: Mapping[int, int],
    aid: Aid | None,
) -> Any:
    """The cohort that `aggregate` sees: of rows or, behind a stage that sums, of sums."""
    messages = {
        name: stacked([reply.message[name] for reply in replies]) for name in replies[0].message
    }
    ids = tuple(reply.client for reply in replies)
    if run.wire and run.wire[-1].summed:
        sums = _received_sums(run.wire, messages)
        return SummedCohort(sums, ids, run.clients, everyone, run.algorithm.weights)
    messages = _received(run.wire, messages)
    samples, steps, losses = (_column(replies, name) for name in COLUMNS)
    columns = [samples, steps, losses]
    if run.missing == "zero" and missing:
        messages, columns = _with_nothing(run, state, messages, columns, missing)
        ids += tuple(missing)
    messages, ids, (samples, steps, losses) = in_order(messages, ids, *columns)
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
        server_loss=aid.losses(state) if aid else None,
        needs_rows=run.algorithm.needs_rows,
    )


def _received(stages: Sequence[Stage], messages: Rows) -> Rows:
    """The wire's server side; the model's buffers, and what clients have added for a sum, pass."""
    passing = {name: rows for name, rows in messages.items() if name in (*BUFFERS, WEIGHT, LOSS)}
    messages = {name: rows for name, rows in messages.items() if name not in passing}
    for stage in reversed(stages):
        messages = stage.server(messages)
    return {**messages, **passing}


def _received_sums(stages: Sequence[Stage], messages: Rows) -> Rows:
    """The same behind a stage that sums: the sum of all messages, as one."""
    *readable, last = stages
    sums = last.server(last.add(messages))
    means = {name: rows for name, rows in sums.items() if not name.startswith(TOTAL)}
    totals = {
        name.removeprefix(TOTAL): rows for name, rows in sums.items() if name.startswith(TOTAL)
    }
    plain_sums = {TOTAL + name: rows for name, rows in _received(readable, totals).items()}
    return {**_received(readable, means), **plain_sums}


def _with_nothing(
    run: HorizontalRun,
    state: ServerState,
    messages: Rows,
    columns: list[Tensor],
    missing: Mapping[int, int],
) -> tuple[Rows, list[Tensor]]:
    """The messages, samples, steps and losses, with rows for clients that did not reply: they change nothing.

    Their updates are zero, their buffers the server's; a column, such as FedNova's a, is the mean of those who replied.
    """
    samples, _, losses = columns
    count, buffers = len(missing), pack(pick(state.buffers, None))
    p = samples if run.algorithm.weights == "samples" else torch.ones_like(samples)
    rows = {}
    for name, x in messages.items():
        if name in BUFFERS:
            quiet = buffers[name]
        elif x.shape[1] == 1:
            quiet = (p / p.sum()).T @ x if x.is_floating_point() else x[:1]
        else:
            quiet = torch.zeros_like(x[:1])
        rows[name] = torch.cat([x, quiet.expand(count, -1)])
    held = samples.new_tensor([[size] for size in missing.values()])
    none = [held, torch.zeros_like(held), losses.mean(0, keepdim=True).expand(count, 1)]
    return rows, [torch.cat(pair) for pair in zip(columns, none, strict=True)]


def _mean_buffers(cohort: Cohort | SummedCohort, like: Rows) -> Rows:
    """The model's next buffers: floats by their mean, whole numbers as the first client has them."""
    if not like:
        return {}
    names = pack(pick(like, None))
    entries = {name: cohort.mean(name) for name in names if name == "buffers"}
    if "counters" in names:  # refused behind a stage that sums
        assert isinstance(cohort, Cohort)
        entries["counters"] = cohort.messages["counters"][0]
    return unpack(entries, like)


def _check_server(run: HorizontalRun, server: Any, x: Tensor) -> None:
    if not isinstance(server, Mapping) or getattr(server.get("x"), "shape", None) != x.shape:
        raise StudyError(
            f"{run.algorithm.name}.aggregate must return the server's state, with x of {len(x)}"
        )


def _is_finite(state: ServerState) -> bool:
    values = [*state.server.values(), *state.buffers.values()]
    return all(bool(torch.isfinite(value).all()) for value in values if isinstance(value, Tensor))


def _column(replies: Sequence[Reply], name: str) -> Tensor:
    return torch.cat([getattr(reply, name) for reply in replies])
