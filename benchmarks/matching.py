"""PFNM by the width of the networks and the number of clients, and against a plain version.

Networks are trained on digits (or mnist, from TACIT_DATA), each alone. "strangers" are random
networks that have next to nothing in common, so that most neurons become new ones. "solver" is the
share of the time inside SciPy's assignment solver. The plain version computes gains vector by
vector and gives every new neuron a column of its own, as public implementations do; it must find
the same matching. "plain" says how many times as long it takes. Times are medians.
Usage: python benchmarks/matching.py [repeats] [digits|mnist]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import numpy as np
from scipy.optimize import linear_sum_assignment

from tacit.core.arrays import Floats
from tacit.core.seeds import numpy_generator
from tacit.data.datasets import data_folder
from tacit.federated.fusion import matching
from tacit.federated.fusion.dense import Dense
from tacit.federated.fusion.fusion import Fused
from tacit.federated.fusion.matching import Atoms, Bag, Places, Prior, Rules
from tacit.federated.fusion.pfnm import Pfnm
from tacit.simulation.kinds.fusion import FusionSimulation
from tacit.study.study import Study

WIDTHS = (50, 100, 200, 400, 800)
CLIENTS = (2, 10, 50)
EPOCHS = {"digits": 20, "mnist": 2}
MOST_PLAIN = 4000  # local neurons; for more of them the plain version takes too long


def trained(dataset: str, width: int, clients: int) -> list[Dense]:
    """Networks that clients trained alone, each from its own first weights."""
    study = Study(
        dataset=dataset,
        model={"name": "mlp", "hidden": [width]},
        split={"name": "label_dirichlet", "beta": 0.5},
        clients=clients,
        fusion="average",
        initial="different",
        rounds=1,
        local_epochs=EPOCHS[dataset],
        optimiser={"name": "adam", "lr": 0.001},
    )
    (run,) = study.runs()
    data = run.dataset.load(data_folder())
    simulation = FusionSimulation([("run", run)], data)
    list(simulation.play_round())
    return simulation.states[0].networks


def strangers(width: int, clients: int) -> list[Dense]:
    """Random networks with weights so large that no two neurons look alike."""
    draw = numpy_generator(0, "strangers")
    networks = []
    for _ in range(clients):
        weights = draw.normal(size=(width, 64)), draw.normal(size=(10, width))
        biases = draw.normal(size=width), draw.normal(size=10)
        networks.append(Dense(weights, biases))
    return networks


def plain_costs(
    bag: Bag, atoms: Atoms, prior: Prior, clients: int, rules: Rules
) -> tuple[Floats, Floats]:
    """The formula of the costs, vector by vector."""

    def gains(vector: Floats, natural: Floats, precision: Floats) -> Floats:
        after = np.square(natural + bag.precision * vector) / (precision + bag.precision)
        return np.asarray((after - np.square(natural) / precision).sum(-1))

    popularity = 2 * np.log(atoms.counts / (clients - atoms.counts))
    natural_prior = prior.mean * prior.precision
    at_atoms = []
    at_new = []
    for vector in bag.vectors:
        at_atoms.append(gains(vector, atoms.natural, atoms.precision) + popularity)
        at_new.append(gains(vector, natural_prior, prior.precision))
    return -np.array(at_atoms), -np.array(at_new) - 2 * np.log(rules.gamma / clients)


def plain_assign(at_atoms: Floats, at_new: Floats, *_: int | None) -> Places:
    """One assignment problem, in which every new atom has a column of its own."""
    new_columns = at_new[:, None] + 2 * np.log(np.arange(1, len(at_new) + 1))
    _, columns = linear_sum_assignment(np.hstack([at_atoms, new_columns]))
    return np.asarray(columns)


@contextmanager
def plain_version() -> Iterator[None]:
    """Within it, networks are matched by the plain version."""
    with (
        mock.patch.object(matching, "costs", plain_costs),
        mock.patch.object(matching, "assign", plain_assign),
    ):
        yield


def measure(networks: Sequence[Dense], repeats: int) -> tuple[float, float, Fused]:
    """Seconds, the solver's share of them, and the fused network."""
    times = []
    shares = []
    for _ in range(repeats):
        start = time.perf_counter()
        fused = Pfnm().fuse(networks, numpy_generator(0, "benchmark"))
        seconds = time.perf_counter() - start
        times.append(seconds)
        shares.append(fused.solving / seconds)
    return statistics.median(times), statistics.median(shares), fused


def compare(kind: str, networks: Sequence[Dense], repeats: int) -> None:
    """Prints a line of the table."""
    seconds, share, fused = measure(networks, repeats)
    local = sum(network.widths[0] for network in networks)
    ratio = ""
    if local <= MOST_PLAIN:
        with plain_version():
            plain_seconds, _, plain_fused = measure(networks, 1)
        check_same_matching(fused, plain_fused)
        ratio = f"{plain_seconds / seconds:9.1f} x"
    sizes = f"{networks[0].widths[0]:6} {len(networks):8} {fused.network.widths[0]:6} of {local:5}"
    print(f"{kind:>10} {sizes} {seconds:9.3f} {share:8.0%} {ratio}", flush=True)


def check_same_matching(fused: Fused, plain_fused: Fused) -> None:
    clients = zip(fused.assignment[0], plain_fused.assignment[0], strict=True)
    for atoms, plain_atoms in clients:
        assert np.array_equal(atoms, plain_atoms), "the plain version finds another matching"


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    dataset = sys.argv[2] if len(sys.argv) > 2 else "digits"
    sizes = f"{'networks':>10} {'width':>6} {'clients':>8} {'neurons':>15}"
    print(f"{sizes} {'seconds':>9} {'solver':>8} {'plain':>11}")
    for clients in CLIENTS:
        for width in WIDTHS:
            compare(dataset, trained(dataset, width, clients), repeats)
    for width in WIDTHS:
        compare("strangers", strangers(width, 10), repeats)


if __name__ == "__main__":
    main()
