"""Every registered object, of every family, can be named, shown and read back."""

from __future__ import annotations

import json

import pytest

from tacit.cli.families import families
from tacit.cli.list import row
from tacit.core.errors import StudyError
from tacit.core.registry import Registered
from tacit.study.texts import plain

REQUIRED = {
    "listed": {"lists": [[0]]},
    "table": {"path": "a.csv", "target": "y"},
    "arrays": {"path": "arrays#0"},
    "function": {"path": "math:sqrt"},
    "module": {"path": "torch.nn:Identity"},
}
MEMBERS = [(family, name) for family, base in families().items() for name in base.known()]


@pytest.fixture(params=MEMBERS, ids=lambda pair: "-".join(pair))
def member(request: pytest.FixtureRequest) -> Registered:
    family, name = request.param
    base = families()[family]
    return base.build({base.key: name, **REQUIRED.get(name, {})})


def test_spec_round_trips_even_through_json(member: Registered) -> None:
    spec = json.loads(json.dumps(plain(member.spec())))
    assert families()[member.family].build(spec) == member


def test_it_says_in_one_line_what_it_is(member: Registered) -> None:
    summary = row(member.name, type(member))["summary"]
    assert 10 < len(summary) < 200
    assert summary.endswith(".")


def test_a_wrong_name_and_a_wrong_field_get_a_suggestion(member: Registered) -> None:
    base = families()[member.family]
    with pytest.raises(StudyError, match=rf"did you mean {member.name}\?|known: .*{member.name}"):
        base.build(member.name + "x")
    with pytest.raises(StudyError, match="no setting 'nonsense'"):
        base.build({base.key: member.name, "nonsense": 1})
