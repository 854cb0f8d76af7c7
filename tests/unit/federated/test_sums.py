"""A server that sees sums only: what still works, to rounding, and what is refused, by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from playground import a_cohort, simulate, tiny_dataset
from torch import Tensor, nn

from tacit.core.errors import StudyError
from tacit.core.rows import Rows
from tacit.federated.algorithm import Algorithm, Server
from tacit.federated.algorithms.fedavg import FedAvg
from tacit.federated.cohort import TOTAL, WEIGHT, Cohort, SummedCohort, weighted
from tacit.federated.combine.combiner import Combiner
from tacit.federated.combine.mean import Mean
from tacit.federated.combine.replies import Replies
from tacit.federated.wire.attackers import Attackers
from tacit.federated.wire.stage import Stage, message_bytes
from tacit.federated.wire.sum import Sum
from tacit.federated.wire.top_k import TopK
from tacit.study.study import Study
from tacit.training.trainer import Work

NESTEROV = {"name": "nesterov", "lr": 0.05}
UNEQUAL = {"split": {"name": "quantity_skew", "beta": 2.0}, "rounds": 4}


def is_summable(algorithm: type[Algorithm]) -> bool:
    return not algorithm.needs_rows


SUMMABLE = [name for name, algorithm in Algorithm.known().items() if is_summable(algorithm)]
SINGLE = [name for name in Algorithm.known() if name not in SUMMABLE]


def optimiser_for(name: str) -> Any:
    return NESTEROV if name == "fednag" else {"name": "sgd", "lr": 0.1}


@pytest.mark.parametrize("weights", ["samples", "uniform"])
@pytest.mark.parametrize("name", SUMMABLE)
def test_a_method_ends_where_it_ends_with_single_messages(name: str, weights: str) -> None:
    settings = {
        "algorithm": {"name": name, "weights": weights},
        "optimiser": optimiser_for(name),
        **UNEQUAL,
    }
    clear = simulate(tiny_dataset(), **settings).states[0]
    summed = simulate(tiny_dataset(), wire=["sum"], **settings).states[0]
    for entry, value in clear.server.items():
        torch.testing.assert_close(summed.server[entry], value, rtol=1e-9, atol=1e-12)
    for client, memory in clear.method_memory.items():
        torch.testing.assert_close(summed.method_memory[client], memory, rtol=1e-9, atol=1e-12)


def test_the_methods_that_are_named_to_work_are_among_them() -> None:
    assert {"fedavg", "fedprox", "scaffold", "fednova", "fednag"} <= set(SUMMABLE)
    assert {"fedadagrad", "fedadam", "fedyogi"} <= set(SUMMABLE)


@pytest.mark.parametrize("selection", ["all", {"name": "fraction", "c": 0.5}])
def test_scaffold_s_c_stays_the_mean_of_the_c_k(selection: Any) -> None:
    """Of all clients: those that never replied have zero."""
    simulation = simulate(
        tiny_dataset(), algorithm="scaffold", wire=["sum"], selection=selection, clients=4, rounds=4
    )
    assert control_gap(simulation) < 1e-12


@dataclass(frozen=True)
class Counting(Stage):
    """Passes messages untouched, and counts them in its memory, which it owes nobody."""

    def init(self, message: Rows) -> Rows:
        return {name: torch.zeros_like(rows) for name, rows in message.items()}

    def client(self, message: Rows, memory: Rows, seeds: Any) -> tuple[Rows, Rows]:
        return message, {name: rows + 1 for name, rows in memory.items()}


@dataclass(frozen=True)
class Doubled(Stage):
    """Travels at twice its size, which the server halves: a stage with two sides."""

    reads_sums: ClassVar[bool] = True

    def client(self, message: Rows, memory: Rows, seeds: Any) -> tuple[Rows, Rows]:
        return {name: 2 * rows for name, rows in message.items()}, memory

    def server(self, message: Rows) -> Rows:
        return {name: rows / 2 for name, rows in message.items()}


def control_gap(simulation: Any) -> float:
    state = simulation.states[0]
    c_k = [rows["c"][0] for rows in state.method_memory.values()]
    mean = sum(c_k) / state.run.clients
    return float((state.server["c"] - mean).abs().max())


@pytest.mark.parametrize(
    "wire", [[Counting()], [Doubled()], [Counting(), Doubled()], [Doubled(), Sum()]]
)
def test_a_stage_that_changes_nothing_leaves_every_bit(wire: list[Stage]) -> None:
    """A memory is no debt: as one, it would move SCAFFOLD's c off the mean of the c_k."""
    simulation = simulate(tiny_dataset(), algorithm="scaffold", wire=wire, rounds=4)
    plain = simulate(tiny_dataset(), algorithm="scaffold", rounds=4)
    assert control_gap(simulation) < 1e-12
    tolerance = {"rtol": 1e-9, "atol": 1e-12} if wire[-1].summed else {"rtol": 0, "atol": 0}
    for entry in ("x", "c"):
        through_wire = simulation.states[0].server[entry]
        torch.testing.assert_close(through_wire, plain.states[0].server[entry], **tolerance)


