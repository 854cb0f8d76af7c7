"""A run: one point of a study's grid, with every name resolved to its object.

A kind of run is a subclass of `Run` in a file of `tacit/study/kinds/`, with its settings, checks
and names. The methods below are what the rest of tacit asks of a run; a kind overrides those that
differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from tacit.core.errors import StudyError
from tacit.core.registry import Registered
from tacit.core.torch_private import is_batch_norm
from tacit.data.dataset import Dataset
from tacit.data.datasets import Source
from tacit.data.splits.split import Split
from tacit.data.tables import Table
from tacit.federated.algorithm import Algorithm
from tacit.federated.algorithms.fedavg import FedAvg
from tacit.models.model import Model
from tacit.training.losses import Loss, check_loss
from tacit.training.metrics import METRICS
from tacit.training.optimisers import Optimiser
from tacit.training.sampling import Sampling
from tacit.training.schedules import Schedule
from tacit.training.yardstick import AUTO, check_metric

MOST_SHUFFLES = 1000


def setting(
    default: Any,
    about: str,
    *,
    after: str | None = None,
    elsewhere: str | None = None,
    asks: bool = False,
    label: str | None = None,
) -> Any:
    """A setting of a run: its default, and what it is about.

    `after` names the setting behind which it stands in a study; without it, that is the one before
    it in its class. `elsewhere` is the error's text if a run of another kind gets the setting. A
    setting that `asks` may be given to a run of any kind: it asks for further runs. `label` is what
    labels and tables call it, where one of their figures has its name.
    """
    metadata = {
        "default": default,
        "about": about,
        "after": after,
        "elsewhere": elsewhere,
        "asks": asks,
        "label": label,
    }
    return field(metadata=metadata)


@dataclass(frozen=True)
class Run:
    """The settings that every kind has.

    A kind's `engine` is the file in `tacit/simulation/kinds/` that plays it.
    """

    dataset: Source = setting(
        "digits",
        "the data; see tacit list datasets; your own: {name: table, path: my.csv, target: column}",
    )
    model: Model = setting(
        "mlp",
        "what is trained; see tacit list models; your own:"
        " {name: module, path: package.module:Class}",
    )
    split: Split = setting(
        "iid", "how the samples are divided among the clients; see tacit list splits"
    )
    clients: int = setting(4, "how many organisations take part")
    loss: Loss = setting(
        "auto",
        "what models are trained for; see tacit list losses; your own:"
        " {name: function, path: package.module:function}",
        label="objective",
    )
    optimiser: Optimiser = setting(
        "sgd", "each client's local optimiser, new in each round; see tacit list optimisers"
    )
    schedule: Schedule = setting(
        "constant", "how the learning rate changes from round to round; see tacit list schedules"
    )
    rounds: int = setting(10, "rounds of communication")
    local_epochs: int | tuple[int, ...] = setting(
        1, "a client's passes over its own data per round; [5, 1, 2] is one number per client"
    )
    batch_size: int | tuple[int, ...] | None = setting(
        32, "samples in a batch; [32, 64, 32] is one number per client; null is all samples"
    )
    sampling: Sampling = setting(
        "epochs", "how the samples of each local step are drawn; see tacit list samplings"
    )
    public: Source | None = setting(
        None, "a public or synthetic table to learn from; null: the server's samples"
    )
    initial: Literal["same", "different"] = setting(
        "same", "whether all clients start from the same weights: same or different"
    )
    local_test: float = setting(0.1, "the share of its samples that a client keeps to test on")
    server_samples: int = setting(0, "samples set aside for the server before the split")
    metric: str = setting(
        "auto",
        "what decides: tables, best rounds, patience and targets go by it; see tacit list metrics;"
        " auto: r2, or accuracy, or auc if a class is rare",
    )
    importance: int = setting(
        5,
        "how often each column of a table is shuffled at the end, to see how much it matters;"
        " 0: never",
    )
    target_accuracy: float | None = setting(
        None, "stop once the metric, on the global test set, is this good"
    )
    patience: int | None = setting(
        None, "stop after this many rounds in which the metric has not become better"
    )
    seed: int = setting(0, "all random numbers follow from it")

    kinds: ClassVar[dict[str, type[Run]]] = {}
    kind: ClassVar[str]
    engine: ClassVar[str]
    # others are compared with it, and its one client stands for no organisation
    is_reference: ClassVar[bool] = False
    method_setting: ClassVar[str] = "algorithm"  # what labels and tables call the run by
    label: ClassVar[Mapping[str, str]] = {}  # what a label says in place of these settings
    # settings of other kinds that may be given, and are ignored
    replaces: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, kind: str, engine: str | None = None) -> None:
        super().__init_subclass__()
        cls.kind = kind
        cls.engine = engine or kind
        Run.kinds[kind] = cls

    def __post_init__(self) -> None:
        self.check()

    @classmethod
    def claims(cls, settings: Mapping[str, Any]) -> bool:
        """Whether a point of the grid with these settings is a run of this kind."""
        return False

    @classmethod
    def further(cls, run: Run, settings: Mapping[str, Any]) -> list[Run]:
        """The runs of this kind that a point of the grid asks for beside its own run."""
        return []

    def refusal(self, name: str, elsewhere: str | None) -> str:
        """Why this run cannot have another kind's setting; `elsewhere` is what that kind says."""
        return elsewhere or f"{name} is not a setting of a {self.kind} run; leave it out"

    def check(self) -> None:
        """Raises StudyError, with the reason, for settings that make no sense."""
        check_floor("clients", self.clients, 1)
        check_floor("rounds", self.rounds, 1)
        check_floor("server_samples", self.server_samples, 0)
        check_floor("seed", self.seed, 0)
        check_floor("importance", self.importance, 0)
        if self.importance > MOST_SHUFFLES:
            raise StudyError(f"importance: expected {MOST_SHUFFLES} or less, got {self.importance}")
        _check_each("local_epochs", self.local_epochs, self.clients)
        _check_each("batch_size", self.batch_size, self.clients)
        check_share("local_test", self.local_test)
        check_metric(self.metric)
        if self.target_accuracy is not None:
            _check_target(self.target_accuracy, self.metric)
        if self.patience is not None and self.patience < 1:
            raise StudyError(f"patience: expected 1 or more, got {self.patience}")

    def check_data(self, module: nn.Module, dataset: Dataset, sizes: Sequence[int]) -> None:
        """Raises StudyError where the data, the model or the sample counts do not suit the run."""
        check_loss(self.loss, dataset)
        if not normalises_by_batch(module):
            return
        if not self.sampling.fixed_sizes:
            raise StudyError(
                f"BatchNorm needs two samples in a batch, and {self.sampling.name} may draw fewer;"
                " use GroupNorm or another model, or sampling: epochs"
            )
        for client, samples in enumerate(sizes):
            size = self.batch_size_of(client) or samples
            if leaves_one_over(self.sampling.used(samples, size), size):
                raise StudyError(
                    f"BatchNorm needs two samples in a batch, and client {client} has {samples} in"
                    f" batches of {size}; use another batch_size{_drop_last_remedy(samples, size)}"
                )

    def cautions(self) -> list[str]:
        """What makes sense, but may not do what its author expects."""
        texts = []
        if self.public is not None and not self.uses_public:
            texts.append(
                "public data are named, and neither pretraining nor distillation uses them"
            )
        column = self.dataset.client if isinstance(self.dataset, Table) else None
        if column and self.split.by != "owners" and not self.is_reference:
            texts.append(
                f"the column {column} says which client a row belongs to, and {self.split.name}"
                " divides the rows in another way; use split: by_client to keep them together"
            )
        return texts

    @classmethod
    def study_cautions(cls, runs: Sequence[Run]) -> list[str]:
        """The same for a study that has runs of this kind, among others."""
        return []

    @property
    def method(self) -> Registered:
        """The method that the run is called by: its algorithm, or what it has in place of one."""
        method: Registered = getattr(self, self.method_setting)
        return method

    @property
    def client_algorithm(self) -> Algorithm:
        """The algorithm whose hooks the clients follow while they train."""
        return FedAvg()

    @property
    def averages(self) -> bool:
        """Whether clients' models are averaged, or combined as the study says."""
        return False

    @property
    def uses_public(self) -> bool:
        """Whether anything is learnt from public data."""
        return False

    @property
    def is_personal(self) -> bool:
        """Whether clients are tested with personal models, and not all with the global one."""
        return False

    @property
    def keeps_client_models(self) -> bool:
        """Whether clients' models are saved: to be used, or because they were fused."""
        return self.is_personal

    def participants(self, round: int) -> list[int]:
        """The clients that take part in a round; the first round is 0."""
        return list(range(self.clients))

    def epochs_of(self, client: int) -> int:
        """This client's passes over its data per round."""
        fixed = self.client_algorithm.local_work
        return fixed.epochs if fixed else self._client_value("local_epochs", client)

    def batch_size_of(self, client: int) -> int | None:
        """This client's batch size; None is the full batch."""
        fixed = self.client_algorithm.local_work
        return fixed.batch_size if fixed else self._client_value("batch_size", client)

    def model_of(self, client: int) -> Model:
        """This client's model."""
        return self.model

    @property
    def largest_model(self) -> Model:
        """The largest of the clients' models."""
        return self.model

    def shared_work(self) -> str | None:
        """Runs with the same text share their clients' work of the first round.

        None: this run shares it with no other.
        """
        return None

    def rebuilt(self, module: nn.Module, state: Mapping[str, Tensor], name: str) -> nn.Module:
        """The model that the run of this name has saved, made from an untrained one."""
        module.load_state_dict(state)
        return module

    def _client_value(self, name: str, client: int) -> Any:
        value = getattr(self, name)
        return value[client] if isinstance(value, tuple) else value


