"""One party of a private set intersection: its identifiers, its key and what it encrypts."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.channel.frames import ChannelError
from tacit.channel.link import Link
from tacit.core.errors import DataError
from tacit.core.events import Advanced, OnEvent, ignore
from tacit.vertical.batch_threads import BatchThreads
from tacit.vertical.groups.group import Group
from tacit.vertical.tags import make_tags
from tacit.vertical.terms import Deal
from tacit.vertical.transfer import batches, receive_batch

SORT_KEY = 16  # bytes by which an element is put into a random order


class Party:
    """One party in one session. Its keys are drawn anew each time and never leave.

    Of three parties or more, each but the collector encrypts its own set with a second key, and
    tells the collector the factor between the two keys.
    """

    def __init__(
        self,
        me: str,
        values: Sequence[bytes],
        deal: Deal,
        threads: BatchThreads,
        on_event: OnEvent = ignore,
    ) -> None:
        self.me = me
        self.values = values
        self.deal = deal
        self.threads = threads
        self.on_event = on_event
        self.group: Group = deal.group
        self.key = self.group.draw_key()
        self.own_key = self.key  # for its own set
        self.factor: bytes | None = None  # for the collector alone
        if len(deal.sizes) > 2 and me != deal.collector:
            self.own_key, self.factor = self.group.blind(self.key)
        self.order = shuffled(len(values))  # in which its elements are sent
        self.done = 0  # elements encrypted
        self.total = sum(deal.sizes.values())

    async def encrypted(self) -> AsyncIterator[bytes]:
        """Its own set, encrypted, batch by batch."""
        for batch in batches(len(self.values)):
            identifiers = [self.values[position] for position in self.order[batch]]
            yield await self._spread(identifiers, 1, self._encrypt_hashed)

    async def received(
        self, link: Link, owner: str, key: bytes, *, last: bool
    ) -> AsyncIterator[bytes]:
        """A set as it comes over a link, encrypted with the key too.

        If ours is the last key, the tags of that.
        """
        size = self.group.size
        name = set_message(self.deal, owner)
        work = partial(self._tag if last else self._encrypt, key)
        for batch in batches(self.deal.sizes[owner]):
            raw = await receive_batch(link, name, batch, size)
            try:
                yield await self._spread(raw, size, work)
            except DataError as error:
                raise ChannelError(
                    f"{link.peer} sent something that is not an element of the group: {error}"
                ) from None

    def _encrypt_hashed(self, identifiers: Sequence[bytes]) -> bytes:
        return self.group.encrypt_hashed(identifiers, self.deal.tag, self.own_key)

    def _encrypt(self, key: bytes, elements: bytes) -> bytes:
        return self.group.encrypt(elements, key)

    def _tag(self, key: bytes, elements: bytes) -> bytes:
        encrypted = self._encrypt(key, elements)
        return make_tags(encrypted, self.group.size, self.deal.seal, self.deal.tag_length)

    async def _spread(self, items: Any, size: int, work: Callable[[Any], bytes]) -> bytes:
        result = await self.threads.spread(items, size, work)
        self.done += len(items) // size
        self.on_event(Advanced("elements encrypted", self.done, self.total))
        return result


def set_message(deal: Deal, owner: str) -> str:
    """The name of the messages that carry a party's set."""
    return f"set {deal.index(owner)}"


def shuffled(count: int) -> NDArray[np.int64]:
    """A random order, from the system's generator for secrets."""
    sort_keys = np.frombuffer(secrets.token_bytes(SORT_KEY * count), dtype=f"S{SORT_KEY}")
    return np.argsort(sort_keys, kind="stable")
