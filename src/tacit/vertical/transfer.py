"""How elements, tags, positions and counts travel between parties: in batches, and checked."""

from __future__ import annotations

from collections.abc import Iterator

from tacit.channel.frames import ChannelError
from tacit.channel.link import Link
from tacit.vertical.tags import Tags
from tacit.vertical.terms import Deal

BATCH = 4096  # elements in a message
COUNT_BYTES = 8


def batches(count: int) -> Iterator[slice]:
    """The batches in which so many elements are sent.

    >>> list(batches(5000))
    [slice(0, 4096, None), slice(4096, 5000, None)]
    """
    for start in range(0, count, BATCH):
        yield slice(start, min(start + BATCH, count))


async def receive_batch(link: Link, name: str, batch: slice, size: int) -> bytes:
    """A message that holds as many items as the batch, each of `size` bytes."""
    raw = await link.receive(name)
    count = batch.stop - batch.start
    if len(raw) != size * count:
        raise ChannelError(
            f"{link.peer} sent {len(raw)} bytes where {count} times {size} were expected"
        )
    return raw


async def receive_batches(link: Link, name: str, count: int, size: int) -> bytes:
    """So many items of `size` bytes, in the batches in which they are sent."""
    return b"".join([await receive_batch(link, name, batch, size) for batch in batches(count)])


async def send_tags(link: Link, name: str, tags: Tags) -> None:
    for batch in batches(len(tags)):
        await link.send(name, tags[batch].tobytes())


async def send_count(link: Link, name: str, count: int) -> None:
    await link.send(name, count.to_bytes(COUNT_BYTES, "big"))


async def receive_count(link: Link, name: str, deal: Deal) -> int:
    """How many identifiers all parties have in common."""
    raw = await link.receive(name)
    smallest = min(deal.sizes.values())
    if len(raw) != COUNT_BYTES or int.from_bytes(raw, "big") > smallest:
        raise ChannelError(
            f"{link.peer} sent no number from 0 to {smallest}, the size of the smallest set"
        )
    return int.from_bytes(raw, "big")
