"""Tags that two parties return to each other: each commits to its tags before it sees the other's.

Whoever holds our tags of its set could otherwise return them as the tags of ours, and all would
look known to both. The commitment to tags is H(session, who commits, whose set they are of, nonce,
tags), with a random nonce: it tells nothing of the tags, and nobody finds others that it fits. The
nonce and the tags are told once both commitments are there.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets

from tacit.channel.frames import ChannelError
from tacit.channel.link import Link
from tacit.channel.tasks import together
from tacit.vertical.tags import Tags, as_tags
from tacit.vertical.terms import Deal
from tacit.vertical.transfer import receive_batches, send_tags

NONCE = 32  # bytes
LENGTH = 8  # bytes of the length before each field


def commitment(deal: Deal, committer: str, owner: str, nonce: bytes, tags: bytes) -> bytes:
    """The hash that binds the committer to its tags of the owner's set.

    Every field comes after its length, so that no two lists of fields are hashed alike.
    """
    names = (name.encode("utf-8", "surrogatepass") for name in (committer, owner))
    state = hashlib.sha256()
    for field in (b"tacit-psi tags", deal.session, *names, nonce, tags):
        state.update(len(field).to_bytes(LENGTH, "big"))
        state.update(field)
    return state.digest()


async def exchange(link: Link, me: str, deal: Deal, their_tags: Tags) -> Tags:
    """Returns the tags of the peer's set, and hears those of our own.

    Neither side tells its tags before it has the other's commitment.
    """
    nonce = secrets.token_bytes(NONCE)
    ours = await asyncio.to_thread(commitment, deal, me, link.peer, nonce, their_tags.tobytes())
    await link.send("commitment", ours)
    theirs = await link.receive("commitment")
    if theirs == ours:
        raise ChannelError(f"{link.peer} returned the commitment of {me} as its own")
    _, opening = await together(_open(link, nonce, their_tags), _hear_opening(link, me, deal))
    their_nonce, our_tags = opening
    if their_nonce == nonce:
        raise ChannelError(f"{link.peer} returned the nonce of {me} as its own")
    told = await asyncio.to_thread(commitment, deal, link.peer, me, their_nonce, our_tags)
    if told != theirs:
        raise ChannelError(f"{link.peer} returned other tags than those that it had committed to")
    return as_tags(our_tags, deal.tag_length)


async def _open(link: Link, nonce: bytes, tags: Tags) -> None:
    await link.send("nonce", nonce)
    await send_tags(link, "tags", tags)


async def _hear_opening(link: Link, me: str, deal: Deal) -> tuple[bytes, bytes]:
    """The peer's nonce, and its tags of our set."""
    nonce = await link.receive("nonce")
    return nonce, await receive_batches(link, "tags", deal.sizes[me], deal.tag_length)
