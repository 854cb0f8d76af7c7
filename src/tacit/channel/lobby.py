"""Connections that came in and are not admitted yet: few at a time, so that nobody is kept out.

Anybody can connect and say nothing. When all places are taken the oldest connection loses its own,
first that of an address with many. So whoever says at once who it is gets through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

PLACES = 64
PLACES_OF_AN_ADDRESS = 16


@dataclass(eq=False)
class Guest:
    """A connection in the lobby; `leave` ends it."""

    address: str
    leave: Callable[[], object]


@dataclass
class Lobby:
    """Guests in the order in which they came."""

    guests: list[Guest] = field(default_factory=list)

    def enter(self, address: str, leave: Callable[[], object]) -> Guest:
        """A place for a connection from this address."""
        neighbours = [guest for guest in self.guests if guest.address == address]
        if len(neighbours) >= PLACES_OF_AN_ADDRESS:
            self._drop(neighbours[0])
        elif len(self.guests) >= PLACES:
            self._drop(self._oldest_of_the_largest_group())
        guest = Guest(address, leave)
        self.guests.append(guest)
        return guest

    def free(self, guest: Guest) -> None:
        """The place is no longer needed: the connection is admitted, or over."""
        if guest in self.guests:
            self.guests.remove(guest)

    def _oldest_of_the_largest_group(self) -> Guest:
        counts: dict[str, int] = {}
        for guest in self.guests:
            counts[guest.address] = counts.get(guest.address, 0) + 1
        return max(self.guests, key=lambda guest: counts[guest.address])  # the first of equals

    def _drop(self, guest: Guest) -> None:
        self.guests.remove(guest)
        guest.leave()
