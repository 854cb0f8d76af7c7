"""Horizontal runs: clients have the same columns about different people, and train one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from tacit.core.errors import StudyError
from tacit.core.machine import machine_memory
from tacit.core.rows import Rows
from tacit.core.seeds import numpy_generator
from tacit.core.vectors import Layout
from tacit.data.dataset import Dataset
from tacit.federated.algorithm import Algorithm
from tacit.federated.behaviour import Behaviour
from tacit.federated.client_side import client_class
from tacit.federated.combine.combiner import Combiner
from tacit.federated.selection import Selection
from tacit.federated.wire.attackers import Attackers
from tacit.federated.wire.stage import Stage
from tacit.study.run import (
    Run,
    check_floor,
    check_share,
    leaves_one_over,
    normalises_by_batch,
    setting,
)
from tacit.study.values import defaults_of


@dataclass(frozen=True)
class HorizontalRun(Run, kind="horizontal"):
    """Rounds of local training and aggregation."""

    algorithm: Algorithm = setting(
        "fedavg",
        "the method, such as {name: fedprox, mu: 0.1}; see tacit list algorithms",
        after="clients",
    )
    combiner: Combiner = setting(
        "mean", "how the server makes one update out of many; see tacit list combiners"
    )
    selection: Selection = setting("all", "who takes part in a round; see tacit list selections")
    behaviour: Behaviour = setting(
        "steady", "how much of its work a client does; see tacit list behaviours"
    )
    dropout: float = setting(0.0, "the probability that a client's reply is lost, in each round")
    missing: Literal["left_out", "zero"] = setting(
        "left_out", "a lost reply: left_out, or zero to count it as one that changes nothing"
    )
    attackers: Attackers = setting(
        "none", "clients that lie, such as {count: 2, kind: sign_flip}; see tacit list attackers"
    )
    wire: tuple[Stage, ...] = setting(
        (), "stages that messages go through, such as [top_k, quantise]; see tacit list stages"
    )
    radius: float | None = setting(
        None, "keep the global parameters in a ball of this radius around zero", after="batch_size"
    )
    fine_tuning: int = setting(
        0, "passes over its own data that adapt a client's model before each local test"
    )
    pretraining: int = setting(
        0, "passes over the public data before the first round", after="public"
    )
    distillation: int = setting(
        0, "passes over the public data each round, towards the clients' mean prediction"
    )

    def check(self) -> None:
        Run.check(self)
        self._check_numbers()
        self.algorithm.check(self.optimiser)
        self.selection.check(self.clients)
        self.attackers.check(self.clients)
        self.combiner.check(self.selection.count(self.clients))
        self.algorithm.check_clients(self.clients)
        self._check_wire()
        self._check_sum()
        self._check_sampling()
        self._check_server_data()
        self._check_distillation()
        self._check_single_messages()
        self._check_start()

    def check_data(self, module: nn.Module, dataset: Dataset, sizes: Sequence[int]) -> None:
        self.attackers.check(self.clients, dataset.classes)
        layout = Layout.of(module)
        self._check_server_memory(layout.size * dataset.x.element_size())
        if layout.buffers:
            self._check_buffers(layout.copy_buffers(module))
        if normalises_by_batch(module) and self.uses_public and self.public is None:
            self._check_server_batches()
        Run.check_data(self, module, dataset, sizes)

    def cautions(self) -> list[str]:
        replies = self.selection.count(self.clients)
        texts = [
            self.algorithm.caution(self.split),
            self._attack_caution(replies),
            self.combiner.caution(replies),
            self._quorum_caution(replies),
        ]
        if not self.algorithm.sends_updates and (self.wire or self.attackers.count):
            texts.append(
                f"{self.algorithm.name} sends nothing, so neither the wire nor what attackers send"
                " can change it"
            )
        return [text for text in texts if text] + Run.cautions(self)

    @classmethod
    def study_cautions(cls, runs: Sequence[Run]) -> list[str]:
        """Names algorithms that weight clients differently, on data where that matters."""
        names: dict[str, list[str]] = {"samples": [], "uniform": []}
        for run in runs:
            if run.averages and not run.split.alike:
                names[run.client_algorithm.weights].append(run.client_algorithm.name)
        if not all(names.values()):
            return []
        by_samples = ", ".join(dict.fromkeys(names["samples"]))
        uniform = ", ".join(dict.fromkeys(names["uniform"]))
        return [
            f"{by_samples} weights clients by their samples, and {uniform} weights all the same, as"
            " in their papers; set weights for a fair comparison"
        ]

    @property
    def client_algorithm(self) -> Algorithm:
        return self.algorithm

    @property
    def averages(self) -> bool:
        return self.algorithm.combines

    @property
    def uses_public(self) -> bool:
        return bool(self.pretraining or self.distillation)

    @property
    def is_personal(self) -> bool:
        method = type(self.algorithm)
        has_personal_models = client_class(method).personal is not Algorithm.personal
        sends_personal_models = method.send is not Algorithm.send
        return has_personal_models or sends_personal_models or self.fine_tuning > 0

    @property
    def sums(self) -> bool:
        """Whether the server sees sums of messages, and no single one."""
        return bool(self.wire) and self.wire[-1].summed

    def participants(self, round: int) -> list[int]:
        rng = numpy_generator(self.seed, "selection", round)
        return self.selection.choose(round, self.clients, rng)

    def _attack_caution(self, replies: int) -> str | None:
        withstood = self.combiner.tolerates(replies)
        liars = self.attackers.count
        if liars <= withstood or self.combiner.linear:
            return None
        attackers = "attackers" if liars > 1 else "attacker"
        return (
            f"{self.combiner.name} with these settings withstands {withstood} of {replies} replies"
            f" from attackers, and the study has {liars} {attackers}"
        )

    def _quorum_caution(self, replies: int) -> str | None:
        quorum = self.combiner.quorum
        expected = replies * (1 - self.dropout)
        if self.missing != "left_out" or expected >= quorum:
            return None
        return (
            f"{self.combiner.name} needs {quorum} replies, and with dropout {self.dropout:g} a"
            f" round has {expected:.1f}; rounds with fewer change nothing"
        )

    def _check_numbers(self) -> None:
        for name in ("fine_tuning", "pretraining", "distillation"):
            check_floor(name, getattr(self, name), 0)
        check_share("dropout", self.dropout)
        if self.radius is not None and not self.radius > 0:
            raise StudyError(f"radius: expected a number above 0, got {self.radius}")

    def _check_wire(self) -> None:
        names = [stage.name for stage in self.wire]
        for name in names:
            if names.count(name) > 1:
                raise StudyError(
                    f"wire: {name} is there twice, and a message goes through all stages of the"
                    f" list; leave one out, or compare the two with {{grid: [[{name}], ...]}}"
                )
        for stage in self.wire[:-1]:
            if stage.summed:
                raise StudyError(
                    f"wire: {stage.name} adds messages up, so nothing can come after it; put it"
                    " last"
                )

    def _check_sum(self) -> None:
        """Refuses, by name, what needs single messages where the server sees their sum only."""
        if not self.sums:
            return
        name = self.wire[-1].name
        reason = f"and with {name} the server sees only their sum"
        for stage in self.wire[:-1]:
            if not stage.reads_sums:
                raise StudyError(
                    f"wire: {stage.name} reads messages one by one, {reason}; leave out"
                    f" {stage.name}, or declare reads_sums if it can also read a sum"
                )
        if self.algorithm.needs_rows:
            raise StudyError(
                f"{self.algorithm.name} looks at each client's message, {reason}; use another"
                " algorithm, such as fedavg"
            )
        if not self.combiner.is_mean:
            raise StudyError(
                f"{self.combiner.name} works on each client's message, {reason}; use combiner: mean"
            )
        if self.distillation:
            raise StudyError(f"distillation needs each client's model, {reason}; leave it out")
        if self.attackers.sees_others:
            raise StudyError(
                f"{self.attackers.name} needs the messages of honest clients, which nobody sees"
                f" with {name}; use another attack"
            )
        if self.missing == "zero":
            raise StudyError(
                "missing: zero needs the number of samples of a client that did not reply, which"
                f" the server does not know with {name}; use missing: left_out"
            )

    def _check_sampling(self) -> None:
        if self.algorithm.local_work and self.sampling.free:
            raise StudyError(
                f"{self.algorithm.name} prescribes the local work, and so does sampling:"
                f" {self.sampling.name}; use sampling: epochs, or another algorithm"
            )

    def _check_server_data(self) -> None:
        if self.combiner.needs_server_data and not self.server_samples:
            raise StudyError(
                f"{self.combiner.name} judges updates on the server's own data;"
                " set server_samples, such as server_samples: 100"
            )
        if self.combiner.needs_server_data and not self.algorithm.whole_updates:
            raise StudyError(
                f"{self.combiner.name} tries every update on the server's data, but"
                f" {self.algorithm.name} sends an update divided by its steps;"
                " use another combiner or algorithm"
            )
        for name in ("pretraining", "distillation"):
            if getattr(self, name) and self.public is None and not self.server_samples:
                raise StudyError(
                    f"{name} needs data to learn from: name a public table, or set"
                    " server_samples, such as server_samples: 100"
                )

    def _check_distillation(self) -> None:
        if not self.distillation:
            return
        name = self.algorithm.name
        if not self.algorithm.combines:
            raise StudyError(
                f"distillation needs one global model, which {name} does not have;"
                " use another algorithm, such as fedavg"
            )
        if not self.algorithm.whole_updates:
            raise StudyError(
                f"distillation needs the clients' models, and what {name} sends is not a model;"
                " use another algorithm, such as fedavg"
            )
        if not self.combiner.linear:
            raise StudyError(
                f"distillation uses all clients' models, without {self.combiner.name}, so attackers"
                " would still have influence; use combiner: mean, or no distillation"
            )

    def _check_single_messages(self) -> None:
        """A method that treats each client's message by itself leaves a combiner nothing to do."""
        if self.algorithm.combines:
            return
        name = self.algorithm.name
        if self.combiner != defaults_of(HorizontalRun)["combiner"]:
            raise StudyError(
                f"{name} does not leave the averaging to a combiner;"
                f" leave out combiner: {self.combiner.name}"
            )
        if self.missing == "zero":
            raise StudyError(f"{name} keeps a missing client's last model; leave out missing: zero")
        if self.radius is not None:
            raise StudyError(f"{name} has other models beside the global one; leave out radius")

    def _check_start(self) -> None:
        if self.initial == "same":
            return
        if self.algorithm.starts_at_x:
            raise StudyError(
                f"{self.algorithm.name} computes gradients from w - x, so clients must start at x;"
                " leave out initial: different"
            )
        if self.pretraining:
            raise StudyError(
                "pretraining has no effect if clients start from different weights;"
                " use initial: same"
            )

    def _check_server_memory(self, row_bytes: int) -> None:
        """Refuses a server that would keep more than this machine can hold."""
        if not self.algorithm.keeps_all_models:
            return
        available = machine_memory()
        needed = 2 * self.clients * row_bytes  # the models of this round and of the next
        if available is not None and needed > available:
            raise StudyError(
                f"{self.algorithm.name} keeps every client's model on the server:"
                f" {self.clients:,} of them take {needed / 1e9:,.0f} GB, and this machine has"
                f" {available / 1e9:,.0f} GB; use fewer clients, a smaller model or another"
                " algorithm"
            )

    def _check_buffers(self, buffers: Rows) -> None:
        """Refuses what cannot be done with a model that has buffers (BatchNorm's statistics)."""
        if not self.combiner.linear:
            raise StudyError(
                f"{self.combiner.name} protects the parameters, and this model also has buffers"
                " (BatchNorm's statistics), which could only be averaged; use GroupNorm or another"
                " model"
            )
        if not self.algorithm.combines:
            raise StudyError(
                f"{self.algorithm.name} gives each client its own model, but this model's buffers"
                " (BatchNorm's statistics) are shared by all; use GroupNorm or another model"
            )
        for name, value in buffers.items():
            if self.sums and not value.is_floating_point():
                raise StudyError(
                    f"{self.wire[-1].name} adds numbers up, and the model's buffer {name} is a"
                    " counter, whose sum means nothing; use GroupNorm or another model"
                )

    def _check_server_batches(self) -> None:
        size = self.batch_size_of(0) or self.server_samples
        used = self.sampling.plain_passes.used(self.server_samples, size)
        if leaves_one_over(used, size):
            raise StudyError(
                f"BatchNorm needs two samples in a batch; {self.server_samples} server_samples"
                " leave one for the last batch"
            )
