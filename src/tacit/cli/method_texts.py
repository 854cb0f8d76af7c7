"""The families and their members as the source text has them, for commands that cannot wait."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from tacit.core.class_texts import ClassText, class_texts
from tacit.study.setting_order import order_kinds, order_settings

Rows = list[dict[str, Any]]


def read_families() -> dict[str, Rows]:
    """Every family by name, with a row for each member.

    Those of a study's settings come first, in the order of the settings, then the others by name.
    """
    rows: dict[str, Rows] = {}
    kinds: dict[str, ClassText] = {}
    for text in class_texts():
        family = _family_of(text)
        name = text.keyword("name")
        kind = text.keyword("kind")
        if family and name:
            rows.setdefault(family, []).append(_row(name, text))
        elif kind:
            kinds[kind] = text
    first = _families_of_settings([kinds[name] for name in order_kinds(list(kinds))])
    ordered = [*first, *sorted(rows.keys() - set(first))]
    return {family: sorted(rows[family], key=lambda row: str(row["name"])) for family in ordered}


def _family_of(text: ClassText) -> str | None:
    """The family that the class is a member of, if any."""
    families = [base.keyword("family") for base in text.line_of_bases]
    return next(filter(None, families), None)


def _row(name: str, text: ClassText) -> dict[str, Any]:
    """What `tacit.cli.list.row` gives for the class itself."""
    fields = text.fields()
    choices = {key: field.choices for key, field in fields.items() if field.choices}
    return {
        "name": name,
        "summary": text.summary,
        "settings": {key: field.default for key, field in fields.items()},
        "choices": choices,
    }


def _families_of_settings(kinds: Sequence[ClassText]) -> list[str]:
    """The families that a study's settings take, in the order of the settings."""
    families: dict[str, str] = {}
    placed = []
    for kind in kinds:
        settings = []
        for name, field in kind.fields().items():
            after = field.option("after")
            settings.append((name, str(after.value) if isinstance(after, ast.Constant) else None))
            for text in field.classes():
                families[name] = _family_of(text) or ""
        placed.append(settings)
    ordered = [families.get(name, "") for name in order_settings(placed)]
    return list(dict.fromkeys(filter(None, ordered)))
