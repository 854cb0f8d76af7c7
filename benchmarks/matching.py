"""PFNM by the width of the networks and the number of clients: where its time goes, and against a plain version.

Networks are trained on digits (or mnist, from TACIT_DATA), each alone. "strangers" are random ones that have next to
nothing in common, so that most neurons become new ones. "solver" is the share inside SciPy's assignment solver. The
plain version computes gains vector by vector and gives every new neuron a column of its own, as public implementations
do; it finds the same places. Medians over turns. Usage: python benchmarks/matching.py [repeats] [digits|mnist]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from scipy.optimize import linear_sum_assignment

from tacit.core.seeds import numpy_generator
from tacit.data.datasets import data_folder
from tacit.federated.fusion import matching
from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.fusion import Fused
from tacit.federated.fusion.matching import Atoms, Bag, Floats, Places, Prior, Rules
from tacit.federated.fusion.pfnm import Pfnm
from tacit.simulation.kinds.fusion import FusionSimulation
from tacit.study.study import Study

WIDTHS, CLIENTS = (50, 100, 200, 400, 800), (2, 10, 50)
EPOCHS = {"digits": 20, "mnist": 2}
PLAIN = 4000  # local neurons, beyond which nobody waits for the plain version


def trained(dataset: str, width: int, clients: int) -> list[Dense]:
    """Networks that clients trained alone, from weights of their own."""
    (run,) = Study(
        dataset=dataset,
        model={"name": "mlp", "hidden": [width]},
        split={"name": "label_dirichlet", "beta": 0.5},
        clients=clients,
        fusion="average",
        initial="different",
        rounds=1,
        local_epochs=EPOCHS[dataset],
        optimiser={"name": "adam", "lr": 0.001},
    ).runs()
    simulation = FusionSimulation([("run", run)], run.dataset.load(data_folder()))
    list(simulation.play_round())
    return simulation.states[0].networks


def strangers(width: int, clients: int) -> list[Dense]:
    """Random networks with weights so large that no two neurons look alike."""
    draw = numpy_generator(0, "strangers")
    shapes = [((width, 64), (10, width)), ((width,), (10,))]
    return [
        Dense(*(tuple(draw.normal(size=shape) for shape in side) for side in shapes))
        for _ in range(clients)
    ]


def plain_costs(
    bag: Bag, atoms: Atoms, prior: Prior, clients: int, rules: Rules
) -> tuple[Floats, Floats]:
    """The formula, vector by vector."""

    def gains(vector: Floats, natural: Floats, precision: Floats) -> Floats:
        after = np.square(natural + bag.precision * vector) / (precision + bag.precision)
        return np.asarray((after - np.square(natural) / precision).sum(-1))

    shared = 2 * np.log(atoms.counts / (clients - atoms.counts))
    known = [gains(vector, atoms.natural, atoms.precision) + shared for vector in bag.vectors]
    alone = [gains(vector, prior.mean * prior.precision, prior.precision) for vector in bag.vectors]
    return -np.array(known), -np.array(alone) - 2 * np.log(rules.gamma / clients)


def plain_assign(known: Floats, alone: Floats, *_: int | None) -> Places:
    """One problem, in which every new atom has a column of its own."""
    new = alone[:, None] + 2 * np.log(np.arange(1, len(alone) + 1))
    return np.asarray(linear_sum_assignment(np.hstack([known, new]))[1])


@contextmanager
def plainly() -> Iterator[None]:
    """Within it, places are found by the plain version."""
    ours = matching.costs, matching.assign
    matching.costs, matching.assign = plain_costs, plain_assign
    try:
        yield
    finally:
        matching.costs, matching.assign = ours


def measure(networks: Sequence[Dense], repeats: int) -> tuple[float, float, Fused]:
    """Seconds, the solver's share of them, and what came of it."""
    turns = []
    for _ in range(repeats):
        begin = time.perf_counter()
        fused = Pfnm().fuse(networks, numpy_generator(0, "benchmark"))
        seconds = time.perf_counter() - begin
        turns.append((seconds, fused.solving / seconds))
    return (
        statistics.median(turn[0] for turn in turns),
        statistics.median(turn[1] for turn in turns),
        fused,
    )


def compare(kind: str, networks: Sequence[Dense], repeats: int) -> None:
    seconds, share, fused = measure(networks, repeats)
    local = sum(network.widths[0] for network in networks)
    text = ""
    if local <= PLAIN:
        with plainly():
            slow, _, same = measure(networks, 1)
        pairs = zip(fused.assignment[0], same.assignment[0], strict=True)
        assert all(np.array_equal(*pair) for pair in pairs), "the plain version finds other places"
        text = f"{slow / seconds:9.1f} x"
    sizes = f"{networks[0].widths[0]:6} {len(networks):8} {fused.network.widths[0]:6} of {local:5}"
    print(f"{kind:>10} {sizes} {seconds:9.3f} {share:8.0%} {text}", flush=True)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    dataset = sys.argv[2] if len(sys.argv) > 2 else "digits"
    print(
        f"{'networks':>10} {'width':>6} {'clients':>8} {'neurons':>15} {'seconds':>9} {'solver':>8} {'plain':>11}"
    )
    for clients in CLIENTS:
        for width in WIDTHS:
            compare(dataset, trained(dataset, width, clients), repeats)
    for width in WIDTHS:
        compare("strangers", strangers(width, 10), repeats)


if __name__ == "__main__":
    main()
