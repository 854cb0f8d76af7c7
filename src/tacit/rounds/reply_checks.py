"""Which replies count: those of chosen clients, of the expected form, with sound figures."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from tacit.rounds.participant import Reply

COLUMNS = ("samples", "steps", "loss")  # of a reply, unless the server sees sums only
ReplyForm = tuple[str, ...]  # a reply's entries and columns, with their shapes and types
Refused = tuple[tuple[Reply, str], ...]  # replies that do not count, and why


def form_of(reply: Reply) -> ReplyForm:
    """What a reply consists of."""
    tensors: dict[str, Any] = dict(reply.message)
    for name in COLUMNS:
        column = getattr(reply, name)
        if column is not None:
            tensors[f"the column {name}"] = column
    return tuple(_described(name, tensors[name]) for name in sorted(tensors))


def _described(name: str, value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"{name} ({type(value).__name__})"
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{name} {tuple(value.shape)} {dtype}"


def validate(
    round: int, replies: Sequence[Reply], chosen: Collection[int], form: ReplyForm
) -> tuple[list[Reply], Refused]:
    """The replies that count, by client, each client's first; and the others, with what is wrong.

    Numbers that are not finite are no reason to refuse: robust rules withstand such rows, and
    whoever runs the study tells a model that diverges from one client that fails.
    """
    sound: dict[int, Reply] = {}
    refused: list[tuple[Reply, str]] = []
    flaws = _flaws(round, replies, chosen, form)
    for reply, flaw in zip(replies, flaws, strict=True):
        if flaw is None and reply.client in sound:
            flaw = "this client has replied before"
        if flaw is None:
            sound[reply.client] = reply
        else:
            refused.append((reply, flaw))
    return [sound[client] for client in sorted(sound)], tuple(refused)


def _flaws(
    round: int, replies: Sequence[Reply], chosen: Collection[int], form: ReplyForm
) -> list[str | None]:
    """What is wrong with each reply; None for those in order."""
    clients = frozenset(chosen)
    flaws = [_flaw_of_form(reply, round, clients, form) for reply in replies]
    readable = [position for position, flaw in enumerate(flaws) if flaw is None]
    figure_flaws = _flaws_of_figures([replies[position] for position in readable])
    for position, flaw in zip(readable, figure_flaws, strict=True):
        flaws[position] = flaw
    return flaws


def _flaw_of_form(reply: Reply, round: int, chosen: Collection[int], form: ReplyForm) -> str | None:
    """What is wrong with a reply, numbers aside."""
    if reply.round != round:
        return f"it is of round {reply.round + 1}, and this is round {round + 1}"
    if reply.client not in chosen:
        return "this client was not chosen for the round"
    reply_form = form_of(reply)
    if reply_form != form:
        return f"expected {_listed(form, reply_form)}, got {_listed(reply_form, form)}"
    return None


def _listed(form: ReplyForm, compared: ReplyForm) -> str:
    """What one form has and another has not."""
    return ", ".join(entry for entry in form if entry not in compared) or "nothing more"


def _flaws_of_figures(replies: Sequence[Reply]) -> list[str | None]:
    """What is wrong with the figures of replies of one form.

    They are read together, so that a GPU is waited for once.
    """
    flaws: list[str | None] = [None] * len(replies)
    for name in ("samples", "steps"):
        if not replies or getattr(replies[0], name) is None:
            continue
        numbers = join_column(replies, name)[:, 0].tolist()
        for position, number in enumerate(numbers):
            if not 0 < number < math.inf:
                flaws[position] = f"expected {name} above 0, got {number:g}"
    return flaws


def join_column(replies: Sequence[Reply], name: str) -> Tensor:
    """That column of all replies. # (K, 1)"""
    return torch.cat([getattr(reply, name) for reply in replies])
