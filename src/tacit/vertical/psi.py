"""Private set intersection by commutative encryption: Agrawal, Evfimievski and Srikant, 2003.

Information sharing across private databases, SIGMOD 2003, section 3.3. Every party draws a secret
key e, hashes its identifiers into a group and encrypts them, f_e(h(v)) = h(v)^e. Since
f_a f_b = f_b f_a, what all parties have encrypted can be compared, and what one key still hides
cannot.

Two parties exchange their encrypted sets, each in a random order, and each encrypts the other's.
The tags of these double encryptions go back in the order in which the elements came, so that the
receiver knows its rows. Where only the size may be learnt they go back sorted, so that it does
not. Where both learn, each commits to its tags before it sees the other's, since tags that are sent
back as they came would make everybody look known to both. Departures from the paper: a prime-order
group in place of quadratic residues, tags in place of pairs <y, f(y)>, commitments, and the
symmetric form is one protocol, not two runs.

More parties pass their sets around a ring, and each adds its key. One of them, the collector, is
the last to encrypt every set but its own; so no other party can compare two sets. It finds what is
in all sets and tells each owner the positions in the owner's set. The collector's own set is
encrypted last by the party before it, the judge, which sends the collector the tags sorted, and
later tells it the positions. Each owner but the collector encrypts its own set with a fresh key in
place of that for the others' sets, and tells the collector the factor between the two, which the
collector applies together with its own key. So no parties can compare the sets of others, however
many conspire, unless the collector is among them.

In the ring there is nothing to return: tags go from the judge to the collector alone, and before
the judge has heard any. Sets that are passed on as one's own lack a key of the collector or of
their owner, or have it twice, and so match nothing. The collector could say anything, but it could
as well if it had committed to it: the others take its word for what is in all sets.

What else is learnt: all know the sizes of the sets. Of three or more parties, the collector can
also count what any of the sets have in common, and the judge hears how many are in all sets, if the
collector is to know its rows. Parties are expected to follow the protocol. Some that do not are
noticed; none is prevented from asking for people that it does not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tacit.channel.frames import ChannelError
from tacit.channel.link import Link
from tacit.channel.tasks import together
from tacit.core.errors import DataError
from tacit.vertical.commitment import exchange
from tacit.vertical.party import Party, set_message
from tacit.vertical.tags import Tags, as_tags, distinct, shared_positions, sorted_tags
from tacit.vertical.transfer import (
    batches,
    receive_batches,
    receive_count,
    send_count,
    send_tags,
)

POSITION = np.dtype("<u4")  # as it is sent


@dataclass(frozen=True)
class CommonRows:
    """What a party has learnt; both are None where it may learn neither.

    `size` is how many identifiers all parties have, `positions` where these are among its own.
    """

    size: int | None = None
    positions: NDArray[np.int64] | None = field(default=None, repr=False)


async def intersect(party: Party, links: Mapping[str, Link]) -> CommonRows:
    """Runs the protocol for two parties or for more, as this party."""
    if len(party.deal.sizes) > 2:
        return await ring(party, links)
    (link,) = links.values()
    return await pair(party, link)


# two parties


async def pair(party: Party, link: Link) -> CommonRows:
    """Two parties."""
    _, result = await together(send_set(party, link), learn(party, link))
    common_rows: CommonRows = result
    return common_rows


async def learn(party: Party, link: Link) -> CommonRows:
    """Tags the peer's set, and exchanges tags as far as the parties may learn from them.

    Where one party alone gets tags, it has none that it could return, and so no one commits.
    """
    deal = party.deal
    their_tags = await tag_set(party, link)
    if deal.terms.learner is None:
        returned = await in_returned_order(party, their_tags)
        our_tags = await exchange(link, party.me, deal, returned)
    elif deal.learns(party.me):
        raw = await receive_batches(link, "tags", deal.sizes[party.me], deal.tag_length)
        our_tags = as_tags(raw, deal.tag_length)
    else:
        await send_tags(link, "tags", await in_returned_order(party, their_tags))
        return CommonRows()
    return await asyncio.to_thread(compare, party, our_tags, their_tags, link.peer)


async def send_set(party: Party, link: Link) -> None:
    name = set_message(party.deal, party.me)
    async for batch in party.encrypted():
        await link.send(name, batch)


async def tag_set(party: Party, link: Link) -> Tags:
    """The tags of the peer's set, in the order in which its elements came."""
    deal = party.deal
    peer = link.peer
    batches_of_tags = [batch async for batch in party.received(link, peer, party.key, last=True)]
    tags = as_tags(batches_of_tags, deal.tag_length)
    # Among sorted tags, one that comes twice or thrice would tell which element it is of.
    if not await asyncio.to_thread(distinct, tags):
        raise ChannelError(f"{peer} sent an element twice; a set holds each element once")
    return tags


async def in_returned_order(party: Party, tags: Tags) -> Tags:
    """Sorted if the size alone may be learnt: the order of the elements would tell which rows."""
    if party.deal.reveal == "rows":
        return tags
    return await asyncio.to_thread(sorted_tags, tags)


def compare(party: Party, our_tags: Tags, their_tags: Tags, peer: str) -> CommonRows:
    if not distinct(our_tags):
        raise ChannelError(f"{peer} returned a tag twice, so it did not encrypt what it was sent")
    positions = shared_positions(our_tags, their_tags)
    if party.deal.reveal == "size":
        return CommonRows(len(positions))
    return CommonRows(len(positions), party.order[positions])


# three parties or more


