"""Our kernels against autograd; without a GPU they are interpreted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tacit.core.errors import StudyError
from tacit.core.vectors import Layout
from tacit.models.model import Cnn, Linear, Mlp
from tacit.training import kernel_network
from tacit.training.batches import Batch
from tacit.training.gradients import LoopedGradients
from tacit.training.kernel_network import KernelGradients, KernelNetwork, read

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NONE = torch.zeros(0, dtype=torch.int64)  # seeds and steps, which these gradients do not look at


def rows_of(module: nn.Module, rows: int) -> Tensor:
    layout, draw = Layout.of(module), torch.Generator().manual_seed(1)
    return torch.stack(
        [
            layout.flatten(module) + 0.05 * torch.randn(layout.size, generator=draw)
            for _ in range(rows)
        ]
    )


def network_of(module: nn.Module, shape: tuple[int, ...]) -> KernelNetwork:
    network = read(module, shape)
    assert network is not None
    return network


def check(module: nn.Module, shape: tuple[int, ...], counts: tuple[int, ...] = (5, 3)) -> None:
    """The same gradients, losses and hits as autograd's, and the same answers as the module's."""
    network, draw = network_of(module, shape), torch.Generator().manual_seed(2)
    w = rows_of(module, len(counts))
    x = torch.rand(len(counts), max(counts), *shape, generator=draw)
    y = torch.randint(0, 10, x.shape[:2], generator=draw)
    wanted = LoopedGradients(module)(w, {}, Batch(x, y, counts), NONE, NONE)
    found = KernelGradients(network)(
        w.to(DEVICE), {}, Batch(x.to(DEVICE), y.to(DEVICE), counts), NONE, NONE
    )
    for one, other in zip(wanted[:3], found[:3], strict=True):
        assert torch.allclose(one.to(other.dtype), other.cpu(), rtol=1e-5, atol=1e-6)
    answers = network.outputs(w.to(DEVICE), network.pack(x.to(DEVICE))).cpu()
    for k in range(len(w)):
        Layout.of(module).load(module, w[k])
        assert torch.allclose(module(x[k]), answers[k], rtol=1e-5, atol=1e-5)


def conv(*sizes: int, **options: Any) -> nn.Module:
    return nn.Conv2d(*sizes, **options)


CASES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "pools with an edge left over": (
        nn.Sequential(conv(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(48, 10)),
        (2, 11, 10),
    ),
    "two convolutions, padded": (
        nn.Sequential(
            *(
                conv(2, 3, 3),
                nn.ReLU(),
                nn.MaxPool2d(2),
                conv(3, 5, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ),
            *(nn.Flatten(), nn.Linear(20, 12), nn.ReLU(), nn.Linear(12, 10)),
        ),
        (2, 10, 10),
    ),
    "stride, no bias, no pooling": (
        nn.Sequential(
            conv(3, 4, 3, stride=2, padding=1, bias=False),
            conv(4, 6, 2),
            nn.Flatten(),
            nn.Linear(54, 10),
        ),
        (3, 7, 7),
    ),
    "nested, with gaps": (
        nn.Sequential(
            nn.Sequential(nn.Flatten(), nn.Linear(20, 9)),
            nn.Identity(),
            nn.ReLU(),
            nn.Linear(9, 10),
        ),
        (20,),
    ),
    "linear": (Linear().make((1, 4, 4), 10), (1, 4, 4)),
    "mlp": (Mlp((70, 33)).make((1, 6, 6), 10), (1, 6, 6)),
    "cnn": (Cnn().make((1, 16, 16), 10), (1, 16, 16)),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_what_autograd_does(name: str) -> None:
    check(*CASES[name])


@settings(max_examples=8)
@given(
    channels=st.integers(1, 5),
    outputs=st.integers(1, 18),
    size=st.integers(1, 4),
    padding=st.integers(0, 1),
    pool=st.booleans(),
    relu=st.booleans(),
    count=st.integers(1, 4),
)
def test_any_convolution_agrees(
    channels: int, outputs: int, size: int, padding: int, pool: bool, relu: bool, count: int
) -> None:
    torch.manual_seed(0)
    parts: list[nn.Module] = [conv(channels, outputs, size, padding=padding)]
    parts += [nn.ReLU()] if relu else []
    parts += [nn.MaxPool2d(2)] if pool else []
    side = (7 + 2 * padding - size + 1) // (2 if pool else 1)
    check(
        nn.Sequential(*parts, nn.Flatten(), nn.Linear(outputs * side * side, 10)),
        (channels, 7, 7),
        (count, 1),
    )


def test_a_row_has_the_same_bits_in_any_company() -> None:
    module, shape = CASES["two convolutions, padded"]
    gradient, w = KernelGradients(network_of(module, shape)), rows_of(module, 3).to(DEVICE)
    x = torch.rand(3, 4, *shape).to(DEVICE)
    y = torch.randint(0, 10, (3, 4)).to(DEVICE)
    together = gradient(w, {}, Batch(x, y, (4, 4, 2)), NONE, NONE)
    for k, count in enumerate((4, 4, 2)):
        alone = gradient(w[k : k + 1], {}, Batch(x[k : k + 1], y[k : k + 1], (count,)), NONE, NONE)
        assert torch.equal(alone.g[0], together.g[k])


def test_a_batch_of_more_than_one_block_counts_whole() -> None:
    check(Mlp((7,)).make((5,), 10), (5,), (70, 33))
    module, shape = CASES["pools with an edge left over"]
    check(module, shape, (40, 34))


def test_very_many_samples_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    module, shape = CASES["pools with an edge left over"]
    network, w = network_of(module, shape), rows_of(module, 2).to(DEVICE)
    x = network.pack(torch.rand(2, 5, *shape).to(DEVICE))
    whole = network.outputs(w, x)
    monkeypatch.setattr(kernel_network, "MOST", 2 * network.widest)
    assert torch.equal(network.outputs(w, x), whole)
    with pytest.raises(
        StudyError, match="5 samples are too many at once for this model on a GPU; use a batch_size"
    ):
        KernelGradients(network)(
            w, {}, Batch(x, torch.zeros(2, 5, dtype=torch.int64), (5, 5), packed=True), NONE, NONE
        )


def test_positions_beyond_a_grid_are_taken_in_larger_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel_network, "PROGRAMS", 1)
    monkeypatch.setattr(kernel_network, "CHUNK", 32)
    check(*CASES["pools with an edge left over"])


def test_numbers_and_soft_targets_have_gradients_too() -> None:
    module = Mlp((7,)).make((5,), 3)
    w, x = rows_of(module, 2), torch.rand(2, 4, 5)
    soft = torch.rand(2, 4, 3).softmax(2)
    number = Mlp((7,)).make((5,), 1)
    for one, targets in ((module, soft), (number, torch.rand(2, 4))):
        w = rows_of(one, 2)
        wanted = LoopedGradients(one)(w, {}, Batch(x, targets, (4, 3)), NONE, NONE)
        found = KernelGradients(network_of(one, (5,)))(
            w.to(DEVICE), {}, Batch(x.to(DEVICE), targets.to(DEVICE), (4, 3)), NONE, NONE
        )
        assert torch.allclose(wanted.g, found.g.cpu(), rtol=1e-5, atol=1e-6)
        assert torch.allclose(wanted.hits.float(), found.hits.cpu(), rtol=1e-5)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("counts", [(0, 3), (0, 0)])
def test_an_empty_batch_has_no_loss_and_a_gradient_of_zero(
    counts: tuple[int, int], soft: bool
) -> None:
    module, shape = CASES["pools with an edge left over"]
    w, draw = rows_of(module, 2), torch.Generator().manual_seed(4)
    x = torch.rand(2, 4, *shape, generator=draw)
    labels = torch.randint(0, 10, (2, 4), generator=draw)
    y = nn.functional.one_hot(labels, 10).float() if soft else labels
    for width in {4, max(counts)}:  # padded, and without any sample at all
        batch = Batch(x[:, :width].to(DEVICE), y[:, :width].to(DEVICE), counts)
        found = KernelGradients(network_of(module, shape))(w.to(DEVICE), {}, batch, NONE, NONE)
        wanted = LoopedGradients(module)(
            w, {}, Batch(x[:, :width], y[:, :width], counts), NONE, NONE
        )
        for ours, theirs in zip(found[:3], wanted[:3], strict=True):
            assert not ours[0].any()
            assert torch.allclose(ours.cpu(), theirs.to(ours.dtype), rtol=1e-5, atol=1e-6)


def test_a_loss_of_ones_own_goes_through_the_kernels() -> None:
    def weighted(output: Tensor, y: Tensor) -> Tensor:
        weights = torch.arange(1.0, 11.0, device=output.device)
        return nn.functional.cross_entropy(output, y, weight=weights, reduction="none")

    module, shape = CASES["two convolutions, padded"]
    w, x = rows_of(module, 3), torch.rand(3, 5, *shape)
    y = torch.randint(0, 10, (3, 5))
    counts = (5, 2, 0)
    wanted = LoopedGradients(module, weighted)(w, {}, Batch(x, y, counts), NONE, NONE)
    gradient = KernelGradients(network_of(module, shape), weighted)
    found = gradient(w.to(DEVICE), {}, Batch(x.to(DEVICE), y.to(DEVICE), counts), NONE, NONE)
    for ours, theirs in zip(found[:3], wanted[:3], strict=True):
        assert torch.allclose(ours.cpu(), theirs.to(ours.dtype), rtol=1e-5, atol=1e-6)
    plain = KernelGradients(network_of(module, shape))
    other = plain(w.to(DEVICE), {}, Batch(x.to(DEVICE), y.to(DEVICE), counts), NONE, NONE)
    assert not torch.allclose(found.g, other.g, rtol=1e-3)


@pytest.mark.filterwarnings("ignore:invalid value")  # NumPy's, in the interpreter
def test_a_row_that_has_diverged_stays_so() -> None:
    module, shape = CASES["pools with an edge left over"]
    w = rows_of(module, 2)
    w[1, 0] = float("nan")
    batch = Batch(
        torch.rand(2, 3, *shape).to(DEVICE), torch.zeros(2, 3, dtype=torch.int64).to(DEVICE), (3, 3)
    )
    found = KernelGradients(network_of(module, shape))(w.to(DEVICE), {}, batch, NONE, NONE)
    assert found.loss[0].isfinite().all()
    assert found.loss[1].isnan().all()


class Squared(nn.ReLU):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) ** 2


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 10))
    module[0].register_forward_hook(lambda _module, _given, output: output * 2)
    return module


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 10))
    module[2].weight = module[0].weight
    return module


def test_a_part_that_comes_twice_is_applied_twice() -> None:
    relu = nn.ReLU()
    check(nn.Sequential(nn.Linear(6, 8), relu, nn.Linear(8, 8), relu, nn.Linear(8, 10)), (6,))


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x).exp()
        return out


@pytest.mark.parametrize(
    "module",
    [
        Own(),
        nn.Sequential(nn.Linear(4, 10), nn.Tanh()),
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 10)),
        nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 10)),
        nn.Sequential(nn.Linear(5, 10)),  # of another width than the samples
        nn.Sequential(nn.Linear(4, 8), Squared(), nn.Linear(8, 10)),
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 10))),
        hooked(),
        tied(),
    ],
)
def test_what_is_no_plain_sequence_is_left_to_vmap(module: nn.Module) -> None:
    assert read(module, (4,)) is None


def test_unusual_convolutions_are_left_to_vmap() -> None:
    tail = [nn.Flatten(), nn.Linear(32, 10)]
    for first in (
        conv(2, 2, 3, dilation=2),
        conv(2, 2, 3, groups=2),
        conv(2, 2, 3, padding=1, padding_mode="circular"),
    ):
        assert read(nn.Sequential(first, *tail), (2, 8, 8)) is None
    ceiled = nn.MaxPool2d(2, ceil_mode=True)
    assert read(nn.Sequential(conv(2, 2, 3), nn.ReLU(), ceiled, *tail), (2, 8, 8)) is None
    frozen = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 10))
    frozen[0].weight.requires_grad_(False)
    assert read(frozen, (4,)) is None
