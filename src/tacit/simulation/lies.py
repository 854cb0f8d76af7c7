"""What attackers send in place of their messages, before the wire."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tacit.core.errors import StudyError
from tacit.core.rows import pick
from tacit.core.seeds import generator
from tacit.federated.wire.stage import rows_of
from tacit.rounds.inbox import stacked
from tacit.rounds.participant import Draft
from tacit.simulation.state import RunState


def with_lies(state: RunState, drafts: list[Draft]) -> list[Draft]:
    """The drafts, with what attackers send in place of theirs."""
    is_liar = [draft.client in state.attackers for draft in drafts]
    if not any(is_liar):
        return drafts
    lying = torch.tensor(is_liar)
    messages = {}
    for name in rows_of(drafts[0].message):
        rows = stacked([draft.message[name] for draft in drafts])
        messages[name] = _with_lies_in(state, name, rows, lying)
    changed = []
    for row, draft in enumerate(drafts):
        message = {**draft.message, **pick(messages, slice(row, row + 1))}
        changed.append(replace(draft, message=message, honest=not is_liar[row]))
    return changed


def _with_lies_in(state: RunState, name: str, rows: Tensor, lying: Tensor) -> Tensor:
    """One entry of all messages, with the rows that the attackers send. # (K, P)"""
    attack = state.run.attackers
    honest = rows[~lying]
    if state.run.sums:  # nobody sees single messages
        honest = honest[:0]
    rng = generator(state.run.seed, "attack", name, state.round)
    lies = attack.lie(rows[lying], honest, rng)
    if state.run.sums and rows.isfinite().all() and not lies.isfinite().all():
        raise StudyError(
            f"{attack.name} gives no finite numbers if it sees no other client's message, as with a"
            " sum; if it needs other clients' messages, declare sees_others = True"
        )
    changed = rows.clone()
    changed[lying] = lies
    return changed