async def ring(party: Party, links: Mapping[str, Link]) -> CommonRows:
    """Three parties or more."""
    deal = party.deal
    tags = await pass_sets_around(party, links)
    if party.me == deal.collector:
        return await collect(party, links, tags)
    collector = links[deal.collector]
    if party.me == deal.judge:
        await judge(party, collector, tags[deal.collector])
    if not deal.learns(party.me):
        return CommonRows()
    if deal.reveal == "size":
        return CommonRows(await receive_count(collector, "size", deal))
    return await hear_positions(party, collector)


async def pass_sets_around(party: Party, links: Mapping[str, Link]) -> dict[str, Tags]:
    """Sends every set on along its route; the tags of those that end here, by owner."""
    deal = party.deal
    owners = list(deal.sizes)
    results = await together(*(pass_set_on(party, links, owner) for owner in owners))
    tags = {}
    for owner, batches_of_tags in zip(owners, results, strict=True):
        if deal.route(owner)[-1] == party.me:
            tags[owner] = as_tags(batches_of_tags, deal.tag_length)
    for owner, set_tags in tags.items():
        if not await asyncio.to_thread(distinct, set_tags):
            raise ChannelError(
                f"{owner} sent an element twice, or a party changed what it passed on"
            )
    return tags


async def pass_set_on(party: Party, links: Mapping[str, Link], owner: str) -> list[bytes]:
    """Encrypts a set and sends it to the next party; if there is none, returns the tags."""
    route = party.deal.route(owner)
    at = route.index(party.me)
    last = at == len(route) - 1
    if at == 0:
        if party.factor is not None:
            await links[party.deal.collector].send("factor", party.factor)
        source = party.encrypted()
    else:
        key = await key_for(party, links, owner)
        source = party.received(links[route[at - 1]], owner, key, last=last)
    name = set_message(party.deal, owner)
    batches_of_tags = []
    async for batch in source:
        if last:
            batches_of_tags.append(batch)
        else:
            await links[route[at + 1]].send(name, batch)
    return batches_of_tags


async def key_for(party: Party, links: Mapping[str, Link], owner: str) -> bytes:
    """Our key for an owner's set: the collector's takes the owner's factor in."""
    if party.me != party.deal.collector:
        return party.key
    factor = await links[owner].receive("factor")
    try:
        return party.group.unblind(party.key, factor)
    except DataError as error:
        raise ChannelError(f"{owner} sent something that is no factor: {error}") from None


async def collect(party: Party, links: Mapping[str, Link], tags: Mapping[str, Tags]) -> CommonRows:
    """The collector finds the tags that are in all sets, and tells those who may know."""
    deal = party.deal
    shared = await find_shared(party, links[deal.judge], tags)
    learners = [peer for peer in links if deal.learns(peer)]
    if deal.reveal == "size":
        await together(*(send_count(links[peer], "size", len(shared)) for peer in learners))
        return CommonRows(len(shared))
    telling = [tell_positions(links[peer], tags[peer], shared) for peer in learners]
    result, *_ = await together(ask_judge(party, links[deal.judge], shared), *telling)
    common_rows: CommonRows = result
    return common_rows


async def find_shared(party: Party, judge_link: Link, tags: Mapping[str, Tags]) -> Tags:
    """Those of the collector's own tags that are in all other sets too."""
    deal = party.deal
    raw = await receive_batches(judge_link, "tags", deal.sizes[party.me], deal.tag_length)
    shared = as_tags(raw, deal.tag_length)
    if not await asyncio.to_thread(distinct, shared):
        raise ChannelError(f"{judge_link.peer} sent a tag twice")
    for set_tags in tags.values():
        positions = await asyncio.to_thread(shared_positions, shared, set_tags)
        shared = shared[positions]
    return shared


async def ask_judge(party: Party, judge_link: Link, shared: Tags) -> CommonRows:
    """The collector's own rows, which the judge alone can tell."""
    await send_count(judge_link, "size", len(shared))
    await send_tags(judge_link, "common", shared)
    rows = await hear_positions(party, judge_link)
    if rows.size != len(shared):
        raise ChannelError(
            f"{judge_link.peer} knows the positions of {rows.size} elements, "
            f"and {len(shared)} are in all sets"
        )
    return rows


async def judge(party: Party, collector: Link, tags: Tags) -> None:
    """The judge sends the collector its tags sorted, and later where those in all sets are."""
    deal = party.deal
    await send_tags(collector, "tags", await asyncio.to_thread(sorted_tags, tags))
    if deal.reveal == "size":
        return
    size = await receive_count(collector, "size", deal)
    raw = await receive_batches(collector, "common", size, deal.tag_length)
    shared = as_tags(raw, deal.tag_length)
    positions = await asyncio.to_thread(shared_positions, tags, shared)
    if len(positions) != size or not await asyncio.to_thread(distinct, shared):
        raise ChannelError(
            f"{collector.peer} named tags that are not in all sets, or the same one twice"
        )
    await send_positions(collector, positions)


async def tell_positions(link: Link, tags: Tags, shared: Tags) -> None:
    """Tells the owner of a set which of its elements are in all sets."""
    await send_positions(link, await asyncio.to_thread(shared_positions, tags, shared))


async def send_positions(link: Link, positions: NDArray[np.int64]) -> None:
    await send_count(link, "count", len(positions))
    for batch in batches(len(positions)):
        await link.send("places", positions[batch].astype(POSITION).tobytes())


async def hear_positions(party: Party, link: Link) -> CommonRows:
    """Which of our elements are in all sets."""
    size = await receive_count(link, "count", party.deal)
    raw = await receive_batches(link, "places", size, POSITION.itemsize)
    positions = np.frombuffer(raw, POSITION).astype(np.int64)
    different = await asyncio.to_thread(np.unique, positions)
    if len(different) != size or np.any(positions >= len(party.values)):
        raise ChannelError(
            f"{link.peer} sent positions that are not those of {size} different elements of our set"
        )
    return CommonRows(size, party.order[positions])
