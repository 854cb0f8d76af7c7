"""What a party asks in a comparison. All parties have to ask the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tacit.core.errors import StudyError, shown
from tacit.core.fields import check_names, conform, field_types
from tacit.vertical.groups.group import Group
from tacit.vertical.identifiers import Spelling
from tacit.vertical.psi_options import PsiOptions
from tacit.vertical.terms import Terms

LONGEST = 100  # bytes of the word for what is compared


@dataclass(frozen=True)
class PsiQuestion:
    """The columns that hold the identifiers, and the terms, but for the parties.

    `learner` is a party, or None for all.
    """

    keys: tuple[str, ...]
    group: Group
    column: str
    spelling: Spelling
    reveal: Literal["rows", "size"]
    learner: str | None

    @classmethod
    def read(cls, key: str | Sequence[str], options: PsiOptions) -> PsiQuestion:
        """The question that these options ask, or an error about the option that is wrong."""
        keys = key_columns(key)
        column = _compared(keys, options["column"])
        group = _usable_group(options["group"])
        spelling = _spelling(options["spelling"])
        reveal: Literal["rows", "size"] = "size" if options["size_only"] else "rows"
        learner = None if options["learns"] == "all" else options["learns"]
        return cls(keys, group, column, spelling, reveal, learner)

    def terms(self, parties: Sequence[str]) -> Terms:
        """The terms between these parties."""
        return Terms(
            tuple(parties), self.group, self.column, self.spelling, self.reveal, self.learner
        )


def key_columns(key: str | Sequence[str]) -> tuple[str, ...]:
    """The columns that identify people together.

    >>> key_columns("nin"), key_columns(["name", "born"])
    (('nin',), ('name', 'born'))
    """
    columns = tuple(key) if isinstance(key, Sequence) and not isinstance(key, str) else (key,)
    if not columns or not all(isinstance(column, str) and column for column in columns):
        raise StudyError(
            f"key: expected a column's name or several, got {shown(key)}", parameters=("key",)
        )
    return columns


def _compared(keys: Sequence[str], column: str | None) -> str:
    """The word for what is compared: the columns' names, unless the parties agreed on another."""
    joined = "+".join(keys)
    word = column or joined
    if not isinstance(word, str):
        raise StudyError(
            f"column: expected a word for what is compared, such as nin, got {shown(word)}",
            parameters=("column",),
        )
    if len(word.encode("utf-8", "surrogatepass")) > LONGEST:
        raise StudyError(
            f"{shown(word)} is too long a name for what is compared; give a shorter column",
            parameters=("column",),
        )
    if len(keys) > 1 and word != joined:
        return f"{word} ({len(keys)} columns)"  # so that another number of columns never matches
    return word


def _usable_group(name: str) -> Group:
    try:
        group = Group.build(name)
    except StudyError as error:
        raise StudyError(str(error), parameters=("group",)) from None
    group.check()
    return group


def _spelling(spelling: Spelling | Mapping[str, str] | None) -> Spelling:
    if spelling is None:
        return Spelling()
    if isinstance(spelling, Spelling):
        return spelling
    if not isinstance(spelling, Mapping):
        raise StudyError(
            f'spelling: expected settings such as {{"case": "keep"}}, got {shown(spelling)}',
            parameters=("spelling",),
        )
    types = field_types(Spelling)
    check_names(spelling, types, "spelling")
    settings: dict[str, Any] = {}
    for name, value in spelling.items():
        try:
            settings[name] = conform(value, types[name], name)
        except StudyError as error:
            raise StudyError(str(error), parameters=(name,)) from None
    return Spelling(**settings)