def check_floor(name: str, value: int, floor: int) -> None:
    """Refuses a number that is too small."""
    if value < floor:
        raise StudyError(f"{name}: expected {floor} or more, got {value}")


def check_share(name: str, value: float) -> None:
    """Refuses a number that is not a share, and a share of everything."""
    if not 0 <= value < 1:
        raise StudyError(f"{name}: expected a share from 0 to below 1, got {value}")


def normalises_by_batch(module: nn.Module) -> bool:
    """Whether the model normalises by its batches; one sample alone has no statistics."""
    return any(map(is_batch_norm, module.modules()))


def leaves_one_over(samples: int, batch_size: int) -> bool:
    """Whether a batch would be a single sample, which torch refuses in the middle of a round."""
    size = min(batch_size, samples)
    return size == 1 or samples % size == 1


def _check_target(target: float, metric: str) -> None:
    has_bounds = metric == AUTO or not METRICS[metric].in_units
    if not target > 0 or (has_bounds and target > 1):
        wanted = "a share above 0 and up to 1" if has_bounds else "a number above 0"
        raise StudyError(f"target_accuracy: expected {wanted}, got {target}")


def _drop_last_remedy(samples: int, batch_size: int) -> str:
    """What else helps against a single sample that is left over."""
    if not samples > batch_size > 1:
        return ""
    return ", or leave that sample out: sampling: {name: epochs, drop_last: true}"


def _check_each(name: str, value: int | tuple[int, ...] | None, clients: int) -> None:
    """Checks a setting that is one number, or one for each client."""
    if isinstance(value, tuple) and len(value) != clients:
        raise StudyError(
            f"{name}: expected one value for each of {clients} clients, got {list(value)}"
        )
    if value is None:
        return
    least = min(value) if isinstance(value, tuple) else value
    if least < 1:
        raise StudyError(f"{name}: expected 1 or more, got {value}")
