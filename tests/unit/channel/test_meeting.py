"""Of two parties one dials and the other waits, and each knows which of the two it is."""

from __future__ import annotations

from typing import Any

import pytest
from consortia import folder

from tacit.channel.consortium import Address, Consortium, default_member
from tacit.channel.meeting import meet
from tacit.core.errors import DataError, StudyError

ALICE = Address("alice.example", 7050)
BOB = Address("bob.example", 7050)
CAROL = Address("carol.example", 7050)
HERE = Address("127.0.0.1", 0)


def consortium(**addresses: Address | None) -> Consortium:
    """These parties, with their addresses."""
    good = folder() / "good"
    members = {name: default_member(name, good, address) for name, address in addresses.items()}
    return Consortium("heart-study", good / "ca.pem", members)


def test_the_later_party_in_the_file_dials_the_earlier() -> None:
    parties = consortium(alice=ALICE, bob=BOB, carol=CAROL)
    names, carrier = meet(parties, "bob")
    assert names == ["alice", "bob", "carol"]
    assert carrier.connect == {"alice": ALICE}
    assert carrier.address == BOB


def test_a_party_that_dials_all_others_does_not_listen() -> None:
    _, carrier = meet(consortium(alice=ALICE, bob=BOB), "bob")
    assert (carrier.connect, carrier.address) == ({"alice": ALICE}, None)


def test_a_party_without_an_address_is_not_dialled_but_dials() -> None:
    parties = consortium(alice=None, bob=BOB)
    assert meet(parties, "alice")[1].connect == {"bob": BOB}
    assert meet(parties, "bob")[1].connect == {}


def test_others_may_be_chosen() -> None:
    parties = consortium(alice=ALICE, bob=BOB, carol=CAROL)
    names, carrier = meet(parties, "carol", ["bob"])
    assert names == ["bob", "carol"]
    assert carrier.connect == {"bob": BOB}


def test_of_two_one_may_listen_elsewhere_and_the_other_connect_there() -> None:
    parties = consortium(alice=None, bob=None)
    _, carrier = meet(parties, "bob", listen=HERE)
    assert (carrier.connect, carrier.address) == ({}, HERE)
    _, carrier = meet(parties, "alice", connect=BOB)
    assert (carrier.connect, carrier.address) == ({"bob": BOB}, None)


@pytest.mark.parametrize(
    ("parties", "options", "text", "parameters"),
    [
        (
            {"alice": ALICE, "bob": BOB},
            {"others": ["alice"]},
            "alice is yourself; name the other parties",
            ("others",),
        ),
        ({"alice": ALICE}, {}, "heart-study has no party except alice; add the others", ()),
        (
            {"alice": ALICE, "bob": BOB, "carol": CAROL},
            {"connect": BOB},
            "connect works only between two parties, of which the other one listens",
            ("connect",),
        ),
        (
            {"alice": ALICE, "bob": BOB},
            {"connect": BOB, "listen": HERE},
            "connect works only between two parties, of which the other one listens",
            ("connect",),
        ),
        (
            {"alice": None, "bob": None},
            {},
            "neither alice nor bob has an address; one of them has to listen at an address",
            ("listen", "connect"),
        ),
        (
            {"alice": None, "bob": None, "carol": CAROL},
            {},
            "neither alice nor bob has an address; put one into the consortium's file",
            (),
        ),
    ],
)
def test_what_cannot_meet_is_told(
    parties: dict[str, Address | None],
    options: dict[str, Any],
    text: str,
    parameters: tuple[str, ...],
) -> None:
    with pytest.raises(StudyError) as caught:
        meet(consortium(**parties), "alice", **options)
    assert text in str(caught.value)
    assert caught.value.parameters == parameters


def test_a_party_that_does_not_exist_is_told() -> None:
    with pytest.raises(
        DataError, match="no party of heart-study is called 'bop'; did you mean bob"
    ):
        meet(consortium(alice=ALICE, bob=BOB), "alice", ["bop"])
