"""Private set intersection by commutative encryption: Agrawal, Evfimievski and Srikant, SIGMOD 2003, section 3.3.

Every party draws a secret key e, hashes its identifiers into a group and encrypts them, f_e(h(v)) = h(v)^e. Since
f_a f_b = f_b f_a, what all parties have encrypted can be compared, and what one key still hides cannot.

Two parties exchange their encrypted sets, each in a random order, and each encrypts the other's. The tags of these
double encryptions go back in the order in which the elements came, so that the receiver knows its rows; where only the
size may be learnt they go back sorted, so that it does not. Departures from the paper: a prime-order group in place of
quadratic residues, tags in place of pairs <y, f(y)>, and the symmetric form is one protocol, not two runs.

More parties pass their sets around a ring, and each adds its key; the last one on a set's way makes the tags. One
party, the collector, receives all tags (sorted, so it cannot tell whose rows they are) and finds those in all sets; the
last one on a set's way then tells the owner which places these are.

What else is learnt: all know the sizes of the sets. Of three or more, the collector can also count what any of the sets
have in common, and the last one on the way of a learner's set hears how many are in all, even if it is not to learn.
Parties are held to follow the protocol; of those that do not, some are noticed and none is prevented from asking for
people that it does not have.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.channel.frames import ChannelError
from tacit.channel.link import Link
from tacit.channel.tasks import together
from tacit.core.errors import DataError
from tacit.core.events import Advanced, OnEvent, ignore
from tacit.vertical.groups.group import Group
from tacit.vertical.tags import Tags, as_tags, common, distinct, make_tags
from tacit.vertical.terms import Deal

BATCH = 4096  # elements in a message


@dataclass(frozen=True)
class Found:
    """What a party has learnt: how many all have in common, and where they are among its identifiers; or neither."""

    size: int | None = None
    places: NDArray[np.int64] | None = field(default=None, repr=False)


class Party:
    """One party's identifiers and key, for one session. The key is drawn anew each time and never leaves."""

    def __init__(
        self, me: str, values: Sequence[bytes], deal: Deal, pool: Executor, threads: int, on_event: OnEvent = ignore
    ) -> None:
        self.me, self.values, self.deal, self.pool, self.threads, self.on_event = (
            me, values, deal, pool, threads, on_event
        )  # fmt: skip
        self.group: Group = deal.group
        self.key = self.group.draw_key()
        self.order = shuffled(len(values))  # in which its elements are sent
        self.done, self.total = 0, 0

    async def encrypted(self) -> AsyncIterator[bytes]:
        """Its own set, encrypted, batch by batch."""
        for batch in batches(len(self.values)):
            chosen = [self.values[place] for place in self.order[batch]]
            yield await self._spread(chosen, 1, lambda part: self.group.encrypt_hashed(part, self.deal.tag, self.key))

    async def received(self, link: Link, owner: str, *, last: bool) -> AsyncIterator[bytes]:
        """A set as it comes over a link, encrypted with our key too; the tags of that, if ours is the last key."""
        size = self.group.size
        for batch in batches(self.deal.sizes[owner]):
            raw = await receive_part(link, f"set {self.deal.place(owner)}", batch, size)
            try:
                yield await self._spread(raw, size, self._sealed if last else self._encrypted)
            except DataError as error:
                raise ChannelError(f"{link.peer} sent what is no element of the group: {error}") from None

    def _encrypted(self, part: bytes) -> bytes:
        return self.group.encrypt(part, self.key)

    def _sealed(self, part: bytes) -> bytes:
        return make_tags(self._encrypted(part), self.group.size, self.deal.seal, self.deal.tag_length)

    async def _spread(self, items: Any, size: int, work: Callable[[Any], bytes]) -> bytes:
        """Divides a batch among all cores: the group's operations release Python's lock."""
        loop, count = asyncio.get_running_loop(), len(items) // size
        step = -(-count // self.threads) * size
        parts = [items[start : start + step] for start in range(0, len(items), step)]
        made = await asyncio.gather(*(loop.run_in_executor(self.pool, work, part) for part in parts))
        self.done += count
        self.on_event(Advanced("elements encrypted", self.done, self.total))
        return b"".join(made)


async def intersect(party: Party, links: Mapping[str, Link]) -> Found:
    """Runs the protocol that the terms name, as this party."""
    sizes = party.deal.sizes
    party.total = sum(sizes.values())
    return await (pair(party, *links.values()) if len(sizes) == 2 else ring(party, links))


async def pair(party: Party, link: Link) -> Found:
    """Two parties."""
    deal, me, peer = party.deal, party.me, link.peer
    mine: list[bytes] = []
    theirs: list[bytes] = []

    async def send() -> None:
        async for batch in party.encrypted():
            await link.send(f"set {deal.place(me)}", batch)

    async def answer() -> None:
        async for tags in party.received(link, peer, last=True):
            theirs.append(tags)
            if deal.learns(peer) and deal.reveal == "rows":
                await link.send("tags", tags)
        other = as_tags(theirs, deal.tag_length)
        if not await asyncio.to_thread(distinct, other):  # in whose sorted tags, twice and thrice would tell places
            raise ChannelError(f"{peer} sent an element twice; its set has to be one")
        if deal.learns(peer) and deal.reveal == "size":  # sorted: the places would tell which
            await send_tags(link, "tags", await asyncio.to_thread(sort_tags, other))

    async def listen() -> None:
        if deal.learns(me):
            mine.append(await receive_tags(link, "tags", deal.sizes[me], deal.tag_length))

    await together(send(), answer(), listen())
    if not deal.learns(me):
        return Found()
    own, other = as_tags(mine, deal.tag_length), as_tags(theirs, deal.tag_length)
    return await asyncio.to_thread(_compare, party, own, other, peer)


def _compare(party: Party, own: Tags, other: Tags, peer: str) -> Found:
    if not distinct(own):
        raise ChannelError(f"{peer} returned a tag twice, so it did not encrypt what it was sent")
    places = common(own, other)
    return Found(len(places), party.order[places] if party.deal.reveal == "rows" else None)


async def ring(party: Party, links: Mapping[str, Link]) -> Found:
    """Three parties or more, each a link of the ring in the order of the terms."""
    deal, me = party.deal, party.me
    names = list(deal.sizes)
    at = names.index(me)
    before, after = links[names[at - 1]], links[names[(at + 1) % len(names)]]
    held: list[bytes] = []  # the tags of the next party's set, which ends its way here

    async def send() -> None:
        async for batch in party.encrypted():
            await after.send(f"set {deal.place(me)}", batch)

    async def pass_on(owner: str) -> None:
        last = owner == after.peer
        async for batch in party.received(before, owner, last=last):
            if last:
                held.append(batch)
            else:
                await after.send(f"set {deal.place(owner)}", batch)

    await together(send(), *(pass_on(owner) for owner in names if owner != me))
    tags = as_tags(held, deal.tag_length)
    if not await asyncio.to_thread(distinct, tags):
        raise ChannelError(f"{after.peer} sent an element twice, or a party changed what it passed on")
    if me == deal.collector:
        shared = await collect(party, links, tags)
    else:
        await send_tags(
            links[deal.collector], f"tags {deal.place(after.peer)}", await asyncio.to_thread(sort_tags, tags)
        )
        shared = None
    if deal.reveal == "size":
        return await share_size(party, links, shared)
    return await share_places(party, links, tags, shared)


async def collect(party: Party, links: Mapping[str, Link], tags: Tags) -> Tags:
    """The collector: the tags that are in all sets, sorted. `tags` are those of the set that ended its way here."""
    deal, shared = party.deal, tags
    for owner, holder in deal.holders.items():
        if holder != party.me:
            raw = await receive_tags(links[holder], f"tags {deal.place(owner)}", deal.sizes[owner], deal.tag_length)
            theirs = as_tags(raw, deal.tag_length)
            if not await asyncio.to_thread(distinct, theirs):
                raise ChannelError(f"{holder} sent a tag twice")
            shared = shared[await asyncio.to_thread(common, shared, theirs)]
    return shared


async def share_size(party: Party, links: Mapping[str, Link], shared: Tags | None) -> Found:
    """The collector tells those who may know how many there are."""
    deal = party.deal
    if shared is not None:
        size = len(shared).to_bytes(8, "big")
        await together(*(link.send("size", size) for peer, link in links.items() if deal.learns(peer)))
        return Found(len(shared))
    if not deal.learns(party.me):
        return Found()
    return Found(await receive_count(links[deal.collector], "size", deal))


async def share_places(party: Party, links: Mapping[str, Link], tags: Tags, shared: Tags | None) -> Found:
    """The holder of a set's tags hears which ones all have, and tells the owner their places; all at the same time."""
    deal, me = party.deal, party.me
    owner = next(owner for owner, holder in deal.holders.items() if holder == me)

    async def send_shared(holder: str) -> None:
        assert shared is not None
        await links[holder].send("size", len(shared).to_bytes(8, "big"))
        await send_tags(links[holder], "common", shared)

    async def tell() -> None:
        known = shared
        if known is None:
            link = links[deal.collector]
            size = await receive_count(link, "size", deal)
            known = as_tags(await receive_tags(link, "common", size, deal.tag_length), deal.tag_length)
        places = await asyncio.to_thread(common, tags, known)
        if len(places) != len(known) or not await asyncio.to_thread(distinct, known):
            raise ChannelError(f"{deal.collector} sent as common what not all sets have, or the same twice")
        await links[owner].send("count", len(places).to_bytes(8, "big"))
        for batch in batches(len(places)):
            await links[owner].send("places", places[batch].astype("<u4").tobytes())

    async def hear() -> NDArray[np.int64]:
        link = links[deal.holders[me]]
        size = await receive_count(link, "count", deal)
        raw = b"".join([await receive_part(link, "places", batch, 4) for batch in batches(size)])
        places = np.frombuffer(raw, "<u4").astype(np.int64)
        if len(np.unique(places)) != size or (size and places.max() >= len(party.values)):
            raise ChannelError(f"{link.peer} sent places that are not those of {size} different elements of our set")
        return party.order[places]

    telling = [tell()] if deal.learns(owner) else []
    if shared is not None:
        telling += [send_shared(deal.holders[name]) for name in deal.learners if deal.holders[name] != me]
    hearing = [hear()] if deal.learns(me) else []
    done = await together(*telling, *hearing)
    return Found(len(done[-1]), done[-1]) if hearing else Found()


async def send_tags(link: Link, name: str, tags: Tags) -> None:
    for batch in batches(len(tags)):
        await link.send(name, tags[batch].tobytes())


async def receive_tags(link: Link, name: str, count: int, length: int) -> bytes:
    """So many tags, in the batches in which they are sent."""
    return b"".join([await receive_part(link, name, batch, length) for batch in batches(count)])


async def receive_part(link: Link, name: str, batch: slice, size: int) -> bytes:
    """A message that holds so many things of a size."""
    raw, count = await link.receive(name), batch.stop - batch.start
    if len(raw) != size * count:
        raise ChannelError(f"{link.peer} sent {len(raw)} bytes where {count} of {size} are due")
    return raw


async def receive_count(link: Link, name: str, deal: Deal) -> int:
    """How many are in common."""
    raw, most = await link.receive(name), min(deal.sizes.values())
    if len(raw) != 8 or int.from_bytes(raw, "big") > most:
        raise ChannelError(f"{link.peer} sent no number, or more in common than the {most} of the smallest set")
    return int.from_bytes(raw, "big")


def sort_tags(tags: Tags) -> Tags:
    return np.sort(tags)


def batches(count: int) -> Iterator[slice]:
    """
    >>> list(batches(5000))
    [slice(0, 4096, None), slice(4096, 5000, None)]
    """
    return (slice(start, min(start + BATCH, count)) for start in range(0, count, BATCH))


def shuffled(count: int) -> NDArray[np.int64]:
    """A random order, from the system's generator for secrets."""
    return np.argsort(np.frombuffer(secrets.token_bytes(16 * count), dtype="S16"), kind="stable")
