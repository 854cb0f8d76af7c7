"""A deployed study equals a simulated one, to the bit, however the messages travel."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from playground import tiny_dataset
from rehearsal import Coordinator, Site, read_reply, remote_sites

from tacit.data.dataset import Dataset
from tacit.simulation.kinds.horizontal import Simulation
from tacit.study.study import Study

SGD = {"name": "sgd", "lr": 0.1}
TOP_K = {"name": "top_k", "share": 0.2}
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "scaffold": {"algorithm": "scaffold"},
    "fednag": {"algorithm": "fednag", "optimiser": {"name": "nesterov", "lr": 0.05}},
    "fedplus": {"algorithm": "fedplus"},
    "top_k": {"wire": [TOP_K]},
    "scaffold and top_k": {"algorithm": "scaffold", "wire": [TOP_K, "quantise"]},
    "sums": {"algorithm": "scaffold", "wire": [TOP_K, "sum"]},
}
SMALL = {
    "dataset": "iris",
    "model": "linear",
    "clients": 3,
    "optimiser": SGD,
    "rounds": 3,
    "batch_size": 16,
}
NET = {
    "dataset": {"name": "function", "path": "own_code:make_data"},
    "model": {"name": "module", "path": "own_code:Net"},  # BatchNorm and dropout
    "batch_size": 10,
}
SCHEDULES = int(os.environ.get("TACIT_SCHEDULES", "150"))


def simulated(settings: dict[str, Any], data: Dataset | None = None) -> Simulation:
    run = Study(**settings).runs()[0]
    simulation = Simulation([("run", run)], data or run.dataset.load())
    while simulation.going:
        list(simulation.play_round())
    return simulation


def shards_of(simulation: Simulation) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each client's own samples, and nothing else."""
    samples = simulation.samples
    return [(samples.x[shard], samples.y[shard]) for shard in simulation.states[0].train]


def assert_same_state(coordinator: Coordinator, simulation: Simulation) -> None:
    state = simulation.states[0]
    for name, value in state.server.items():
        deployed = torch.as_tensor(coordinator.state.server[name])
        assert torch.equal(deployed, torch.as_tensor(value)), name
    for name, value in state.buffers.items():
        assert torch.equal(coordinator.state.buffers[name], value), name


def test_clients_in_processes_of_their_own_end_where_the_simulation_ends() -> None:
    cases = [{**SMALL, **settings} for settings in METHODS.values()]
    cases += [{**SMALL, **NET}, {**SMALL, **NET, "algorithm": {"name": "scaffold", "option": "I"}}]
    with remote_sites(3) as sites:
        for settings in cases:
            simulation = simulated(settings)
            shards = shards_of(simulation)
            outputs = simulation.dataset.outputs
            everyone = sum(len(y) for _, y in shards)
            for client, site in enumerate(sites):
                site.take_over(settings, client, *shards[client], outputs)
            coordinator = Coordinator(settings, simulation.dataset.x.shape[1:], outputs, everyone)
            for _ in range(coordinator.run.rounds):
                replies = []
                for client in coordinator.chosen:
                    reply = sites[client].ask(coordinator.call(client))
                    if reply:
                        replies.append(reply)
                coordinator.close(replies)
            assert_same_state(coordinator, simulation)


class Line:
    """A line to three sites that loses, repeats, delays and reorders messages.

    The sites may be killed at any moment.
    """

    def __init__(self, sites: list[Site], draw: np.random.Generator) -> None:
        self.sites = sites
        self.draw = draw
        self.late: list[bytes] = []
        self.disks = [site.disk() for site in sites]

    def chance(self, p: float) -> bool:
        return bool(self.draw.random() < p)

    def deliver(self, client: int, data: bytes) -> bytes | None:
        """One call and its answer, through a process that may die before or after it."""
        site = self.sites[client]
        if self.chance(0.1):
            site.restart(self.disks[client])
        answer = site.hear(data)
        if self.chance(0.1):  # killed before anything was written down, so that nobody hears of it
            site.restart(self.disks[client])
            return None
        self.disks[client] = site.disk()
        if self.chance(0.1):
            site.restart(self.disks[client])
        return answer

    def gather(self, coordinator: Coordinator) -> list[bytes]:
        """What reaches the server in this round, in some order."""
        arrived = self.late
        self.late = []
        for client in self.draw.permutation(coordinator.chosen).tolist():
            calls = 2 if self.chance(0.15) else 1
            for _ in range(calls):
                answer = self.deliver(client, coordinator.call(client))
                if answer is None or self.chance(0.2):  # lost on one of the two ways
                    continue
                is_late = self.chance(0.1)
                (self.late if is_late else arrived).append(answer)
                if self.chance(0.15):  # the answer comes twice
                    arrived.append(answer)
        order = self.draw.permutation(len(arrived))
        return [arrived[position] for position in order]


@cache
def reference(method: str, counted: tuple[tuple[int, ...], ...]) -> Simulation:
    """The undisturbed run in which just these replies count."""
    selection = {"name": "listed", "lists": [list(clients) for clients in counted]}
    settings = {**SMALL, **METHODS[method], "rounds": len(counted), "selection": selection}
    return simulated(settings, tiny_dataset())


@pytest.mark.parametrize("method", METHODS)
def test_whatever_the_line_does_the_replies_that_count_decide_every_bit(method: str) -> None:
    settings = {**SMALL, **METHODS[method]}
    simulation = simulated(settings, tiny_dataset())
    shards = shards_of(simulation)
    outputs = simulation.dataset.outputs
    everyone = sum(len(y) for _, y in shards)
    sites = [Site(settings, client, *shards[client], outputs) for client in range(3)]
    empty = [site.disk() for site in sites]
    patterns = set()
    for schedule in range(max(1, SCHEDULES // len(METHODS))):
        for site, disk in zip(sites, empty, strict=True):
            site.restart(disk)
        line = Line(sites, np.random.default_rng(schedule))
        coordinator = Coordinator(settings, simulation.dataset.x.shape[1:], outputs, everyone)
        coordinator.state = first_state(coordinator, simulation)
        counted: list[tuple[int, ...]] = []
        while len(counted) < 3:
            replies = line.gather(coordinator)
            if not any_of_this_round(coordinator, replies):
                continue  # the server waits on
            counted.append(coordinator.close(replies))
        for client, site in enumerate(sites):
            site.hear(coordinator.dismiss(client))
        undisturbed = reference(method, tuple(counted))
        assert_same_state(coordinator, undisturbed)
        assert_same_memories(sites, undisturbed)
        patterns.add(tuple(counted))
    assert len(patterns) > 1 or len(METHODS) * 2 > SCHEDULES


def first_state(coordinator: Coordinator, simulation: Simulation) -> Any:
    """In the data's own precision, as the simulation has it."""
    server = dict(coordinator.state.server)
    for name, value in server.items():
        if isinstance(value, torch.Tensor):
            server[name] = value.to(simulation.samples.x.dtype)
    return replace(coordinator.state, server=server, round=0)


def any_of_this_round(coordinator: Coordinator, replies: list[bytes]) -> bool:
    return any(read_reply(data).round == coordinator.state.round for data in replies)


def assert_same_memories(sites: list[Site], simulation: Simulation) -> None:
    state = simulation.states[0]
    for client, site in enumerate(sites):
        for name, rows in state.method_memory.get(client, {}).items():
            assert torch.equal(site.memory.method[name], rows), (client, name)
        for name, rows in state.wire_memory.get(client, {}).items():
            assert torch.equal(site.memory.wire[name], rows), (client, name)
