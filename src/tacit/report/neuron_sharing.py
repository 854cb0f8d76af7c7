"""How the clients' neurons of a layer became those of one network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MOST_NEURONS = 300  # local ones of a layer whose matching can be drawn


@dataclass(frozen=True)
class Sharing:
    """Which global neuron each local one became, and which clients share a global one."""

    places: list[list[int]]  # for each client, the global neuron of each of its own
    order: list[int]  # the global neurons, the most shared first
    owners: list[list[int]]  # for each global neuron, its clients

    @classmethod
    def of(cls, places: Sequence[Sequence[int]], width: int) -> Sharing:
        neurons = [[int(neuron) for neuron in layer] for layer in places]
        owners: list[list[int]] = [[] for _ in range(width)]
        for client, layer in enumerate(neurons):
            for neuron in layer:
                owners[neuron].append(client)
        most_shared_first = sorted(range(width), key=lambda k: (-len(owners[k]), owners[k]))
        return cls(neurons, most_shared_first, owners)

    @property
    def local(self) -> int:
        """The neurons of all clients together."""
        return sum(map(len, self.places))

    @property
    def is_small(self) -> bool:
        """Whether a line for each local neuron can be drawn."""
        return self.local <= MOST_NEURONS

    @property
    def shares(self) -> list[int]:
        """How many global neurons one client has alone, two share, and so on."""
        counts = Counter(map(len, self.owners))
        return [counts[clients] for clients in range(1, max(counts) + 1)]
