"""How long parties wait for each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """How long to wait for what, in seconds."""

    beat: float = 2.0  # between two signs of life
    silence: float = 10.0  # without a sign of life until a connection counts as lost
    away: float = 600.0  # without a connection until a peer is given up
    answer: float = 3600.0  # without the awaited message from a peer that is there
    greeting: float = 10.0  # for a new connection to say who it is
