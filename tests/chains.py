"""A long program of which every exchange depends on all before."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.channel.session import Session
from tacit.channel.statements import Protocol

LARGEST = 300_000  # bytes of a message
EMPTY = 0.1  # share of messages without a byte
BROADCAST = 10  # one of so many exchanges is heard alike by all


@dataclass(frozen=True)
class Chain:
    """`pause` seconds follow each exchange, and `rest` seconds those whose numbers `rests` has."""

    seed: int
    exchanges: int
    every: int  # exchanges to a checkpoint
    pause: float = 0.0
    rests: tuple[int, ...] = ()
    rest: float = 0.0

    @property
    def protocol(self) -> Protocol:
        return Protocol({"seed": self.seed, "exchanges": self.exchanges, "every": self.every})

    async def run(self, session: Session, note: Callable[[int], None] = lambda _: None) -> str:
        """A digest of all messages; `note` gets the number of each exchange that is done."""
        state: dict[str, Any] = dict(session.state or self._start())
        total = np.array(state["total"])
        digest = state["digest"]
        for number in range(state["done"] + 1, self.exchanges + 1):
            messages = await self._exchange(session, number, digest)
            for party in sorted(messages):
                data = messages[party]
                total[: len(data)] += data
                digest = hashlib.sha256(f"{digest} {party} ".encode() + data.tobytes()).hexdigest()
            note(number)
            if number % self.every == 0:
                await session.checkpoint({"done": number, "digest": digest, "total": total})
            await asyncio.sleep(self.rest if number in self.rests else self.pause)
        return hashlib.sha256(digest.encode() + total.tobytes()).hexdigest()

    def _start(self) -> dict[str, Any]:
        return {"done": 0, "digest": str(self.seed), "total": np.zeros(LARGEST, np.uint8)}

    async def _exchange(self, session: Session, number: int, digest: str) -> dict[str, Any]:
        """The message of each party."""
        data = _data(f"{digest} {session.me}")
        if number % BROADCAST == 0:
            messages = await session.broadcast("all", {"data": data})
        else:
            messages = await session.exchange("x", {"data": data})
        theirs = {party: message["data"] for party, message in messages.items()}
        return {session.me: data, **theirs}


def _data(key: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Bytes that the key determines, and their number too: mostly few, sometimes many."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest())
    chance = np.random.default_rng(seed)
    size = 0 if chance.random() < EMPTY else int(LARGEST ** chance.random())
    return chance.integers(0, 256, size, np.uint8)
