"""Connections that came in and are not admitted yet: few at a time, so that nobody is kept out.

Anybody can connect and say nothing. When all places are taken, one of those that have said nothing
loses its own; where all have said something, one of all. It is drawn by lot: were it the oldest, a
steady stream would keep out whoever has a longer line. Whoever has lost its place tries again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

PLACES = 64
PLACES_OF_AN_ADDRESS = 16


@dataclass(eq=False)
class Guest:
    """A connection in the lobby; `leave` ends it."""

    address: str
    leave: Callable[[], object]
    has_spoken: bool = False

    def note_speech(self) -> None:
        self.has_spoken = True


@dataclass
class Lobby:
    """Guests in the order in which they came."""

    guests: list[Guest] = field(default_factory=list)

    def enter(self, address: str, leave: Callable[[], object]) -> Guest:
        """A place for a connection from this address."""
        neighbours = [guest for guest in self.guests if guest.address == address]
        if len(neighbours) >= PLACES_OF_AN_ADDRESS:
            self._drop_one_of(neighbours)
        elif len(self.guests) >= PLACES:
            self._drop_one_of(self.guests)
        guest = Guest(address, leave)
        self.guests.append(guest)
        return guest

    def free(self, guest: Guest) -> None:
        """The place is no longer needed: the connection is admitted, or over."""
        if guest in self.guests:
            self.guests.remove(guest)

    def _drop_one_of(self, guests: Sequence[Guest]) -> None:
        silent = [guest for guest in guests if not guest.has_spoken]
        guest = secrets.choice(silent or guests)
        self.guests.remove(guest)
        guest.leave()
