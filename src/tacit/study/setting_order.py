"""The order of a study's settings, which are those of several kinds of runs."""

from __future__ import annotations

from collections.abc import Sequence

USUAL = "horizontal"  # the kind of a run that no other kind claims
Placed = tuple[str, str | None]  # a setting, and the one behind which it stands, if it says so


def order_kinds(names: Sequence[str]) -> list[str]:
    """The kinds of runs, the usual one first, then in alphabetical order."""
    return sorted(names, key=lambda name: (name != USUAL, name))


def order_settings(kinds: Sequence[Sequence[Placed]]) -> list[str]:
    """The settings of these kinds, each after the setting that it names.

    A setting that names none stands behind the one before it in its kind.

    >>> order_settings([[("model", None), ("rounds", None)], [("widths", "model")]])
    ['model', 'widths', 'rounds']
    """
    order: list[str] = []
    for settings in kinds:
        previous: str | None = None
        for name, after in settings:
            if name not in order:
                before = after or previous
                position = order.index(before) + 1 if before else 0
                order.insert(position, name)
            previous = name
    return order
