"""The protocol: its result is the plain intersection, and liars are noticed.

Its messages hold what its docstring says.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import run, until

import tacit
from tacit.channel import endpoint
from tacit.channel import link as link_module
from tacit.channel.endpoint import Program
from tacit.channel.frames import ChannelError
from tacit.channel.link import Link
from tacit.channel.loopback import converse
from tacit.core.errors import StudyError
from tacit.core.events import Advanced, Event
from tacit.vertical import transfer
from tacit.vertical.batch_threads import BatchThreads
from tacit.vertical.commitment import commitment
from tacit.vertical.groups.group import Group
from tacit.vertical.groups.thesis import P, Q, Thesis
from tacit.vertical.groups.x25519 import X25519
from tacit.vertical.identifiers import Spelling
from tacit.vertical.party import Party, shuffled
from tacit.vertical.psi import CommonRows, intersect
from tacit.vertical.tags import make_tags
from tacit.vertical.terms import DIFFERENCES, MOST_PARTIES, Deal, Terms, agree
from tacit.vertical.transfer import batches

NAMES = ("alice", "bob", "carol", "dora", "emil")
VARIANTS = [(learns, only) for learns in ("all", "each") for only in (False, True)]
PEOPLE = st.lists(
    st.sampled_from([f"p{k}" for k in range(12)] + ["Ana Muñoz", "ana  muñoz", "李", "P1"]),
    max_size=14,
)


@dataclass
class Message:
    sender: str
    receiver: str
    name: str
    data: bytes


@dataclass
class Wire:
    """Everything that was sent."""

    messages: list[Message] = field(default_factory=list)

    def of(self, name: str, sender: str | None = None, receiver: str | None = None) -> list[bytes]:
        data = []
        for message in self.messages:
            is_named = message.name.split()[0] == name
            is_between = sender in (None, message.sender) and receiver in (None, message.receiver)
            if is_named and is_between:
                data.append(message.data)
        return data


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    wire = Wire()
    send = Link.send

    async def record(self: Link, name: str, data: bytes) -> None:
        if name not in ("(terms)", "(echo of terms)", "(done)"):
            wire.messages.append(Message(self.me, self.peer, name, bytes(data)))
        await send(self, name, data)

    monkeypatch.setattr(Link, "send", record)
    return wire


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All keys that are drawn."""
    drawn: list[bytes] = []
    draw = X25519.draw_key

    def remember(self: X25519) -> bytes:
        drawn.append(draw(self))
        return drawn[-1]

    monkeypatch.setattr(X25519, "draw_key", remember)
    return drawn


@pytest.fixture
def keys_by_party(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The last key of each party."""
    drawn: dict[str, bytes] = {}
    make = Party.__init__

    def create(self: Party, *inputs: Any) -> None:
        make(self, *inputs)
        drawn[self.me] = self.key

    monkeypatch.setattr(Party, "__init__", create)
    return drawn


@pytest.fixture
def own_keys(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The last key of each party for its own set."""
    drawn: dict[str, bytes] = {}
    make = Party.__init__

    def create(self: Party, *inputs: Any) -> None:
        make(self, *inputs)
        drawn[self.me] = self.own_key

    monkeypatch.setattr(Party, "__init__", create)
    return drawn


def pieces(raw: bytes, size: int) -> list[bytes]:
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def fold(text: str) -> str:
    return Spelling().apply(text)


def check(sets: Mapping[str, list[str]], learns: str, size_only: bool, **options: Any) -> None:
    """The result is the plain intersection, for those who may learn it and in one order."""
    folded = {name: [fold(text) for text in texts] for name, texts in sets.items()}
    shared = set.intersection(*(set(texts) for texts in folded.values()))
    sizes = {name: len(set(texts)) for name, texts in folded.items()}
    results = tacit.psi(sets, "id", learns=learns, size_only=size_only, threads=1, **options)
    assert list(results) == list(sets)
    orders = []
    for name, result in results.items():
        assert result.sizes == sizes
        if learns not in ("all", name):
            assert (result.size, result.rows) == (None, None)
            continue
        assert result.size == len(shared)
        assert (result.rows is None) is size_only
        if result.rows is not None:
            order = [folded[name][row] for row in result.rows]
            first_rows = [folded[name].index(text) for text in order]
            assert result.rows.tolist() == first_rows
            orders.append(order)
    assert all(set(order) == shared and len(order) == len(shared) for order in orders)
    assert all(order == orders[0] for order in orders)
    assert len({result.session for result in results.values()}) == 1


@pytest.mark.parametrize("parties", [2, 3, 5])
@settings(max_examples=8)
@given(data=st.data())
def test_the_result_is_the_plain_intersection(parties: int, data: st.DataObject) -> None:
    sets = {name: data.draw(PEOPLE) for name in NAMES[:parties]}
    learns = data.draw(st.sampled_from(["all", *sets]))
    size_only = data.draw(st.booleans())
    check(sets, learns, size_only)


@pytest.mark.parametrize(("learns", "size_only"), VARIANTS)
@pytest.mark.parametrize("parties", [2, 3, 5])
def test_every_variant_gives_it_to_those_who_may_learn_it(
    parties: int, learns: str, size_only: bool
) -> None:
    sets = {}
    for index, name in enumerate(NAMES[:parties]):
        sets[name] = [str(k) for k in range(index, index + 6)]
    learners = list(sets) if learns == "each" else ["all"]
    for learner in learners:
        check(sets, learner, size_only)


@pytest.mark.parametrize(
    "sets",
    [
        [[], []],
        [[], ["a"]],
        [["a"], ["a"]],
        [["a"], ["b"]],
        [["a", "b", "c"], ["c", "a", "b"]],
        [["a", "b", "c"], ["d", "e"]],
        [["a", "A", " a"], ["a", "b"]],
        [[str(k) for k in range(40)], ["7"]],
        [["a"], [], ["a"]],
        [["a", "b"], ["a", "b"], ["b", "a"]],
        [["a", "b"], ["b", "c"], ["c", "a"]],
    ],
    ids=repr,
)
@pytest.mark.parametrize("size_only", [False, True])
def test_sets_at_the_edges(sets: list[list[str]], size_only: bool) -> None:
    named = dict(zip(NAMES, sets, strict=False))
    check(named, "all", size_only)
    check(named, "bob", size_only)


@pytest.mark.parametrize("size_only", [False, True])
def test_sets_of_gaps_alone_are_empty(size_only: bool) -> None:
    results = tacit.psi({"alice": ["", "NA"], "bob": ["a"]}, "id", size_only=size_only)
    assert [result.size for result in results.values()] == [0, 0]


def residues(count: int) -> list[str]:
    """Identifiers that the thesis's group can bear: their hashes are residues below P.

    On these, every key is a bijection.
    """
    identifiers = []
    for k in range(6 * count):
        x = int.from_bytes(Thesis().hash([str(k).encode()], b""), "big")
        if x < P and pow(x, Q, P) == 1:
            identifiers.append(str(k))
    return identifiers[:count]


@pytest.mark.parametrize(
    ("parties", "learns", "size_only"),
    [(2, "all", False), (2, "bob", True), (3, "all", False), (4, "carol", False), (5, "all", True)],
)
@pytest.mark.parametrize("group", Group.known())
def test_other_groups_give_the_same(group: str, parties: int, learns: str, size_only: bool) -> None:
    people = residues(9)
    assert len(people) == 9
    sets = {name: people[index : index + 6] for index, name in enumerate(NAMES[:parties])}
    check(sets, learns, size_only, group=group)


@pytest.mark.parametrize("extra", [0, 1, 6])
@pytest.mark.parametrize(
    ("parties", "learns", "size_only"),
    [(2, "all", False), (2, "bob", True), (3, "all", False), (4, "carol", False)],
)
def test_many_batches_flow_without_a_deadlock(
    parties: int, learns: str, size_only: bool, extra: int, wire: Wire, monkeypatch: Any
) -> None:
    monkeypatch.setattr(transfer, "BATCH", 7)
    monkeypatch.setattr(link_module, "WINDOW", 8 * (link_module.OVERHEAD + 7 * 32))
    rows = 7 * (2 * 8 + 3)  # more than a link keeps, and a batch that is just full
    texts = [str(k) for k in range(rows + extra)]
    sets = {name: [*texts, name] for name in NAMES[:parties]}
    sets["alice"] = texts
    run(asyncio.to_thread(check, sets, learns, size_only))
    assert max(len(raw) for raw in wire.of("set")) == 7 * 32
    assert len(wire.of("set", "alice", "bob")) >= 2 * 8


def test_batches_cover_all_and_overlap_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "BATCH", 7)
    for count in range(30):
        slices = list(batches(count))
        positions = [position for batch in slices for position in range(count)[batch]]
        assert positions == list(range(count))
        assert all(batch.stop - batch.start == 7 for batch in slices[:-1])