@dataclass(frozen=True)
class Shifted(Stage):
    """Its server takes one off every number; of a sum of three messages, that should be three."""

    def client(self, message: Rows, memory: Rows, seeds: Any) -> tuple[Rows, Rows]:
        return {name: rows + 1 for name, rows in message.items()}, memory

    def server(self, message: Rows) -> Rows:
        return {name: rows - 1 for name, rows in message.items()}


@dataclass(frozen=True)
class Forgetful(Stage):
    """Sends nothing of what it was given."""

    def client(self, message: Rows, memory: Rows, seeds: Any) -> tuple[Rows, Rows]:
        return {}, memory


def test_a_stage_that_reads_single_messages_is_refused_before_a_sum() -> None:
    simulate(tiny_dataset(), wire=[Shifted()])
    with pytest.raises(
        StudyError,
        match="Shifted reads messages one by one, and with sum the server sees only their sum",
    ):
        Study(wire=[Shifted(), Sum()])


def test_a_combiner_of_ones_own_is_refused_behind_a_sum_even_where_it_is_linear() -> None:
    @dataclass(frozen=True)
    class Twice(Mean, name="twice"):
        is_mean: ClassVar[bool] = False

        def __call__(self, rows: Tensor, cohort: Replies) -> Tensor:
            return 2 * cohort.average(rows)

    try:
        with pytest.raises(StudyError, match="twice works on each client's message"):
            Study(combiner=Twice(), wire=["sum"])
    finally:
        Combiner.members.pop("twice", None)


def test_an_attack_that_needs_the_others_without_saying_so_is_told_what_to_declare() -> None:
    @dataclass(frozen=True)
    class Mirror(Attackers):
        def lie(self, mine: Tensor, others: Tensor, rng: Any) -> Tensor:
            return -others.mean(0).expand_as(mine)

    simulate(tiny_dataset(), attackers=Mirror())
    with pytest.raises(
        StudyError,
        match=r"Mirror gives no finite numbers if it sees no other client's message.*sees_others",
    ):
        simulate(tiny_dataset(), attackers=Mirror(), wire=["sum"])


def test_a_stage_keeps_the_names_of_entries() -> None:
    with pytest.raises(StudyError, match="the stage Forgetful leaves out 'dx'"):
        simulate(tiny_dataset(), wire=[Forgetful()])


