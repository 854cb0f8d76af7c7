"""Which peers are there, and since when the others are away; signs of life tell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from tacit.channel.connection import Carrier, Connection
from tacit.channel.conversation import Conversation
from tacit.channel.frames import Frame, Kind
from tacit.channel.link import Link
from tacit.channel.timing import Timing
from tacit.core.events import Noted, Warned

REASONS = 5  # that are told of a peer


class Presence:
    """Notices when a peer comes, goes, falls silent or stays away too long."""

    def __init__(
        self,
        links: Mapping[str, Link],
        carrier: Carrier,
        timing: Timing,
        conversation: Conversation,
    ) -> None:
        self.links = links
        self.carrier = carrier
        self.timing = timing
        self.conversation = conversation
        self.over = False  # all parties are done, so that nobody is missed
        self._away_since = dict.fromkeys(links, time.monotonic())
        self._reasons: dict[str, str] = {}  # why a peer could not be reached, the last time
        self._told: dict[str, set[str]] = {}  # all that our user has read of these

    def expect(self, peer: str) -> None:
        """The peer is to dial us."""
        self.conversation.tell(Noted(f"waiting for {peer} at {self.carrier.where(peer)}"))

    def miss(self, peer: str, reason: str) -> None:
        """The peer could not be reached; told once for each reason."""
        self._reasons[peer] = reason
        told = self._told.setdefault(peer, set())
        if reason in told or len(told) >= REASONS:
            return
        told.add(reason)
        where = self.carrier.where(peer)
        self.conversation.tell(Noted(f"waiting for {peer} to answer at {where} ({reason})"))

    def arrive(self, link: Link, connection: Connection) -> None:
        """The peer has a connection, its first or another one."""
        was_away = self._away_since.pop(link.peer, None) is not None
        if was_away and link.reason:
            text = f"{link.peer} is back"
        else:
            text = f"connected to {link.peer} at {connection.where}"
        self.conversation.tell(Noted(text))

    def lose(self, link: Link, connection: Connection, reason: str) -> None:
        """The connection is lost, unless the link has another one by now."""
        if link.connection is not connection:
            return
        link.detach(reason)
        self._away_since[link.peer] = time.monotonic()
        if link.closing:
            return
        hope = f"waiting up to {self.timing.away:g} s for it to come back"
        if self.over:
            hope = self._staying(link.peer)
        self.conversation.tell(Warned(f"lost the connection to {link.peer} ({reason}); {hope}"))

    def stay(self) -> None:
        """Says which peers are away and do not know yet that all are done."""
        for link in self.links.values():
            if link.connection is None and not link.closing:
                self.conversation.tell(Noted(self._staying(link.peer)))

    def _staying(self, peer: str) -> str:
        return (
            f"all is done; staying up to {self.timing.away:g} s until {peer} knows it, "
            "and an interrupt loses nothing"
        )

    async def watch(self) -> None:
        """Sends signs of life, and acts where those of a peer are absent."""
        now = time.monotonic()
        while True:
            await asyncio.sleep(self.timing.beat)
            before = now
            now = time.monotonic()
            if now - before > self.timing.silence:
                continue  # we were asleep, not they
            for link in self.links.values():
                if link.connection is not None:
                    self._check_silence(link, link.connection, now)
                elif not link.closing and not self.over:
                    self._check_absence(link, now)

    def _check_silence(self, link: Link, connection: Connection, now: float) -> None:
        if now - connection.heard > self.timing.silence:
            self.lose(link, connection, f"it has been silent for {self.timing.silence:g} s")
        else:
            connection.put(Frame(Kind.BEAT))

    def _check_absence(self, link: Link, now: float) -> None:
        peer = link.peer
        if now - self._away_since.setdefault(peer, now) <= self.timing.away:
            return
        event = "could not be reached at" if self.carrier.dials(peer) else "has not connected to"
        if link.reason:
            event = "did not come back to"
        reason = f" ({self._reasons[peer]})" if peer in self._reasons else ""
        where = self.carrier.where(peer)
        self.conversation.fail(
            f"{peer} {event} {where} within {self.timing.away:g} s{reason}; start all sides again"
        )
