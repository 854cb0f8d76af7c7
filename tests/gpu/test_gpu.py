"""What a GPU computes, against the CPU. Skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tacit.core.rows import columns
from tacit.core.vectors import Layout
from tacit.data.dataset import Dataset
from tacit.federated.algorithms.fedprox import FedProx
from tacit.models.model import Cnn, Mlp
from tacit.simulation.kinds.fusion import FusionSimulation
from tacit.simulation.kinds.horizontal import Simulation, precision
from tacit.study.study import Study
from tacit.training.batches import Batch, Samples, pack_epochs, plan_epochs
from tacit.training.captured import CapturedTrainer
from tacit.training.fused import FusedGradients, read
from tacit.training.gradients import LoopedGradients, VmappedGradients
from tacit.training.optimisers import Adam, Momentum, Optimiser
from tacit.training.trainer import Block, Work, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CASES = {"cnn": (Cnn(), (3, 32, 32)), "mlp": (Mlp((40,)), (1, 8, 8))}
SIZES = [(96, 1), (64, 2), (33, 1), (20, 2)]  # samples and epochs of each row


def pictures(shape: tuple[int, ...], count: int = 200) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (count, *shape), generator=draw) / torch.tensor(255.0)
    return x, torch.randint(0, 10, (count,), generator=draw)


def module_of(name: str) -> nn.Module:
    torch.manual_seed(3)
    model, shape = CASES[name]
    return model.make(shape, 10)


def block_of(module: nn.Module, rows: int, optimiser: Optimiser, device: str, dtype: torch.dtype) -> Block:
    w = Layout.of(module).flatten(module).repeat(rows, 1).to(device, dtype)
    rule: Any = columns([FedProx(mu=0.1 * k) for k in range(rows)], FedProx, w)
    mine: Any = columns([optimiser] * rows, type(optimiser), w)
    zero = torch.zeros(rows, 1, device=device, dtype=dtype)
    return Block(w, Work(zero, mine.lr, zero, mine, mine.init(w)), rule, {"x": w}, {}, {}, *[zero] * 3)


def on_cpu(name: str, optimiser: Optimiser, dtype: torch.dtype, steps: int) -> Block:
    module = module_of(name).to(dtype)
    x, y = pictures(CASES[name][1])
    plans = [plan_epochs(torch.arange(n), e, 16, torch.Generator().manual_seed(k)) for k, (n, e) in enumerate(SIZES)]
    block = block_of(module, len(SIZES), optimiser, "cpu", dtype)
    return train(block, [plan[:steps] for plan in plans], x.to(dtype), y, LoopedGradients(module))


def on_gpu(name: str, optimiser: Optimiser, dtype: torch.dtype, steps: int, **options: Any) -> Block:
    module = module_of(name).to("cuda", dtype)
    x, y = (part.cuda() for part in pictures(CASES[name][1]))
    network = read(module, x.shape[1:]) if options.get("fused", True) and dtype == torch.float32 else None
    samples = Samples.compact(x.to(dtype), y)
    samples = samples.pack(network.pack) if network and network.packs else samples
    gradient = FusedGradients(network) if network else VmappedGradients(module)
    trainer = CapturedTrainer(gradient, samples, capture=options.get("capture", True))
    chosen = options.get("rows", range(len(SIZES)))
    plans = [pack_epochs(torch.arange(n), e, 16, torch.Generator().manual_seed(k)) for k, (n, e) in enumerate(SIZES)]
    block = block_of(module, len(SIZES), optimiser, "cuda", dtype)
    with precision(options.get("tf32", False)):
        from tacit.core.rows import pick

        done = trainer.train(pick(block, torch.tensor(list(chosen)).cuda()), [plans[k].first(steps) for k in chosen])
    assert trainer.capture == options.get("capture", True), trainer.why
    return done


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("optimiser", [Adam(), Momentum()])
def test_twenty_steps_in_double_precision_equal_the_cpu(name: str, optimiser: Optimiser) -> None:
    one, other = (f(name, optimiser, torch.float64, 20) for f in (on_cpu, on_gpu))
    assert torch.allclose(one.w, other.w.cpu(), rtol=0, atol=1e-9)
    assert torch.allclose(one.loss, other.loss.cpu(), rtol=0, atol=1e-9)
    assert torch.equal(one.hits.double(), other.hits.cpu())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fused", [True, False])
def test_five_steps_in_single_precision_equal_the_cpu(name: str, fused: bool) -> None:
    one = on_cpu(name, Adam(), torch.float32, 5)
    other = on_gpu(name, Adam(), torch.float32, 5, fused=fused)
    assert torch.allclose(one.w, other.w.cpu(), rtol=0, atol=1e-3)
    assert torch.allclose(one.loss, other.loss.cpu(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tf32", [True, False])
def test_a_row_is_the_same_in_any_company(name: str, tf32: bool) -> None:
    together = on_gpu(name, Adam(), torch.float32, 20, tf32=tf32)
    for k in range(len(SIZES)):
        alone = on_gpu(name, Adam(), torch.float32, 20, tf32=tf32, rows=[k])
        assert torch.equal(alone.w[0], together.w[k])


@pytest.mark.parametrize("fused", [True, False])
def test_a_graph_does_what_its_steps_do(fused: bool) -> None:
    one, other = (on_gpu("cnn", Adam(), torch.float32, 20, capture=capture, fused=fused) for capture in (True, False))
    assert torch.allclose(one.w, other.w, rtol=0, atol=0 if fused else 1e-3)
    assert torch.equal(one.work.steps, other.work.steps)


def test_full_gradients_of_parts_make_the_whole() -> None:
    module = module_of("cnn").cuda()
    network = read(module, (3, 32, 32))
    assert network is not None
    x, y = pictures((3, 32, 32))
    w = Layout.of(module).flatten(module)[None]
    found = FusedGradients(network)(w, {}, Batch(x[None].cuda(), y[None].cuda(), (len(y),)))
    wanted = LoopedGradients(module_of("cnn"))(w.cpu(), {}, Batch(x[None], y[None], (len(y),)))
    assert torch.allclose(found.g.cpu(), wanted.g, rtol=0, atol=1e-5)


STUDY = {
    "dataset": "digits",
    "model": "mlp",
    "clients": 4,
    "split": ["iid", "quantity_skew"],
    "optimiser": {"name": "adam", "lr": 0.003},
    "rounds": 10,
}


def play(device: str, **settings: Any) -> tuple[list[dict[str, Any]], Simulation]:
    from tacit.data.datasets import Source

    data: Dataset = Source.build("digits").load()
    runs = Study(**{**STUDY, **settings}).runs()
    simulation = Simulation([(str(k), run) for k, run in enumerate(runs)], data, device=device)
    records = []
    while simulation.going:
        records += [record for record, _ in simulation.play_round()]
    return records, simulation


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": {"name": "fedprox", "mu": [0.01, 1]}},
        {"algorithm": "scaffold", "optimiser": {"name": "sgd", "lr": 0.1}},
        {"algorithm": {"name": "scaffold", "option": "I"}, "optimiser": {"name": "sgd", "lr": 0.1}},
        {"algorithm": "fedplus", "optimiser": {"name": "sgd", "lr": 0.1}},
        {"algorithm": "fedsgd", "optimiser": {"name": "sgd", "lr": 0.5}},
        {"algorithm": "fedavg", "fine_tuning": 1, "selection": {"name": "fraction", "c": 0.5}},
        {"algorithm": "fedavg", "dropout": 0.3, "behaviour": "variable", "batch_size": None},
        {"algorithm": "fedavg", "wire": ["top_k"], "combiner": "median"},
    ],
)
def test_a_study_ends_where_it_ends_on_the_cpu(settings: dict[str, Any]) -> None:
    (ours, _), (theirs, _) = (play(device, **settings) for device in ("cuda", "cpu"))
    for one, other in zip(ours[-2:], theirs[-2:], strict=True):
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=0.01)
        assert one["local_accuracy"] == pytest.approx(other["local_accuracy"], abs=0.03)
        assert [c["steps"] for c in one["clients"]] == [c["steps"] for c in other["clients"]]


def test_fusions_end_where_they_end_on_the_cpu() -> None:
    from tacit.data.datasets import Source

    data = Source.build("digits").load()
    runs = Study(
        model={"name": "mlp", "hidden": [30, 20]},
        split="iid",
        clients=4,
        widths=(20, 30, 30, 40),
        fusion=["pfnm", {"name": "pfnm", "class_weights": True}],
        initial="different",
        optimiser={"name": "adam", "lr": 0.003},
        local_epochs=10,
        rounds=2,
        seed=[0, 1],
    ).runs()
    found = {}
    for device in ("cuda", "cpu"):
        simulation = FusionSimulation([(str(k), run) for k, run in enumerate(runs)], data, device=device)
        while simulation.going:
            found[device] = [record for record, _ in simulation.play_round()]
    for one, other in zip(found["cuda"], found["cpu"], strict=True):
        for name in ("alone_accuracy", "ensemble_accuracy", "local_accuracy"):
            assert one[name] == pytest.approx(other[name], abs=0.03)
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=0.1)  # other digits, other matches


def test_pictures_are_bytes_on_the_gpu() -> None:
    from tacit.data.datasets import Source

    data = Source.build("digits").load()
    x = (data.x * 255).round() / torch.tensor(255.0)
    pixels = Dataset("pixels", x, data.y, x[:100], data.y[:100], data.labels)
    run = Study(model="mlp", clients=2).runs()[0]
    simulation = Simulation([("one", run)], pixels, device="cuda")
    assert simulation.pool.train.x.dtype == torch.uint8
    assert torch.equal(simulation.pool.x.cpu(), x)


def test_the_same_seed_gives_the_same_bits() -> None:
    one, other = (play("cuda", rounds=3)[1].states[0].server["x"] for _ in range(2))
    assert torch.equal(one, other)