@pytest.mark.parametrize("wire", [[], ["top_k"], ["quantise"], ["sum"]])
def test_a_model_of_one_parameter_can_have_any_wire(wire: list[str]) -> None:
    class Slope(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slope = nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            return self.slope * x[:, :3]

    simulate(tiny_dataset(), model=Slope(), algorithm="scaffold", wire=wire)


@pytest.mark.parametrize("name", [":weight", ":loss", "buffers"])
def test_a_method_s_entries_have_names_of_their_own(name: str) -> None:
    @dataclass(frozen=True)
    class Taking(FedAvg):
        def finish(self, w: Tensor, sent: Rows, mine: Rows, work: Work) -> tuple[Rows, Rows]:
            return {"dx": w - sent["x"], name: w}, mine

    with pytest.raises(StudyError, match=f"a message has no entry {name!r} of its own"):
        simulate(tiny_dataset(), algorithm=Taking(), wire=["sum"])


@pytest.mark.parametrize("wire", [["top_k"], ["top_k", "quantise"], ["top_k", "sum"]])
def test_behind_a_wire_that_owes_c_stays_the_mean_of_what_arrives_and_will(wire: list[str]) -> None:
    settings = {"algorithm": "scaffold", "rounds": 4}
    simulation = simulate(tiny_dataset(), wire=wire, **settings)
    state = simulation.states[0]
    owed = sum(rows["0 dc"][0] for rows in state.wire_memory.values()) / state.run.clients
    c_k = sum(rows["c"][0] for rows in state.method_memory.values()) / state.run.clients
    torch.testing.assert_close(state.server["c"] + owed, c_k, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"algorithm": "clustered"}, "clustered looks at each client's message"),
        ({"algorithm": "fedplus"}, "fedplus looks at each client's message"),
        ({"distillation": 1, "server_samples": 20}, "distillation needs each client's model"),
        ({"missing": "zero", "dropout": 0.2}, "needs the number of samples of a client"),
        (
            {"wire": ["sum", "quantise"]},
            "wire: sum adds messages up, so nothing can come after it; put it last",
        ),
    ],
)
def test_what_needs_single_messages_is_refused_by_name(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(StudyError, match=text):
        Study(**{"wire": ["sum"], **settings})


@pytest.mark.parametrize(
    "name", [name for name, rule in Combiner.known().items() if not rule.linear]
)
def test_every_combiner_that_compares_messages_is_refused(name: str) -> None:
    with pytest.raises(
        StudyError, match=f"{name} works on each client's message.*use combiner: mean"
    ):
        Study(wire=["sum"], combiner=name, clients=12, server_samples=20)


@pytest.mark.parametrize("name", [name for name in Attackers.known() if name != "none"])
def test_attackers_that_need_to_see_others_are_refused_and_the_rest_attack(name: str) -> None:
    settings = {"wire": ["sum"], "attackers": {"kind": name, "count": 1}}
    if Attackers.known()[name].sees_others:
        with pytest.raises(StudyError, match=f"{name} needs the messages of honest clients"):
            Study(**settings)
        return
    honest = simulate(tiny_dataset(), wire=["sum"])
    attacked = simulate(tiny_dataset(), **settings)
    assert not torch.equal(honest.states[0].server["x"], attacked.states[0].server["x"])


def test_behind_a_sum_an_attacker_sees_nobody_whatever_it_declares() -> None:
    @dataclass(frozen=True)
    class Peeking(Attackers, name="peeking"):
        """Of a user who forgot to declare that it sees others."""

        def lie(self, mine: Any, others: Any, rng: Any) -> Any:
            assert len(others) == 0, "behind a sum nobody sees the others"
            return -mine

    try:
        simulate(tiny_dataset(), wire=["sum"], attackers=Peeking())
    finally:
        Attackers.members.pop("peeking", None)


def test_float_buffers_are_averaged_behind_a_sum() -> None:
    class Norm(nn.Module):
        """Keeps a running mean, and counts nothing."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)
            self.register_buffer("mean", torch.zeros(5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.mean.lerp_(x.detach().mean(0), 0.1)
            outputs: torch.Tensor = self.layer(x - self.mean)
            return outputs

    clear = simulate(tiny_dataset(), model=Norm(), rounds=3).states[0].buffers
    summed = simulate(tiny_dataset(), model=Norm(), wire=["sum"], rounds=3).states[0].buffers
    assert summed["mean"].abs().max() > 0
    torch.testing.assert_close(summed, clear, rtol=1e-9, atol=1e-12)


def test_whole_numbers_among_buffers_are_refused() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(StudyError, match=r"the model's buffer 1\.num_batches_tracked is a counter"):
        simulate(tiny_dataset(), model=model, wire=["sum"])


@dataclass(frozen=True)
class Totalling(Algorithm):
    """x <- x + sum_k dx_k / N, from the plain sum."""

    totals: ClassVar[tuple[str, ...]] = ("dx",)

    def aggregate(self, server: Server, cohort: Cohort) -> Server:
        return {**server, "x": server["x"] + cohort.total("dx") / cohort.population}


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_a_plain_sum_that_was_announced_is_there(weights: Any) -> None:
    algorithm = Totalling(weights=weights)
    clear = simulate(tiny_dataset(), algorithm=algorithm, **UNEQUAL).states[0].server["x"]
    simulation = simulate(tiny_dataset(), algorithm=algorithm, wire=["sum"], **UNEQUAL)
    summed = simulation.states[0].server["x"]
    torch.testing.assert_close(summed, clear, rtol=1e-9, atol=1e-12)


def test_one_that_was_not_announced_is_refused() -> None:
    cohort = SummedCohort({"dx": torch.ones(1, 3), WEIGHT: torch.ones(1, 1)}, (0,), 1, 1.0)
    with pytest.raises(StudyError, match=r"declare totals = \('dx',\)"):
        cohort.total("dx")


@pytest.mark.parametrize(
    "name", ["samples", "steps", "weights", "client_losses", "messages", "rows", "choice"]
)
def test_figures_of_single_clients_are_not_there(name: str) -> None:
    cohort = SummedCohort({}, (0, 1), 2, 2.0)
    with pytest.raises(StudyError, match=f"sees only sums does not know each client's {name}"):
        getattr(cohort, name)


def test_a_reply_holds_no_figures_of_its_client() -> None:
    from tacit.rounds.transmission import transmit

    simulation = simulate(tiny_dataset(), wire=["sum"], rounds=1)
    state = simulation.states[0]
    state.round = 0
    state.status = "running"
    drafts = simulation.gather_drafts([(state, 0)])[state.id]
    (finished,) = transmit(state.run, 0, drafts, state.recall)
    reply = finished.reply
    assert (reply.samples, reply.steps, reply.loss) == (None, None, None)
    torch.testing.assert_close(reply.message["dx"], drafts[0].samples * drafts[0].message["dx"])


def test_sparse_rows_are_sent_in_full_and_counted_so() -> None:
    message = weighted({"dx": torch.ones(1, 1000)}, torch.ones(1, 1), torch.ones(1, 1))
    assert message_bytes(message, [Sum()]) == 4 * 1002
    assert message_bytes(message, [TopK(0.01), Sum()]) == 4 * 1002
    assert message_bytes(message, [TopK(0.01)]) < 100


def test_means_and_shares_of_sums_are_those_of_rows() -> None:
    draw = torch.Generator().manual_seed(0)
    message = {"dx": torch.randn(3, 5, generator=draw, dtype=torch.float64)}
    samples = [4.0, 1.0, 7.0]
    losses = torch.tensor([[0.5], [1.5], [2.0]], dtype=torch.float64)
    for weights in ("samples", "uniform"):
        algorithm = FedAvg(weights=weights)
        weight = torch.tensor(samples, dtype=torch.float64)[:, None]
        rows = a_cohort(message, samples, torch.ones_like(weight), algorithm)
        rows = replace(rows, client_losses=losses, population=6, everyone=30.0)
        if weights == "uniform":
            weight = torch.ones_like(weight)
        added = Sum().add(weighted(message, weight, losses, ("dx",)))
        sums = SummedCohort(added, (0, 1, 2), 6, 30.0, weights)
        torch.testing.assert_close(sums.mean("dx"), rows.mean("dx"))
        torch.testing.assert_close(sums.combine("dx"), rows.combine("dx"))
        torch.testing.assert_close(sums.total("dx"), rows.total("dx"))
        assert sums.share == pytest.approx(rows.share)
        assert sums.mean_loss == pytest.approx(rows.mean_loss)
        assert TOTAL + "dx" in sums.sums
