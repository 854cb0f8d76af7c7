"""Private set intersection by commutative encryption: Agrawal, Evfimievski and Srikant, SIGMOD 2003, section 3.3.

Every party draws a secret key e, hashes its identifiers into a group and encrypts them, f_e(h(v)) = h(v)^e. Since
f_a f_b = f_b f_a, what all parties have encrypted can be compared, and what one key still hides cannot.

Two parties exchange their encrypted sets, each in a random order, and each encrypts the other's. The tags of these
double encryptions go back in the order in which the elements came, so that the receiver knows its rows; where only the
size may be learnt they go back sorted, so that it does not. Departures from the paper: a prime-order group in place of
quadratic residues, tags in place of pairs <y, f(y)>, and the symmetric form is one protocol, not two runs.

More parties pass their sets around a ring, and each adds its key. One of them, the collector, is the last on every
way but that of its own set; so no other can compare. It finds what is in all sets and tells each owner the places. Its
own set ends its way at the party before it, the judge, which hands it the tags sorted, and later tells it the places.

What else is learnt: all know the sizes of the sets. Of three or more, the collector can also count what any of the sets
have in common, and the judge hears how many are in all, if the collector is to know its rows. Of four or more, two that
share their keys can compare some of the sets that passed through both, never the collector's. Parties are held to
follow the protocol; of those that do not, some are noticed and none is prevented from asking for people that it does
not have.
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
class CommonRows:
    """What a party has learnt: how many all have in common, and where they are among its identifiers; or neither."""

    size: int | None = None
    places: NDArray[np.int64] | None = field(default=None, repr=False)


class Party:
    """One party's identifiers and key, for one session. The key is drawn anew each time and never leaves."""

    def __init__(
        self,
        me: str,
        values: Sequence[bytes],
        deal: Deal,
        pool: Executor,
        threads: int,
        on_event: OnEvent = ignore,
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
            yield await self._spread(
                chosen, 1, lambda part: self.group.encrypt_hashed(part, self.deal.tag, self.key)
            )

    async def received(self, link: Link, owner: str, *, last: bool) -> AsyncIterator[bytes]:
        """A set as it comes over a link, encrypted with our key too; the tags of that, if ours is the last key."""
        size = self.group.size
        for batch in batches(self.deal.sizes[owner]):
            raw = await receive_part(link, f"set {self.deal.place(owner)}", batch, size)
            try:
                yield await self._spread(raw, size, self._sealed if last else self._encrypted)
            except DataError as error:
                raise ChannelError(
                    f"{link.peer} sent what is no element of the group: {error}"
                ) from None

    def _encrypted(self, part: bytes) -> bytes:
        return self.group.encrypt(part, self.key)

    def _sealed(self, part: bytes) -> bytes:
        return make_tags(
            self._encrypted(part), self.group.size, self.deal.seal, self.deal.tag_length
        )

    async def _spread(self, items: Any, size: int, work: Callable[[Any], bytes]) -> bytes:
        """Divides a batch among all cores: the group's operations release Python's lock."""
        loop, count = asyncio.get_running_loop(), len(items) // size
        step = -(-count // self.threads) * size
        parts = [items[start : start + step] for start in range(0, len(items), step)]
        made = await asyncio.gather(
            *(loop.run_in_executor(self.pool, work, part) for part in parts)
        )
        self.done += count
        self.on_event(Advanced("elements encrypted", self.done, self.total))
        return b"".join(made)


async def intersect(party: Party, links: Mapping[str, Link]) -> CommonRows:
    """Runs the protocol that the terms name, as this party."""
    sizes = party.deal.sizes
    party.total = sum(sizes.values())
    return await (pair(party, *links.values()) if len(sizes) == 2 else ring(party, links))


async def pair(party: Party, link: Link) -> CommonRows:
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
        if not await asyncio.to_thread(
            distinct, other
        ):  # in whose sorted tags, twice and thrice would tell places
            raise ChannelError(f"{peer} sent an element twice; its set has to be one")
        if deal.learns(peer) and deal.reveal == "size":  # sorted: the places would tell which
            await send_tags(link, "tags", await asyncio.to_thread(sort_tags, other))

    async def listen() -> None:
        if deal.learns(me):
            mine.append(await receive_tags(link, "tags", deal.sizes[me], deal.tag_length))

    await together(send(), answer(), listen())
    if not deal.learns(me):
        return CommonRows()
    own, other = as_tags(mine, deal.tag_length), as_tags(theirs, deal.tag_length)
    return await asyncio.to_thread(_compare, party, own, other, peer)


def _compare(party: Party, own: Tags, other: Tags, peer: str) -> CommonRows:
    if not distinct(own):
        raise ChannelError(f"{peer} returned a tag twice, so it did not encrypt what it was sent")
    places = common(own, other)
    return CommonRows(len(places), party.order[places] if party.deal.reveal == "rows" else None)


async def ring(party: Party, links: Mapping[str, Link]) -> CommonRows:
    """Three parties or more."""
    deal, me = party.deal, party.me
    held: dict[str, list[bytes]] = {
        owner: [] for owner in deal.sizes if deal.route(owner)[-1] == me
    }

    async def pass_on(owner: str) -> None:
        route = deal.route(owner)
        at = route.index(me)
        source = (
            party.received(links[route[at - 1]], owner, last=owner in held)
            if at
            else party.encrypted()
        )
        async for batch in source:
            if owner in held:
                held[owner].append(batch)
            else:
                await links[route[at + 1]].send(f"set {deal.place(owner)}", batch)

    await together(*(pass_on(owner) for owner in deal.sizes))
    tags = {owner: as_tags(parts, deal.tag_length) for owner, parts in held.items()}
    for owner, one in tags.items():
        if not await asyncio.to_thread(distinct, one):
            raise ChannelError(
                f"{owner} sent an element twice, or a party changed what it passed on"
            )
    if me == deal.collector:
        return await collect(party, links, tags)
    if me == deal.judge:
        collector = links[deal.collector]
        await send_tags(collector, "tags", await asyncio.to_thread(sort_tags, tags[deal.collector]))
        if deal.reveal == "rows":
            await judge(party, collector, tags[deal.collector])
    if not deal.learns(me):
        return CommonRows()
    if deal.reveal == "size":
        return CommonRows(await receive_count(links[deal.collector], "size", deal))
    return await hear_places(party, links[deal.collector])


async def collect(party: Party, links: Mapping[str, Link], tags: Mapping[str, Tags]) -> CommonRows:
    """The collector finds the tags that are in all sets, and tells those who may know."""
    deal, me, near = party.deal, party.me, links[party.deal.judge]
    shared = as_tags(
        await receive_tags(near, "tags", deal.sizes[me], deal.tag_length), deal.tag_length
    )
    if not await asyncio.to_thread(distinct, shared):
        raise ChannelError(f"{near.peer} sent a tag twice")
    for theirs in tags.values():
        shared = shared[await asyncio.to_thread(common, shared, theirs)]
    learners = [peer for peer in links if deal.learns(peer)]
    if deal.reveal == "size":
        await together(
            *(links[peer].send("size", len(shared).to_bytes(8, "big")) for peer in learners)
        )
        return CommonRows(len(shared))

    async def ask() -> CommonRows:
        await near.send("size", len(shared).to_bytes(8, "big"))
        await send_tags(near, "common", shared)
        found = await hear_places(party, near)
        if found.size != len(shared):
            raise ChannelError(
                f"{near.peer} knows {found.size} places of {len(shared)} common elements"
            )
        return found

    done = await together(
        ask(), *(tell_places(links[peer], tags[peer], shared) for peer in learners)
    )
    found: CommonRows = done[0]
    return found


async def judge(party: Party, collector: Link, tags: Tags) -> None:
    """The party with the collector's own tags tells it where the common ones are."""
    size = await receive_count(collector, "size", party.deal)
    length = party.deal.tag_length
    shared = as_tags(await receive_tags(collector, "common", size, length), length)
    if len(await asyncio.to_thread(common, tags, shared)) != size or not await asyncio.to_thread(
        distinct, shared
    ):
        raise ChannelError(
            f"{collector.peer} sent as common what not all sets have, or the same twice"
        )
    await tell_places(collector, tags, shared)


async def tell_places(link: Link, tags: Tags, shared: Tags) -> None:
    places = await asyncio.to_thread(common, tags, shared)
    await link.send("count", len(places).to_bytes(8, "big"))
    for batch in batches(len(places)):
        await link.send("places", places[batch].astype("<u4").tobytes())


async def hear_places(party: Party, link: Link) -> CommonRows:
    """Which of our elements are common."""
    size = await receive_count(link, "count", party.deal)
    raw = b"".join([await receive_part(link, "places", batch, 4) for batch in batches(size)])
    places = np.frombuffer(raw, "<u4").astype(np.int64)
    if len(await asyncio.to_thread(np.unique, places)) != size or (
        size and places.max() >= len(party.values)
    ):
        raise ChannelError(
            f"{link.peer} sent places that are not those of {size} different elements of our set"
        )
    return CommonRows(size, party.order[places])


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
        raise ChannelError(
            f"{link.peer} sent no number, or more in common than the {most} of the smallest set"
        )
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
