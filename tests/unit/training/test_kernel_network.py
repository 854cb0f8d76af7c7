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
from tacit.training import kernel_layers, kernel_network
from tacit.training.batches import Batch
from tacit.training.gradients import Gradients, LoopedGradients
from tacit.training.kernel_network import KernelGradients, KernelNetwork
from tacit.training.kernel_reader import read

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NONE = torch.zeros(0, dtype=torch.int64)  # seeds and steps, which these gradients do not look at


torch.manual_seed(0)  # for the weights of the modules in CASES


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """For the weights of modules that a test makes."""
    torch.manual_seed(0)


def rows_of(module: nn.Module, count: int) -> Tensor:
    """Rows near the module's parameters."""
    layout = Layout.of(module)
    draw = torch.Generator().manual_seed(1)
    rows = []
    for _ in range(count):
        noise = torch.randn(layout.size, generator=draw)
        rows.append(layout.flatten(module) + 0.05 * noise)
    return torch.stack(rows)


def gradients_of(gradient: Any, w: Tensor, batch: Batch) -> Gradients:
    """What the kernels give, on the device that has them."""
    on_device = Batch(batch.x.to(DEVICE), batch.y.to(DEVICE), batch.counts, batch.packed)
    gradients: Gradients = gradient(w.to(DEVICE), {}, on_device, NONE, NONE)
    return gradients


def assert_alike(ours: Gradients, theirs: Gradients) -> None:
    """The same gradients, losses and hits, up to rounding."""
    for our_values, their_values in zip(ours[:3], theirs[:3], strict=True):
        expected = their_values.to(our_values.dtype)
        assert torch.allclose(our_values.cpu(), expected, rtol=1e-5, atol=1e-6)


def network_of(module: nn.Module, shape: tuple[int, ...]) -> KernelNetwork:
    network = read(module, shape)
    assert network is not None
    return network


def check(module: nn.Module, shape: tuple[int, ...], counts: tuple[int, ...] = (5, 3)) -> None:
    """The same gradients, losses and hits as autograd's, and the same answers as the module's."""
    network = network_of(module, shape)
    draw = torch.Generator().manual_seed(2)
    w = rows_of(module, len(counts))
    x = torch.rand(len(counts), max(counts), *shape, generator=draw)
    y = torch.randint(0, 10, x.shape[:2], generator=draw)
    batch = Batch(x, y, counts)
    theirs = LoopedGradients(module)(w, {}, batch, NONE, NONE)
    assert_alike(gradients_of(KernelGradients(network), w, batch), theirs)
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
            conv(2, 3, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            conv(3, 5, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(20, 12),
            nn.ReLU(),
            nn.Linear(12, 10),
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
    layers: list[nn.Module] = [conv(channels, outputs, size, padding=padding)]
    side = 7 + 2 * padding - size + 1
    if relu:
        layers.append(nn.ReLU())
    if pool:
        layers.append(nn.MaxPool2d(2))
        side //= 2
    module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(outputs * side * side, 10))
    check(module, (channels, 7, 7), (count, 1))


def test_a_row_has_the_same_bits_in_any_company() -> None:
    module, shape = CASES["two convolutions, padded"]
    gradient = KernelGradients(network_of(module, shape))
    draw = torch.Generator().manual_seed(3)
    w = rows_of(module, 3)
    x = torch.rand(3, 4, *shape, generator=draw)
    y = torch.randint(0, 10, (3, 4), generator=draw)
    counts = (4, 4, 2)
    together = gradients_of(gradient, w, Batch(x, y, counts))
    for k in range(3):
        row = slice(k, k + 1)
        alone = gradients_of(gradient, w[row], Batch(x[row], y[row], counts[row]))
        assert torch.equal(alone.g[0], together.g[k])


def test_a_batch_of_more_than_one_block_counts_whole() -> None:
    check(Mlp((7,)).make((5,), 10), (5,), (70, 33))
    module, shape = CASES["pools with an edge left over"]
    check(module, shape, (40, 34))


def test_very_many_samples_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    module, shape = CASES["pools with an edge left over"]
    network = network_of(module, shape)
    # Small whole numbers, whose sums are exact in any order: a part has its samples in other rows
    # of a tile, and the libraries that multiply tiles may add up their rows differently.
    draw = torch.Generator().manual_seed(5)
    w = torch.randint(-3, 4, (2, Layout.of(module).size), generator=draw).float().to(DEVICE)
    pictures = torch.randint(-3, 4, (2, 5, *shape), generator=draw).float()
    x = network.pack(pictures.to(DEVICE))
    whole = network.outputs(w, x)
    assert whole.abs().max() > 100
    assert len(whole.flatten(0, 1).unique(dim=0)) == 10  # samples are told apart
    monkeypatch.setattr(kernel_network, "MOST", 2 * network.widest)
    assert torch.equal(network.outputs(w, x), whole)
    batch = Batch(x, torch.zeros(2, 5, dtype=torch.int64), (5, 5), packed=True)
    expected = "5 samples are too many at once for this model on a GPU; use a batch_size"
    with pytest.raises(StudyError, match=expected):
        gradients_of(KernelGradients(network), w, batch)


def test_positions_beyond_a_grid_are_taken_in_larger_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel_layers, "PROGRAMS", 1)
    monkeypatch.setattr(kernel_layers, "CHUNK", 32)
    check(*CASES["pools with an edge left over"])