# what is sent


def test_the_published_example_goes_over_the_wire_number_by_number(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 3.1 of the thesis; its lists are sorted, ours are shuffled."""
    keys = {"alice": 2671390701970302872, "bob": 325637035052474817}
    drawn: list[int] = []
    make = Party.__init__

    def create(self: Party, me: str, *rest: Any) -> None:
        drawn.append(keys[me])
        make(self, me, *rest)

    monkeypatch.setattr(Party, "__init__", create)
    monkeypatch.setattr(Thesis, "draw_key", lambda _: drawn.pop().to_bytes(8, "big"))
    alice = ["12345678A", "87654321B", "54321678C", "67891234D"]
    bob = ["67891234D", "22222222Y", "54321678C", "11111111X"]
    results = tacit.psi(
        {"alice": alice, "bob": bob}, "nin", group="thesis", spelling={"case": "keep"}, threads=1
    )
    y_a = {4037654302475096183, 7215131381927850152, 7524770399191986516, 4530009952158919715}
    y_b = {709144700394714309, 1186382732300108902, 683568481448076414, 3441729271243177027}
    both_a = {5211193962823641457, 7666888661095677275, 4407230382765344063, 3478216981347847458}
    both_b = {3478216981347847458, 7666888661095677275, 8512757503240690236, 6052532624285366477}
    sent = {name: b"".join(wire.of("set", name)) for name in ("alice", "bob")}
    assert {int.from_bytes(y, "big") for y in pieces(sent["alice"], 8)} == y_a
    assert {int.from_bytes(y, "big") for y in pieces(sent["bob"], 8)} == y_b

    seal = Deal(TERMS, {}, bytes.fromhex(results["alice"].session)).seal
    for sender, both in (("bob", both_a), ("alice", both_b)):
        returned = b"".join(wire.of("tags", sender))
        length = len(returned) // 4
        tags = {make_tags(z.to_bytes(8, "big"), 8, seal, length) for z in both}
        assert set(pieces(returned, length)) == tags
    alices_people = [alice[row] for row in results["alice"].rows]
    bobs_people = [bob[row] for row in results["bob"].rows]
    assert sorted(alices_people) == ["54321678C", "67891234D"]
    assert bobs_people == alices_people


def test_no_two_sessions_have_anything_in_common(wire: Wire, keys: list[bytes]) -> None:
    people = [str(k) for k in range(60)]
    seen: list[set[bytes]] = []
    for _ in range(2):
        wire.messages.clear()
        tacit.psi({"alice": people, "bob": people}, "id", threads=1)
        length = len(b"".join(wire.of("tags", "bob"))) // 60
        elements = pieces(b"".join(wire.of("set")), 32)
        seen.append({*elements, *pieces(b"".join(wire.of("tags")), length)})
        assert len(elements) == len(set(elements)) == 120
    assert not seen[0] & seen[1]
    assert len(keys) == len(set(keys)) == 4


def test_hashes_depend_on_the_session_and_tags_on_it_too() -> None:
    deal = Deal(TERMS, {"alice": 1, "bob": 1}, bytes([1]) * 32)
    next_deal = replace(deal, session=bytes([2]) * 32)
    assert deal.tag != next_deal.tag
    assert deal.seal != next_deal.seal
    assert deal.seal != deal.session
    renamed = replace(deal, terms=replace(TERMS, column="other"))
    assert renamed.tag != deal.tag


class StatedTerms:
    """A link to a peer that has said its terms."""

    def __init__(self, terms: Terms, size: int, nonce: str) -> None:
        statement = {"terms": terms.stated(), "brings": {"size": size}, "held": None}
        self.raw = json.dumps({**statement, "nonce": nonce * 64}).encode()

    async def send(self, name: str, data: bytes) -> None: ...

    async def receive(self, name: str) -> bytes:
        return self.raw


def test_a_session_is_named_by_all_nonces_sizes_and_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(
        our_nonce: str = "0",
        their_nonce: str = "0",
        our_size: int = 5,
        their_size: int = 5,
        reveal: Any = "rows",
    ) -> bytes:
        monkeypatch.setattr("secrets.token_hex", lambda _: our_nonce * 64)
        terms = replace(TERMS, reveal=reveal)
        links: Any = {"bob": StatedTerms(terms, their_size, their_nonce)}
        return asyncio.run(agree(links, "alice", terms, our_size)).session

    assert session() == session()
    sessions = {
        session(),
        session(our_nonce="1"),
        session(their_nonce="1"),
        session(our_size=4),
        session(their_size=4),
        session(reveal="size"),
    }
    assert len(sessions) == 6


def test_tags_are_long_enough_for_the_sets_of_all_parties() -> None:
    sizes = {"alice": 1, "bob": 1, "carol": 10**6, "dora": 10**6}
    assert Deal(TERMS, sizes, bytes(32)).tag_length == 10


def test_every_session_has_another_name() -> None:
    sets = {"alice": ["a"], "bob": ["a"]}
    assert len({tacit.psi(sets, "id")["bob"].session for _ in range(3)}) == 3


@pytest.mark.parametrize("parties", [2, 3])
def test_elements_are_sent_in_a_random_order(
    parties: int, wire: Wire, keys: list[bytes], monkeypatch: Any
) -> None:
    """By chance, sixty elements are in their table's order once in 60! times."""
    people = [str(k) for k in range(60)]
    orders: list[list[int]] = []
    tags: list[bytes] = []
    hashed = X25519.encrypt_hashed

    def remember(self: X25519, identifiers: Sequence[bytes], tag: bytes, key: bytes) -> bytes:
        orders.append([int(identifier) for identifier in identifiers])
        tags.append(tag)
        return hashed(self, identifiers, tag, key)

    monkeypatch.setattr(X25519, "encrypt_hashed", remember)
    tacit.psi(dict.fromkeys(NAMES[:parties], people), "id", threads=1)
    assert all(sorted(order) == list(range(60)) for order in orders)
    assert len({tuple(order) for order in [*orders, range(60)]}) == parties + 1
    assert len(set(tags)) == 1


def test_shuffles_are_permutations_of_which_each_is_as_likely() -> None:
    counts = Counter(tuple(shuffled(3).tolist()) for _ in range(1200))
    assert len(counts) == 6
    assert all(130 < count < 270 for count in counts.values())  # 200 +- 5 standard deviations
    assert shuffled(0).tolist() == []


def test_long_shuffles_keep_no_order() -> None:
    """Of neighbours, half ascend: 2000 +- 11 standard deviations of sqrt(4000 / 12)."""
    order = shuffled(4001)
    assert sorted(order.tolist()) == list(range(4001))
    assert 1800 < (np.diff(order) > 0).sum() < 2200


@pytest.mark.parametrize("learns", ["all", "alice"])
def test_of_two_who_learn_the_size_the_tags_come_back_sorted(
    learns: str, wire: Wire, monkeypatch: Any
) -> None:
    monkeypatch.setattr(transfer, "BATCH", 7)
    people = [str(k) for k in range(50)]
    tacit.psi({"alice": people[:30], "bob": people[10:]}, "id", learns=learns, size_only=True)
    returned = {"bob": 30}
    if learns == "all":
        returned["alice"] = 40
    for sender, count in returned.items():
        raw = b"".join(wire.of("tags", sender))
        tags = pieces(raw, len(raw) // count)
        assert len(tags) == count
        assert tags == sorted(tags)
    assert bool(wire.of("tags", "alice")) is (learns == "all")
    assert not wire.of("places")


def test_of_two_who_learn_rows_the_tags_come_back_in_the_order_of_the_elements(
    wire: Wire, keys: list[bytes]
) -> None:
    people = [str(k) for k in range(30)]
    results = tacit.psi({"alice": people, "bob": people}, "id", learns="alice", threads=1)
    assert not wire.of("tags", "alice")  # who does not learn gets nothing but elements
    seal = Deal(TERMS, {}, bytes.fromhex(results["alice"].session)).seal
    sent = b"".join(wire.of("set", "alice"))
    returned = b"".join(wire.of("tags", "bob"))
    length = len(returned) // 30
    tags = [make_tags(X25519().encrypt(sent, key), 32, seal, length) for key in keys]
    assert returned in tags


def dealt(sets: Mapping[str, Sequence[str]], learns: str = "all", session: bytes = b"") -> Deal:
    learner = None if learns == "all" else learns
    terms = Terms(tuple(sets), X25519(), "id", Spelling(), learner=learner)
    sizes = {name: len(identifiers) for name, identifiers in sets.items()}
    return Deal(terms, sizes, session)


@pytest.mark.parametrize("parties", [3, 4, 5])
def test_every_set_passes_every_party_once_and_ends_with_the_collector(parties: int) -> None:
    names = NAMES[:parties]
    for learns in ("all", *names):
        deal = dealt(dict.fromkeys(names, ""), learns)
        index = 0 if learns == "all" else names.index(learns)
        assert (deal.collector, deal.judge) == (names[index], names[index - 1])
        for owner in names:
            route = deal.route(owner)
            assert route[0] == owner
            assert sorted(route) == sorted(names)
            assert route[-1] == (deal.judge if owner == deal.collector else deal.collector)


def test_the_ways_of_four() -> None:
    deal = dealt(dict.fromkeys(NAMES[:4], ""), "carol")
    assert deal.route("alice") == ["alice", "bob", "dora", "carol"]
    assert deal.route("bob") == ["bob", "dora", "alice", "carol"]
    assert deal.route("carol") == ["carol", "dora", "alice", "bob"]
    assert deal.route("dora") == ["dora", "alice", "bob", "carol"]


@pytest.mark.parametrize(
    ("learns", "size_only"), [("all", False), ("carol", False), ("all", True), ("carol", True)]
)
def test_of_several_each_hears_no_more_than_it_is_told_to(
    learns: str, size_only: bool, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the sets of others, each under another key at least, then only what its role needs."""
    monkeypatch.setattr(transfer, "BATCH", 7)
    names = NAMES[:4]
    people = [str(k) for k in range(20)]
    sets = {name: people[index:] for index, name in enumerate(names)}  # 17 in common
    tacit.psi(sets, "id", learns=learns, size_only=size_only, threads=1)
    deal = dealt(sets, learns)
    collector, judge = ("alice", "dora") if learns == "all" else ("carol", "bob")
    for name in names:
        expected = set()
        for index, owner in enumerate(names):
            if owner != name:
                route = deal.route(owner)
                sender = route[route.index(name) - 1]
                expected |= {(f"set {index}", sender, len(sets[owner]) * 32)}
        if name == collector:
            expected |= {("tags", judge, len(sets[name]) * deal.tag_length)}
            expected |= {("factor", owner, 32) for owner in names if owner != name}
        if name == judge and not size_only:
            expected |= {("size", collector, 8), ("common", collector, 17 * deal.tag_length)}
        if learns in ("all", name):
            teller = judge if name == collector else collector
            if not size_only:
                expected |= {("count", teller, 8), ("places", teller, 17 * 4)}
            elif name != collector:
                expected |= {("size", teller, 8)}
        heard: Counter[tuple[str, str]] = Counter()
        for message in wire.messages:
            if message.receiver == name:
                heard[message.name, message.sender] += len(message.data)
        assert {(*which, length) for which, length in heard.items()} == expected, name
    tags = pieces(b"".join(wire.of("tags")), deal.tag_length)
    shared = pieces(b"".join(wire.of("common")), deal.tag_length)
    assert tags == sorted(set(tags))
    assert shared == sorted(set(shared))
    assert set(shared) <= set(tags)
    assert all(int.from_bytes(raw, "big") == 17 for raw in wire.of("size") + wire.of("count"))


def test_what_more_is_learnt_is_what_the_docstring_says(
    wire: Wire, keys_by_party: dict[str, bytes]
) -> None:
    """The collector counts what any sets share; the judge hears how many are in all."""
    sets = {"alice": ["a", "b", "c"], "bob": ["b", "c", "d", "e"], "carol": ["c", "e", "f"]}
    results = tacit.psi(sets, "id", learns="alice", threads=1)
    deal = dealt(sets, "alice", bytes.fromhex(results["alice"].session))
    tags = {"alice": b"".join(wire.of("tags"))}
    for owner, elements in received(wire, deal, "alice").items():
        encrypted = joined(elements, key_for(owner, "alice", wire, deal, keys_by_party))
        tags[owner] = make_tags(encrypted, 32, deal.seal, deal.tag_length)
    seen = {owner: set(pieces(raw, deal.tag_length)) for owner, raw in tags.items()}
    assert len(seen["alice"] & seen["bob"]) == 2  # b and c
    assert len(seen["alice"] & seen["carol"]) == 1  # c
    assert len(seen["bob"] & seen["carol"]) == 2  # c and e
    assert [int.from_bytes(raw, "big") for raw in wire.of("size", receiver="carol")] == [1]
    assert results["carol"].size is None
    assert not wire.of("size", receiver="bob")


def received(wire: Wire, deal: Deal, name: str) -> dict[str, list[bytes]]:
    """The elements of all other sets, as they came to a party."""
    sets = {}
    for index, owner in enumerate(deal.sizes):
        if owner != name:
            to_name = [message for message in wire.messages if message.receiver == name]
            batches = [message.data for message in to_name if message.name == f"set {index}"]
            sets[owner] = pieces(b"".join(batches), 32)
    return sets


def joined(elements: Sequence[bytes], *keys: bytes) -> bytes:
    """Elements under more keys."""
    raw = b"".join(elements)
    for key in keys:
        raw = X25519().encrypt(raw, key)
    return raw


def key_for(owner: str, name: str, wire: Wire, deal: Deal, keys: Mapping[str, bytes]) -> bytes:
    """The key by which a party encrypts an owner's set."""
    if name != deal.collector:
        return keys[name]
    (factor,) = wire.of("factor", owner, name)
    return deal.group.unblind(keys[name], factor)


def overlapping(held: Mapping[str, set[bytes]]) -> set[tuple[str, str]]:
    """The owners whose people can be compared."""
    return {(a, b) for a, b in combinations(held, 2) if held[a] & held[b]}


Several = tuple[Deal, dict[str, list[str]], dict[str, bytes]]


@pytest.fixture(
    params=[(3, "all"), (3, "bob"), (4, "all"), (4, "carol"), (5, "all"), (5, "dora")], ids=str
)
def several(
    request: Any, wire: Wire, keys_by_party: dict[str, bytes], own_keys: dict[str, bytes]
) -> Several:
    """A session in which any two parties share people that others lack, and all share some."""
    parties, learns = request.param
    names = NAMES[:parties]
    sets = {name: ["all", "of them", name] for name in names}
    for pair in combinations(names, 2):
        for name in pair:
            sets[name].append("+".join(pair))
    results = tacit.psi(sets, "id", learns=learns, threads=1)
    session = bytes.fromhex(results[names[0]].session)
    return dealt(sets, learns, session), sets, keys_by_party


def test_a_party_gets_a_set_under_the_keys_of_all_before_it(
    several: Several, own_keys: dict[str, bytes], wire: Wire
) -> None:
    deal, sets, keys = several
    ways: list[frozenset[str]] = []
    for name in sets:
        for owner, elements in received(wire, deal, name).items():
            before = deal.route(owner)[: deal.route(owner).index(name)]
            identifiers = [text.encode() for text in sets[owner]]
            first = deal.group.encrypt_hashed(identifiers, deal.tag, own_keys[owner])
            later = joined([first], *(keys[party] for party in before[1:]))
            assert set(elements) == set(pieces(later, 32))
            if name != deal.collector:
                ways.append(frozenset(before))
    assert len(ways) == len(set(ways))  # no two the same


def test_only_the_collector_holds_two_sets_under_the_same_keys(
    several: Several, own_keys: dict[str, bytes], wire: Wire
) -> None:
    deal, sets, keys = several
    for name in sets:
        held = {}
        for owner, elements in received(wire, deal, name).items():
            encrypted = joined(elements, key_for(owner, name, wire, deal, keys))
            tags = make_tags(encrypted, 32, deal.seal, deal.tag_length)
            held[owner] = {*elements, *pieces(encrypted, 32), *pieces(tags, deal.tag_length)}
        identifiers = [text.encode() for text in sets[name]]
        hashed = X25519().hash(identifiers, deal.tag)
        encrypted = deal.group.encrypt_hashed(identifiers, deal.tag, own_keys[name])
        held[name] = {*pieces(hashed, 32), *pieces(encrypted, 32)}
        if name == deal.collector:
            held[name] |= set(pieces(b"".join(wire.of("tags")), deal.tag_length))
            assert overlapping(held) == {*combinations(held, 2)}
            assert len(set.intersection(*held.values())) == 2
        else:
            assert overlapping(held) == set(), name
        heard = set(pieces(b"".join(wire.of("common", receiver=name)), deal.tag_length))
        assert len(heard) == (2 if name == deal.judge else 0)
        assert heard <= held[deal.collector]


def test_what_two_others_were_sent_is_not_comparable(several: Several, wire: Wire) -> None:
    deal, sets, _ = several
    for pool in combinations([name for name in sets if name != deal.collector], 2):
        held: dict[str, set[bytes]] = {name: set() for name in sets}
        for name in pool:
            for owner, elements in received(wire, deal, name).items():
                held[owner] |= {*elements}
        assert overlapping(held) == set(), pool
        assert not wire.of("tags", receiver=pool[0]) + wire.of("tags", receiver=pool[1])


@pytest.fixture(params=["blinded", "as before blinding"])
def blinding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether sets are blinded; without, a party's own key is that for the sets of others."""
    if request.param != "blinded":
        one = (1).to_bytes(32, "big")
        monkeypatch.setattr(X25519, "blind", lambda _, key: (key, one))
    return request.param == "blinded"


def test_what_two_others_that_show_each_other_everything_can_compare_is_their_own_sets(
    blinding: bool, several: Several, own_keys: dict[str, bytes], wire: Wire
) -> None:
    """All that came to them and their own sets, each under as many keys of theirs as it can get.

    Without blinding, two of four parties or more could also compare some of the others' sets.
    """
    deal, sets, keys = several
    for pool in combinations([name for name in sets if name != deal.collector], 2):
        theirs = {name: {keys[name], own_keys[name]} for name in pool}
        held: dict[str, set[bytes]] = {name: set() for name in sets}
        for name in pool:
            hashed = deal.group.hash([text.encode() for text in sets[name]], deal.tag)
            held[name] |= under_keys([hashed], [theirs[party] for party in pool])
            for owner, elements in received(wire, deal, name).items():
                before = deal.route(owner)[: deal.route(owner).index(name)]
                missing = [theirs[party] for party in pool if party not in before]
                held[owner] |= under_keys(elements, missing)
        comparable = overlapping(held)
        assert not any(deal.collector in pair for pair in comparable), pool
        if blinding or len(sets) == 3:
            assert comparable == {pool}
        else:
            assert comparable > {pool}


def under_keys(elements: Sequence[bytes], choices: Sequence[set[bytes]]) -> set[bytes]:
    """The elements under one key of each choice, whichever these are."""
    encrypted: set[bytes] = set()
    for chosen in product(*choices):
        encrypted |= set(pieces(joined(elements, *chosen), 32))
    return encrypted


@pytest.mark.parametrize("learns", ["all", "bob"])
def test_elements_travel_around_the_ring_under_new_keys_in_the_order_in_which_they_came(
    learns: str, wire: Wire, keys_by_party: dict[str, bytes]
) -> None:
    sets = {name: [name, "x", "y"] for name in NAMES[:4]}
    tacit.psi(sets, "id", learns=learns, threads=1)
    deal = dealt(sets, learns)
    for index, name in enumerate(sets):
        way = [message for message in wire.messages if message.name == f"set {index}"]
        steps = [(message.sender, message.receiver) for message in way]
        assert steps == [*pairwise(deal.route(name))]
        for before, after in pairwise(way):
            assert joined([before.data], keys_by_party[after.sender]) == after.data
    assert len(set(wire.of("set"))) == 12


def test_progress_is_that_of_all_parties_together() -> None:
    events: list[Event] = []
    sets = {name: [str(k) for k in range(5 + index)] for index, name in enumerate(NAMES[:3])}
    tacit.psi(sets, "id", on_event=events.append, threads=1)
    progress = [event for event in events if isinstance(event, Advanced)]
    done = [event.done for event in progress]
    assert done == sorted(done)
    assert done[-1] == 54
    assert {event.total for event in progress} == {3 * 18}


# what is not to be shown


TERMS = Terms(("alice", "bob"), X25519(), "id", Spelling())


def test_nothing_secret_shows_itself() -> None:
    deal = Deal(TERMS, {"alice": 2, "bob": 2}, bytes(32))
    with BatchThreads(1) as threads:
        party = Party("alice", [b"hidden-7", b"hidden-8"], deal, threads)
    results = tacit.psi({"alice": ["hidden-7", "hidden-8"], "bob": ["hidden-8"]}, "id")
    assert repr(CommonRows(1, np.array([4711]))) == "CommonRows(size=1)"
    for text in map(repr, (party, deal, results["alice"])):
        assert "hidden" not in text
        assert "rows" not in text.replace("reveal='rows'", "")
        assert party.key.hex() not in text
        assert repr(party.key) not in text
        assert deal.seal.hex() not in text


# liars

Change = Callable[[str, bytes], Sequence[bytes]]


class TamperedLink:
    """A link on which a liar changes what it sends."""

    def __init__(self, link: Link, change: Change) -> None:
        self.link = link
        self.change = change
        self.peer = link.peer
        self.process = link.process

    async def send(self, name: str, data: bytes) -> None:
        for changed in self.change(name, bytes(data)):
            await self.link.send(name, changed)

    async def receive(self, name: str) -> bytes:
        return await self.link.receive(name)


@dataclass
class DishonestSession:
    """A session in which one party lies, and the errors of the honest ones."""

    liar: str
    change: Change
    parties: int = 2
    reveal: Any = "rows"
    learns: str | None = None
    links: dict[str, Mapping[str, Link]] = field(default_factory=dict)  # by party
    errors: dict[str, Exception] = field(default_factory=dict)  # by party

    def run(self) -> dict[str, Exception]:
        with pytest.raises(ChannelError):
            run(self._converse())
        return self.errors

    async def _converse(self) -> None:
        names = NAMES[: self.parties]
        terms = Terms(names, X25519(), "id", Spelling(), self.reveal, self.learns)
        with BatchThreads(1) as threads:
            programs = {me: self._program(me, terms, threads) for me in names}
            await converse(programs, purpose="psi")

    def _program(self, me: str, terms: Terms, threads: BatchThreads) -> Program[CommonRows]:
        async def program(links: Mapping[str, Any]) -> CommonRows:
            self.links[me] = links
            if me == self.liar:
                links = {peer: TamperedLink(link, self.change) for peer, link in links.items()}
            values = [b"hidden-0", b"hidden-1", b"hidden-2", f"hidden-{me}".encode()]
            try:
                deal = await agree(links, me, terms, len(values))
                return await intersect(Party(me, values, deal, threads), links)
            except Exception as error:
                if me != self.liar:
                    self.errors.setdefault(me, error)
                raise

        return program


def session(
    liar: str, change: Change, parties: int = 2, reveal: Any = "rows", learns: str | None = None
) -> dict[str, Exception]:
    """The errors of honest parties in a session with one liar."""
    return DishonestSession(liar, change, parties, reveal, learns).run()


def assert_told(errors: dict[str, Exception], pattern: str, keys: Sequence[bytes] = ()) -> None:
    """An honest party says what is wrong, in a line that holds nothing of its data."""
    texts = [str(error) for error in errors.values()]
    assert any(pattern in text for text in texts), texts
    secrets = [key.hex() for key in keys]
    for error in errors.values():
        assert isinstance(error, ChannelError)
        text = str(error)
        assert text.count("\n") == 0
        assert len(text) < 400
        assert not any(word in text for word in ("hidden", "Traceback", *secrets))


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FAREWELL", 0.05)


def changing(name: str, *new: Callable[[bytes], bytes]) -> Change:
    """Sends these in place of each message of that name."""

    def change(message_name: str, data: bytes) -> list[bytes]:
        if message_name.split()[0] != name:
            return [data]
        return [make(data) for make in new]

    return change


ELEMENTS = {
    "an element twice": (lambda raw: raw[:32] * 2 + raw[64:], "bob sent an element twice"),
    "the identity": (lambda raw: raw[:64] + bytes(32) + raw[96:], "is the identity"),
    "what is no point": (lambda raw: b"\xff" * 32 + raw[32:], "is not a canonical encoding"),
    "part of an element": (lambda raw: raw[:-1], "sent 127 bytes where 4 times 32 were expected"),
    "too few elements": (lambda raw: raw[:-32], "sent 96 bytes where 4 times 32 were expected"),
    "too many elements": (
        lambda raw: raw + raw[:32],
        "sent 160 bytes where 4 times 32 were expected",
    ),
    "nothing": (lambda _: b"", "sent 0 bytes where 4 times 32 were expected"),
}
TAGS = {
    "a tag twice": (lambda raw: raw[: len(raw) // 4] * 2 + raw[len(raw) // 2 :], "twice"),
    "part of a tag": (lambda raw: raw[:-1], "bytes where 4 times"),
    "too few tags": (lambda raw: raw[len(raw) // 4 :], "bytes where 4 times"),
    "too many tags": (lambda raw: raw * 2, "bytes where 4 times"),
    "nothing": (lambda _: b"", "sent 0 bytes where 4 times"),
}
COUNTS = {
    "more than there are": (
        lambda _: (5).to_bytes(8, "big"),
        "from 0 to 4, the size of the smallest set",
    ),
    "a huge number": (lambda _: b"\xff" * 8, "from 0 to 4, the size of the smallest set"),
    "a longer number": (lambda _: bytes(8) + b"\3", "sent no number"),
    "nothing": (lambda _: b"", "sent no number"),
}
PLACES = {
    "a place twice": (
        lambda raw: raw[:4] * 2 + raw[8:],
        "not those of 3 different elements of our set",
    ),
    "a place beyond the end": (
        lambda raw: raw[:8] + b"\4\0\0\0",
        "not those of 3 different elements of our set",
    ),
    "part of a place": (lambda raw: raw[:-1], "sent 11 bytes where 3 times 4 were expected"),
    "too few": (lambda raw: raw[4:], "sent 8 bytes where 3 times 4 were expected"),
    "too many": (lambda raw: raw * 2, "sent 24 bytes where 3 times 4 were expected"),
}
COMMON = {
    "a tag twice": (
        lambda raw: raw[: len(raw) // 3] * 2 + raw[-(len(raw) // 3) :],
        "alice named tags that are not in all sets, or the same one twice",
    ),
    "a tag that is not in all sets": (
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
        "alice named tags that are not in all sets, or the same one twice",
    ),
}


LIARS = [
    ("bob", 2),
    ("alice", 3),
    ("bob", 3),
    ("carol", 3),
]  # of three: the collector, one that is neither, the judge


@pytest.mark.parametrize(("liar", "parties"), LIARS)
@pytest.mark.parametrize("lie", ELEMENTS)
def test_what_is_no_set_is_told(lie: str, liar: str, parties: int, keys: list[bytes]) -> None:
    change, said = ELEMENTS[lie]
    if parties > 2 and lie == "an element twice":  # one cannot tell who did it
        said = "sent an element twice, or a party changed what it passed on"
    assert_told(session(liar, changing("set", change), parties), said, keys)


@pytest.mark.parametrize("lie", TAGS)
@pytest.mark.parametrize("reveal", ["rows", "size"])
@pytest.mark.parametrize(("liar", "parties", "learns"), [("bob", 2, "alice"), ("carol", 3, None)])
def test_what_are_no_tags_is_told(
    lie: str, reveal: str, liar: str, parties: int, learns: str | None
) -> None:
    change, said = TAGS[lie]
    assert_told(session(liar, changing("tags", change), parties, reveal, learns), said)


@pytest.mark.parametrize("reveal", ["rows", "size"])
@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
        lambda raw: raw[len(raw) // 4 :] + raw[: len(raw) // 4],
    ],
    ids=["another tag", "another order"],
)
@pytest.mark.parametrize("name", ["tags", "nonce", "commitment"])
def test_who_tells_other_tags_than_it_has_committed_to_is_told(
    name: str, change: Callable[[bytes], bytes], reveal: str
) -> None:
    errors = session("bob", changing(name, change), 2, reveal)
    assert_told(errors, "bob returned other tags than those that it had committed to")


# Who knows nobody, and sends back what it gets


Returned = Mapping[str, Callable[[bytes], bytes]]
AS_IT_CAME: Returned = {name: lambda raw: raw for name in ("commitment", "nonce", "tags")}
ANY_COMMITMENT: Returned = {**AS_IT_CAME, "commitment": lambda _: bytes(32)}


async def know_nobody(links: Mapping[str, Link], terms: Terms, returned: Returned) -> None:
    """Bob: his set is what alice sent him, under a key, and his answers are hers."""
    link = links["alice"]
    await agree(links, "bob", terms, 4)
    elements = await link.receive("set 0")
    await link.send("set 1", terms.group.encrypt(elements, terms.group.draw_key()))

    async def send_back(name: str, change: Callable[[bytes], bytes]) -> None:
        await link.send(name, change(await link.receive(name)))

    await asyncio.gather(*(send_back(name, change) for name, change in returned.items()))


@pytest.mark.parametrize("reveal", ["rows", "size"])
@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (AS_IT_CAME, "bob returned the commitment of alice as its own"),
        (ANY_COMMITMENT, "bob returned the nonce of alice as its own"),
        (
            {**ANY_COMMITMENT, "nonce": lambda _: bytes(32)},
            "bob returned other tags than those that it had committed to",
        ),
    ],
    ids=["everything", "all but the commitment", "the tags"],
)
def test_who_knows_nobody_cannot_have_all_in_common_by_returning_what_it_was_sent(
    returned: Returned, said: str, reveal: Any
) -> None:
    terms = replace(TERMS, reveal=reveal)
    learnt: asyncio.Future[CommonRows]

    async def scene() -> CommonRows:
        with BatchThreads(1) as threads:

            async def alice(links: Mapping[str, Link]) -> None:
                values = [b"hidden-%d" % number for number in range(4)]
                deal = await agree(links, "alice", terms, 4)
                try:
                    learnt.set_result(await intersect(Party("alice", values, deal, threads), links))
                except ChannelError as error:
                    learnt.set_exception(error)

            async def bob(links: Mapping[str, Link]) -> None:
                lying = asyncio.create_task(know_nobody(links, terms, returned))
                await asyncio.wait({lying, learnt}, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait({learnt})
                lying.cancel()

            nonlocal learnt
            learnt = asyncio.get_running_loop().create_future()
            await converse({"alice": alice, "bob": bob}, purpose="psi")
            return learnt.result()

    with pytest.raises(ChannelError) as refused:
        run(scene())
    assert_told({"alice": refused.value}, said)


@pytest.mark.parametrize("sizes", [(0, 0), (0, 3), (3, 0), (3, 5)])
def test_commitments_are_sent_where_both_learn_and_tags_only_after_both(
    sizes: tuple[int, int], wire: Wire
) -> None:
    sets = {name: [f"{k}" for k in range(size)] for name, size in zip(NAMES, sizes, strict=False)}
    tacit.psi(sets, "id", threads=1)
    names = [message.name for message in wire.messages]
    assert names.count("commitment") == names.count("nonce") == 2
    later = [at for at, name in enumerate(names) if name in ("nonce", "tags")]
    first, second = (at for at, name in enumerate(names) if name == "commitment")
    assert first < second < min(later)
    assert len(set(wire.of("commitment") + wire.of("nonce"))) == 4
    wire.messages.clear()
    tacit.psi(sets, "id", learns="alice", threads=1)
    assert not wire.of("commitment") + wire.of("nonce")  # bob has no tags that he could return


def test_a_commitment_holds_all_that_it_is_of() -> None:
    deal = Deal(TERMS, {"alice": 2, "bob": 2}, bytes(32))
    tags = b"abcdef"
    first = commitment(deal, "alice", "bob", b"nonce", tags)
    others = [
        commitment(replace(deal, session=b"s" * 32), "alice", "bob", b"nonce", tags),
        commitment(deal, "bob", "alice", b"nonce", tags),
        commitment(deal, "alicebob", "", b"nonce", tags),
        commitment(deal, "alice", "bob", b"nonc", b"eabcdef"),
        commitment(deal, "alice", "bob", b"NONCE", tags),
        commitment(deal, "alice", "bob", b"nonce", b"defabc"),
    ]
    assert commitment(deal, "alice", "bob", b"nonce", tags) == first
    assert len({first, *others}) == 7


@pytest.mark.parametrize("lie", [lambda _: bytes(32), lambda raw: raw[1:], lambda _: b""])
def test_of_several_what_is_no_factor_is_told(lie: Callable[[bytes], bytes]) -> None:
    errors = session("bob", changing("factor", lie), 3)
    assert_told(errors, "bob sent something that is no factor: x25519: expected a factor")


@pytest.mark.parametrize(
    ("name", "liar", "reveal"),
    [
        ("size", "alice", "size"),
        ("size", "alice", "rows"),
        ("count", "alice", "rows"),
        ("count", "carol", "rows"),
    ],
)
@pytest.mark.parametrize("lie", COUNTS)
def test_a_number_that_cannot_be_is_told(lie: str, name: str, liar: str, reveal: str) -> None:
    change, said = COUNTS[lie]
    assert_told(session(liar, changing(name, change), 3, reveal), said)


@pytest.mark.parametrize("liar", ["alice", "carol"])
@pytest.mark.parametrize("lie", PLACES)
def test_places_that_cannot_be_are_told(lie: str, liar: str) -> None:
    change, said = PLACES[lie]
    assert_told(session(liar, changing("places", change), 3), said)


@pytest.mark.parametrize("lie", COMMON)
def test_a_collector_that_lies_is_told_and_not_the_judge_blamed(lie: str) -> None:
    change, said = COMMON[lie]
    assert_told(session("alice", changing("common", change), 3), said)


def test_who_sends_an_element_twice_gets_no_sizes_back(wire: Wire) -> None:
    """Sorted tags, one of them twice: they would tell which element that is."""
    for learns in (None, "bob"):
        wire.messages.clear()
        errors = session(
            "bob", changing("set", lambda raw: raw[:32] * 2 + raw[64:]), 2, "size", learns
        )
        assert_told(errors, "bob sent an element twice")
        assert not wire.of("tags", "alice")


@pytest.mark.parametrize("reveal", ["rows", "size"])
@pytest.mark.parametrize("liar", ["alice", "bob", "carol"])
def test_of_several_who_sends_an_element_twice_has_no_one_told_anything(
    liar: str, reveal: str, wire: Wire
) -> None:
    assert_told(
        session(liar, changing("set", lambda raw: raw[:32] * 2 + raw[64:]), 3, reveal),
        "sent an element twice, or a",
    )
    assert not any(wire.of(name) for name in ("size", "common", "count", "places"))
    if liar == "alice":  # the collector, whose own tags would come back sorted
        assert not wire.of("tags")


def wait_in_vain(silent: DishonestSession, name: str, heard: Sequence[str]) -> None:
    """Alice waits for a message of this name in vain; once she has heard all others, not for long.

    Her wait is an hour, so that it does not end before.
    """

    async def scene() -> None:
        running = asyncio.create_task(silent._converse())
        await until(lambda: "alice" in silent.links)
        link = silent.links["alice"][silent.liar]
        await until(lambda: all(has_taken(link, other_name) for other_name in heard))
        link.answer = 0.05
        link._wake()
        with pytest.raises(ChannelError):
            await running

    run(scene())
    why = f"{silent.liar} has sent no {name!r}, nor anything else, for 0.05 s"
    assert_told(silent.errors, why)


def has_taken(link: Link, name: str) -> bool:
    return name in link._incoming and link._incoming[name].taken > 0


def test_who_sends_no_set_is_told() -> None:
    silent = DishonestSession("bob", changing("set"))
    wait_in_vain(silent, "set 1", heard=["(terms)"])


def test_who_sends_no_tags_is_told() -> None:
    silent = DishonestSession("bob", changing("tags"))
    wait_in_vain(silent, "tags", heard=["(terms)", "set 1", "commitment", "nonce"])


def test_a_judge_that_falls_silent_is_told() -> None:
    silent = DishonestSession("carol", changing("tags"), 3, "size", "alice")
    wait_in_vain(silent, "tags", heard=["(terms)", "set 1"])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"7",
        b'"terms"',
        b"{}",
        b"[" * 50000,
        b'{"size": ' + b"9" * 5000 + b"}",
        b" " * (1 << 19),
        b"{" + b'"a": 1, ' * 20000 + b'"b": 1}',
    ],
    ids=lambda raw: repr(raw[:12]),
)
def test_terms_that_are_none_are_told(raw: bytes) -> None:
    assert_told(
        session("bob", changing("(terms)", lambda _: raw)),
        "bob sent terms that this version does not understand",
    )


def test_terms_of_any_length_are_not_read() -> None:
    errors = session("bob", changing("(terms)", lambda raw: raw + b" " * (1 << 18)))
    assert_told(errors, "bob sent terms that this version does not understand")


@pytest.mark.parametrize(
    ("key", "value"),
    [("size", value) for value in (True, -1, 1 << 32, 4.0, "4", None, [4], 1e300)]
    + [("nonce", value) for value in (None, "", "0" * 63, "0" * 65, 7, ["0"] * 64)],
)
def test_sizes_and_nonces_that_cannot_be_are_told(key: str, value: Any) -> None:
    def change(raw: bytes) -> bytes:
        statement = json.loads(raw)
        if key == "size":
            statement["brings"] = {key: value}
        else:
            statement[key] = value
        return json.dumps(statement).encode()

    assert_told(
        session("bob", changing("(terms)", change)),
        "bob sent terms that this version does not understand",
    )


@pytest.mark.parametrize("key", DIFFERENCES)
def test_terms_that_differ_are_told_by_the_setting_that_differs(key: str) -> None:
    def change(raw: bytes) -> bytes:
        statement = json.loads(raw)
        statement["terms"][key] = "other\n\u202e" * 1000
        return json.dumps(statement).encode()

    errors = session("bob", changing("(terms)", change))
    assert_told(errors, f"alice and bob differ in {DIFFERENCES[key].words}: ")


@pytest.mark.parametrize("key", [key for key in DIFFERENCES if key != "learner"])
def test_terms_that_are_missing_are_told(key: str) -> None:
    """A learner that is missing is the same as None."""

    def change(raw: bytes) -> bytes:
        statement = json.loads(raw)
        del statement["terms"][key]
        return json.dumps(statement).encode()

    errors = session("bob", changing("(terms)", change))
    assert_told(errors, f"alice and bob differ in {DIFFERENCES[key].words}: ")


@pytest.mark.parametrize(
    ("options", "said", "parameters"),
    [
        (
            {"group": Group.build("modp2048")},
            "differ in group: 'x25519' and 'modp2048'",
            ("group",),
        ),
        (
            {"column": "nif"},
            "if the names differ, give the same column on all sides: 'id' and 'nif'",
            ("key", "column"),
        ),
        ({"spelling": Spelling(case="keep")}, "differ in spelling: ", ("spelling",)),
        ({"reveal": "size"}, "differ in what is learnt: 'rows' and 'size'", ("size_only",)),
        ({"learner": "bob"}, "differ in who learns: 'all' and 'bob'", ("learns",)),
        (
            {"parties": ("bob", "alice")},
            "differ in parties; use the same consortium file and the same others: ",
            ("consortium", "others"),
        ),
    ],
)
def test_parties_with_other_settings_part_before_anything_is_sent(
    options: Any, said: str, parameters: tuple[str, ...], wire: Wire
) -> None:
    errors: list[ChannelError] = []

    def agreeing(me: str, terms: Terms) -> Any:
        async def program(links: Mapping[str, Link]) -> None:
            try:
                await agree(links, me, terms, 1)
            except ChannelError as error:
                errors.append(error)
                raise

        return program

    programs = {
        "alice": agreeing("alice", TERMS),
        "bob": agreeing("bob", replace(TERMS, **options)),
    }
    with pytest.raises(ChannelError):
        run(converse(programs, purpose="psi"))
    (error,) = [error for error in errors if str(error).startswith("alice and bob")]
    assert said in str(error)
    assert error.parameters == parameters
    assert not wire.messages


def test_terms_need_parties_and_one_of_them_to_learn() -> None:
    for parties in ((), ("alice",)):
        with pytest.raises(StudyError, match="needs two parties or more, got"):
            Terms(parties, X25519(), "id", Spelling())
    with pytest.raises(
        StudyError, match="'carol' cannot learn the result: the parties are alice, bob"
    ):
        Terms(("alice", "bob"), X25519(), "id", Spelling(), "rows", "carol")
    with pytest.raises(StudyError, match=f"at most {MOST_PARTIES} parties"):
        Terms(tuple(map(str, range(MOST_PARTIES + 1))), X25519(), "id", Spelling())


def test_more_identifiers_than_can_be_counted_are_refused() -> None:
    with pytest.raises(StudyError, match="4294967296 identifiers are too many; at most 4294967295"):
        asyncio.run(agree({}, "alice", TERMS, 1 << 32))


@pytest.mark.parametrize("name", ["münchen", "x" * 63, "a b", "日本"])
def test_parties_may_have_any_name(name: str) -> None:
    check({name: ["a", "b"], "bob": ["b"], "carol": ["c", "b"]}, "all", False)
    check({name: ["a", "b"], "bob": ["b"]}, name, True)


def test_as_many_parties_as_are_allowed_can_be_compared() -> None:
    sets = {f"p{k}": ["a", str(k)] for k in range(MOST_PARTIES)}
    results = tacit.psi(sets, "id", threads=1, group="thesis")
    assert {result.size for result in results.values()} == {1}
