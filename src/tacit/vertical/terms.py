"""What parties have to agree on before they compare anything, and the session that follows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tacit.channel.frames import ChannelError
from tacit.channel.link import Link
from tacit.channel.opening import open_session
from tacit.channel.statements import Difference, Protocol
from tacit.core.errors import StudyError
from tacit.core.events import Noted, OnEvent, ignore
from tacit.vertical.groups.group import Group
from tacit.vertical.identifiers import Spelling
from tacit.vertical.tags import tag_length

VERSION = 2  # of the protocol
MOST = 1 << 32  # identifiers of a party
MOST_PARTIES = 50  # a link carries messages of at most 64 names, one for every party and a few more
MOST_RATIO = 10  # times as many identifiers as one's own, unless one says otherwise
SMALLEST_MOST = 1000


DIFFERENCES = {
    "version": Difference("version of the protocol; install the same tacit on all sides"),
    "parties": Difference(
        "parties; use the same consortium file and the same others", ("consortium", "others")
    ),
    "group": Difference("group", ("group",)),
    "column": Difference(
        "what is compared; name the same columns in the same order, "
        "or, if the names differ, give the same column on all sides",
        ("key", "column"),
    ),
    "spelling": Difference("spelling", ("spelling",)),
    "reveal": Difference("what is learnt", ("size_only",)),
    "learner": Difference("who learns", ("learns",)),
}


@dataclass(frozen=True)
class Terms:
    """What all sides have to agree on; `learner` is a party, or None for all."""

    parties: tuple[str, ...]
    group: Group
    column: str
    spelling: Spelling
    reveal: Literal["rows", "size"] = "rows"
    learner: str | None = None

    def __post_init__(self) -> None:
        names = ", ".join(self.parties)
        if len(self.parties) < 2:
            raise StudyError(f"an intersection needs two parties or more, got {names or 'none'}")
        if len(self.parties) > MOST_PARTIES:
            raise StudyError(
                f"at most {MOST_PARTIES} parties can be compared at once, got {len(self.parties)}"
            )
        if self.learner is not None and self.learner not in self.parties:
            raise StudyError(
                f"{self.learner!r} cannot learn the result: the parties are {names}",
                parameters=("learns",),
            )

    def stated(self) -> dict[str, Any]:
        """The terms as they are sent; the keys are those of DIFFERENCES."""
        return {
            "version": VERSION,
            "parties": list(self.parties),
            "group": self.group.name,
            "column": self.column,
            "spelling": asdict(self.spelling),
            "reveal": self.reveal,
            "learner": self.learner or "all",
        }


@dataclass(frozen=True)
class Deal:
    """Terms that all have agreed on, with their sizes. The session's name holds no secret."""

    terms: Terms
    sizes: Mapping[str, int]
    session: bytes

    @property
    def group(self) -> Group:
        return self.terms.group

    @property
    def reveal(self) -> str:
        return self.terms.reveal

    def learns(self, party: str) -> bool:
        """Whether this party may learn the result."""
        return self.terms.learner in (None, party)

    @property
    def collector(self) -> str:
        """Of three parties or more, the one that compares."""
        return self.terms.learner or next(iter(self.sizes))

    @property
    def judge(self) -> str:
        """Of three parties or more, the one before the collector, whose set it tags."""
        names = list(self.sizes)
        return names[names.index(self.collector) - 1]

    def route(self, owner: str) -> list[str]:
        """Of three parties or more: the way of a set, from its owner around the ring.

        The collector comes last, so that no other party holds two sets that it could compare.
        """
        names = list(self.sizes)
        start = names.index(owner)
        around = names[start:] + names[:start]
        if owner == self.collector:
            return around
        around.remove(self.collector)
        return [*around, self.collector]

    def index(self, party: str) -> int:
        """The number by which messages name a party: names may be long, and in any script."""
        return list(self.sizes).index(party)

    @property
    def tag(self) -> bytes:
        """For hashing into the group (RFC 9380, section 3.1).

        No two sessions, columns or versions share a hash.
        """
        head = f"tacit-psi-v{VERSION}-{self.group.name}-{self.terms.column}-"
        return head.encode("utf-8", "surrogatepass") + self.session

    @property
    def tag_length(self) -> int:
        """Bytes of a tag."""
        return tag_length(list(self.sizes.values()))

    @property
    def seal(self) -> bytes:
        """The key of the tags' hash."""
        return hashlib.blake2b(b"tags", key=self.session, digest_size=32).digest()


@dataclass
class Budget:
    """How many identifiers each peer may bring, in all attempts of a run, and says what they bring.

    Whoever brings every identifier there could be learns all of the others' sets, be it at once or
    bit by bit.
    """

    most: int
    brought: dict[str, int] = field(default_factory=dict)  # in earlier attempts too
    on_event: OnEvent = ignore
    sizes: dict[str, int] = field(default_factory=dict)  # in this attempt, agreed or not

    def hear(self, peer: str, size: int) -> None:
        """Notes what a peer brings, whether there will be an agreement or not."""
        self.sizes[peer] = size
        self.on_event(Noted(f"{peer} brings {size:,} identifiers"))

    def spend(self, me: str, own_size: int, peer: str) -> None:
        """Counts what the peer brings, and refuses what is too much."""
        size = self.sizes[peer]
        before = self.brought.get(peer, 0)
        self.brought[peer] = before + size
        if self.brought[peer] > self.most:
            earlier = in_all = ""
            if before:
                earlier = f", after {before:,} in attempts of the last day that did not complete"
                in_all = " in all"
            raise ChannelError(
                f"{peer} brings {size:,} identifiers{earlier}; {me} brings {own_size:,} and "
                f"accepts at most {self.most:,}{in_all}; if this is right, {me} can allow "
                f"{self.brought[peer]:,}",
                parameters=("most",),
            )


def usual_most(own_size: int) -> int:
    """How many identifiers a peer may bring if nobody has said.

    >>> usual_most(3), usual_most(50_000)
    (1000, 500000)
    """
    return max(SMALLEST_MOST, MOST_RATIO * own_size)


async def agree(
    links: Mapping[str, Link], me: str, terms: Terms, size: int, accept: Budget | None = None
) -> Deal:
    """Compares terms with all peers; a difference ends it, with the setting that differs."""
    if size >= MOST:
        raise StudyError(
            f"{size} identifiers are too many; at most {MOST - 1} can be compared at once"
        )

    def hear(peer: str, brings: Mapping[str, Any]) -> None:
        peer_size = brings.get("size")
        if type(peer_size) is not int or not 0 <= peer_size < MOST:  # True is an int, and no size
            raise ChannelError(f"{peer} sent terms that this version does not understand")
        if accept is not None:
            accept.hear(peer, peer_size)

    def check(peer: str, _: Mapping[str, Any]) -> None:
        if accept is not None:
            accept.spend(me, size, peer)

    protocol = Protocol(terms.stated(), {"size": size}, DIFFERENCES, hear, check)
    session = await open_session(links, me, terms.parties, protocol)
    sizes = {party: int(session.brings[party]["size"]) for party in terms.parties}
    return Deal(terms, sizes, session.name)