def test_numbers_and_soft_targets_have_gradients_too() -> None:
    draw = torch.Generator().manual_seed(6)
    x = torch.rand(2, 4, 5, generator=draw)
    soft_targets = torch.rand(2, 4, 3, generator=draw).softmax(2)
    numbers = torch.rand(2, 4, generator=draw)
    for outputs, targets in ((3, soft_targets), (1, numbers)):
        module = Mlp((7,)).make((5,), outputs)
        w = rows_of(module, 2)
        batch = Batch(x, targets, (4, 3))
        theirs = LoopedGradients(module)(w, {}, batch, NONE, NONE)
        assert_alike(gradients_of(KernelGradients(network_of(module, (5,))), w, batch), theirs)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("counts", [(0, 3), (0, 0)])
def test_an_empty_batch_has_no_loss_and_a_gradient_of_zero(
    counts: tuple[int, int], soft: bool
) -> None:
    module, shape = CASES["pools with an edge left over"]
    gradient = KernelGradients(network_of(module, shape))
    w = rows_of(module, 2)
    draw = torch.Generator().manual_seed(4)
    x = torch.rand(2, 4, *shape, generator=draw)
    labels = torch.randint(0, 10, (2, 4), generator=draw)
    y = nn.functional.one_hot(labels, 10).float() if soft else labels
    for width in {4, max(counts)}:  # padded, and without any sample at all
        batch = Batch(x[:, :width], y[:, :width], counts)
        ours = gradients_of(gradient, w, batch)
        assert not ours.g[0].any()
        assert not ours.loss[0].any()
        assert not ours.hits[0].any()
        assert_alike(ours, LoopedGradients(module)(w, {}, batch, NONE, NONE))


def test_a_loss_of_ones_own_goes_through_the_kernels() -> None:
    def weighted(output: Tensor, y: Tensor) -> Tensor:
        weights = torch.arange(1.0, 11.0, device=output.device)
        return nn.functional.cross_entropy(output, y, weight=weights, reduction="none")

    module, shape = CASES["two convolutions, padded"]
    network = network_of(module, shape)
    draw = torch.Generator().manual_seed(7)
    w = rows_of(module, 3)
    x = torch.rand(3, 5, *shape, generator=draw)
    y = torch.randint(0, 10, (3, 5), generator=draw)
    batch = Batch(x, y, (5, 2, 0))
    ours = gradients_of(KernelGradients(network, weighted), w, batch)
    assert_alike(ours, LoopedGradients(module, weighted)(w, {}, batch, NONE, NONE))
    plain = gradients_of(KernelGradients(network), w, batch)
    assert not torch.allclose(ours.g, plain.g, rtol=1e-3)


@pytest.mark.filterwarnings("ignore:invalid value")  # NumPy's, in the interpreter
def test_a_row_that_has_diverged_stays_so() -> None:
    module, shape = CASES["pools with an edge left over"]
    w = rows_of(module, 2)
    w[1, 0] = float("nan")
    x = torch.rand(2, 3, *shape, generator=torch.Generator().manual_seed(8))
    batch = Batch(x, torch.zeros(2, 3, dtype=torch.int64), (3, 3))
    gradients = gradients_of(KernelGradients(network_of(module, shape)), w, batch)
    assert gradients.loss[0].isfinite().all()
    assert gradients.loss[1].isnan().all()


class Squared(nn.ReLU):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) ** 2


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 10))
    module[0].register_forward_hook(lambda _module, _inputs, output: output * 2)
    return module


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 10))
    module[2].weight = module[0].weight
    return module


def test_a_part_that_comes_twice_is_applied_twice() -> None:
    relu = nn.ReLU()
    check(nn.Sequential(nn.Linear(6, 8), relu, nn.Linear(8, 8), relu, nn.Linear(8, 10)), (6,))


class Exponential(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x).exp()
        return out


@pytest.mark.parametrize(
    "module",
    [
        Exponential(),
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
    unusual = [
        conv(2, 2, 3, dilation=2),
        conv(2, 2, 3, groups=2),
        conv(2, 2, 3, padding=1, padding_mode="circular"),
    ]
    for first in unusual:
        assert read(nn.Sequential(first, *tail), (2, 8, 8)) is None
    ceiled = nn.MaxPool2d(2, ceil_mode=True)
    assert read(nn.Sequential(conv(2, 2, 3), nn.ReLU(), ceiled, *tail), (2, 8, 8)) is None
    frozen = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 10))
    frozen[0].weight.requires_grad_(False)
    assert read(frozen, (4,)) is None
