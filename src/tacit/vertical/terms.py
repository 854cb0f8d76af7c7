"""What parties have to agree on before they compare anything, and the session that follows from it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tacit.channel.frames import ChannelError
from tacit.channel.link import Link
from tacit.core.errors import StudyError, shown
from tacit.vertical.groups.group import Group
from tacit.vertical.identifiers import Spelling
from tacit.vertical.tags import tag_length

VERSION = 1  # of the protocol
MOST = 1 << 32  # identifiers of a party
MOST_PARTIES = 50  # a link carries messages of at most 64 names, one for every party and a few more
WORDS = {
    "version": "version of the protocol; install the same tacit on all sides",
    "parties": "parties; use the same consortium file and the same --with",
    "group": "--group",
    "column": "what is compared; name the same columns in the same order, or where names differ give all the same --as",
    "spelling": "--unicode, --case and --spaces",
    "reveal": "--size-only",
    "learner": "--learns",
}


@dataclass(frozen=True)
class Terms:
    """The parts on which all sides have to agree; `learner` is a party, or None for all."""

    parties: tuple[str, ...]
    group: Group
    column: str
    spelling: Spelling
    reveal: Literal["rows", "size"] = "rows"
    learner: str | None = None

    def __post_init__(self) -> None:
        if len(self.parties) < 2:
            raise StudyError(
                f"an intersection needs two parties or more, got {', '.join(self.parties) or 'none'}"
            )
        if len(self.parties) > MOST_PARTIES:
            raise StudyError(
                f"at most {MOST_PARTIES} parties can be compared at once, got {len(self.parties)}"
            )
        if self.learner is not None and self.learner not in self.parties:
            raise StudyError(
                f"{self.learner!r} cannot learn the result: the parties are {', '.join(self.parties)}"
            )

    def stated(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "parties": list(self.parties),
            "group": self.group.name,
            "column": self.column,
            "spelling": asdict(self.spelling),
            "reveal": self.reveal,
            "learner": self.learner,
        }


@dataclass(frozen=True)
class Deal:
    """Terms that all have agreed on, with their sizes, and the session's secret-free name."""

    terms: Terms
    sizes: Mapping[str, int]
    session: bytes

    @property
    def group(self) -> Group:
        return self.terms.group

    @property
    def reveal(self) -> str:
        return self.terms.reveal

    @property
    def learners(self) -> list[str]:
        return [name for name in self.sizes if self.learns(name)]

    def learns(self, party: str) -> bool:
        return self.terms.learner in (None, party)

    @property
    def collector(self) -> str:
        """Of three parties or more, the one that compares."""
        return self.terms.learner or next(iter(self.sizes))

    @property
    def judge(self) -> str:
        """Of three parties or more, the one before the collector, with whom the collector's own set ends its way."""
        names = list(self.sizes)
        return names[names.index(self.collector) - 1]

    def route(self, owner: str) -> list[str]:
        """Of three parties or more: the way of a set, from its owner around the ring.

        The collector comes last, so that no other party holds two sets that it could compare.
        """
        names = list(self.sizes)
        at = names.index(owner)
        around = names[at:] + names[:at]
        if owner == self.collector:
            return around
        return [name for name in around if name != self.collector] + [self.collector]

    def place(self, party: str) -> int:
        """By which messages name a party: names may be long, and in any script."""
        return list(self.sizes).index(party)

    @property
    def tag(self) -> bytes:
        """For hashing into the group: no two sessions, columns or versions share a hash (RFC 9380, section 3.1)."""
        head = f"tacit-psi-v{VERSION}-{self.group.name}-{self.terms.column}-"
        return head.encode("utf-8", "surrogatepass") + self.session

    @property
    def tag_length(self) -> int:
        return tag_length(list(self.sizes.values()))

    @property
    def seal(self) -> bytes:
        """The key of the tags' hash."""
        return hashlib.blake2b(b"tags", key=self.session, digest_size=32).digest()


@dataclass
class Budget:
    """How many identifiers each peer may bring, in all attempts of a run.

    Whoever brings every identifier there could be learns all of the others' sets, be it at once or bit by bit.
    """

    most: int
    brought: dict[str, int] = field(default_factory=dict)

    def spend(self, me: str, peer: str, size: int) -> None:
        before = self.brought.get(peer, 0)
        self.brought[peer] = before + size
        if before + size > self.most:
            again = f" after {before:,} in earlier attempts" if before else ""
            raise ChannelError(
                f"{peer} brings {size:,} identifiers{again}, and {me} accepts at most {self.most:,}"
            )


async def agree(
    links: Mapping[str, Link], me: str, terms: Terms, size: int, accept: Budget | None = None
) -> Deal:
    """Compares terms with all peers; a difference ends it, with the setting that differs."""
    if size >= MOST:
        raise StudyError(
            f"{size} identifiers are too many; at most {MOST - 1} can be compared at once"
        )
    said = terms.stated() | {"size": size, "nonce": secrets.token_hex(32)}
    raw = json.dumps(said).encode()
    await asyncio.gather(*(link.send("terms", raw) for link in links.values()))
    heard = {me: said}
    for peer, link in links.items():
        heard[peer] = _understood(peer, await link.receive("terms"))
        for key, words in WORDS.items():
            if heard[peer].get(key) != said[key]:
                raise ChannelError(
                    f"{me} and {peer} differ in {words}: {shown(said[key])} and {shown(heard[peer].get(key))}"
                )
        if accept is not None:
            accept.spend(me, peer, heard[peer]["size"])
    sizes = {name: int(heard[name]["size"]) for name in terms.parties}
    whole = json.dumps(
        [terms.stated(), sizes, [heard[name]["nonce"] for name in terms.parties]], sort_keys=True
    )
    return Deal(terms, sizes, hashlib.sha256(whole.encode()).digest())


def _understood(peer: str, raw: bytes) -> dict[str, Any]:
    try:
        said = json.loads(raw) if len(raw) <= 1 << 16 else None
    except (ValueError, RecursionError):
        said = None
    size, nonce = (said.get("size"), said.get("nonce")) if isinstance(said, dict) else (None, None)
    if (
        type(size) is not int
        or not 0 <= size < MOST
        or not isinstance(nonce, str)
        or len(nonce) != 64
    ):
        raise ChannelError(f"{peer} sent terms that this version does not understand")
    assert isinstance(said, dict)
    return said
