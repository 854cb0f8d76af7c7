"""What a GPU computes, against the CPU. Skipped where there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tacit.core.rows import Rows, columns
from tacit.data.dataset import Dataset
from tacit.federated.algorithms.fedprox import FedProx
from tacit.models.model import Cnn, Mlp
from tacit.simulation.kinds.fusion import FusionSimulation
from tacit.simulation.kinds.horizontal import Simulation
from tacit.study.study import Study
from tacit.training.batches import Batch, Samples
from tacit.training.draws import bits, normals, uniforms
from tacit.training.gradients import Gradients, VmappedGradients
from tacit.training.kernel_network import KernelGradients
from tacit.training.optimisers import SGD, Adam, Momentum, Optimiser
from tacit.training.row_trainer import RowTrainer
from tacit.training.sampling import Epochs, Poisson, Sampling
from tacit.training.trainer import Trained

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


def trainer_of(
    name: str, device: str, dtype: torch.dtype, *, by_kernels: bool = True, **options: Any
) -> RowTrainer:
    """A trainer of that network, by our kernels where there is a GPU, or else by vmap."""
    module = module_of(name).to(device, dtype)
    x, y = pictures(CASES[name][1])
    samples = Samples(x.to(dtype), y)
    gradient = None if by_kernels else VmappedGradients(module)
    return RowTrainer(module, samples, device=device, gradient=gradient, tf32=False, **options)


def train(
    trainer: RowTrainer,
    optimiser: Optimiser,
    steps: int = 20,
    rows: Sequence[int] = range(len(SIZES)),
    sampling: Sampling | None = None,
) -> Trained:
    """These rows for so many steps, each with a proximal term, epochs and a seed of its own."""
    batches = []
    for k in rows:
        count, epochs = SIZES[k]
        order = torch.Generator().manual_seed(k)
        shard = torch.arange(count)
        row_batches = trainer.draw_batches(sampling or Epochs(), shard, epochs, 16, order)
        batches.append(row_batches.first(steps))
    w = trainer.layout.flatten(trainer.module).repeat(len(rows), 1)
    rule: Any = columns([FedProx(mu=0.1 * k) for k in rows], FedProx, w)
    row_optimisers: Any = columns([optimiser] * len(rows), type(optimiser), w)
    seeds = [1000 + k for k in rows]
    return trainer.train(
        w, batches, optimiser=row_optimisers, rule=rule, sent={"x": w}, seeds=seeds
    )


def on_cpu(
    name: str, optimiser: Optimiser, dtype: torch.dtype, steps: int, **options: Any
) -> Trained:
    return train(trainer_of(name, "cpu", dtype, **options), optimiser, steps)


def on_gpu(
    name: str, optimiser: Optimiser, dtype: torch.dtype, steps: int, **options: Any
) -> Trained:
    trainer = trainer_of(name, "cuda", dtype, **options)
    trained = train(trainer, optimiser, steps)
    assert_captured(trainer)
    return trained


def assert_captured(trainer: RowTrainer) -> None:
    assert trainer.captured is not None
    assert trainer.captured.capture, trainer.captured.capture_error


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("optimiser", [Adam(), Momentum()])
def test_twenty_steps_in_double_precision_equal_the_cpu(name: str, optimiser: Optimiser) -> None:
    cpu = on_cpu(name, optimiser, torch.float64, 20)
    gpu = on_gpu(name, optimiser, torch.float64, 20)
    assert torch.allclose(cpu.w, gpu.w.cpu(), rtol=0, atol=1e-9)
    assert torch.allclose(cpu.loss, gpu.loss.cpu(), rtol=0, atol=1e-9)
    assert torch.equal(cpu.hits.double(), gpu.hits.cpu())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("by_kernels", [True, False])
def test_five_steps_in_single_precision_equal_the_cpu(name: str, by_kernels: bool) -> None:
    cpu = on_cpu(name, Adam(), torch.float32, 5)
    gpu = on_gpu(name, Adam(), torch.float32, 5, by_kernels=by_kernels)
    assert torch.allclose(cpu.w, gpu.w.cpu(), rtol=0, atol=1e-3)
    assert torch.allclose(cpu.loss, gpu.loss.cpu(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tf32", [True, False])
def test_a_row_is_the_same_in_any_company(name: str, tf32: bool) -> None:
    trainer = trainer_of(name, "cuda", torch.float32)
    trainer.tf32 = tf32
    together = train(trainer, Adam())
    for k in range(len(SIZES)):
        assert torch.equal(train(trainer, Adam(), rows=[k]).w[0], together.w[k])


@pytest.mark.parametrize("by_kernels", [True, False])
def test_a_graph_does_what_its_steps_do(by_kernels: bool) -> None:
    replayed = on_gpu("cnn", Adam(), torch.float32, 20, by_kernels=by_kernels)
    trainer = trainer_of("cnn", "cuda", torch.float32, by_kernels=by_kernels)
    assert trainer.captured is not None
    trainer.captured.capture = False
    eager = train(trainer, Adam())
    assert torch.allclose(replayed.w, eager.w, rtol=0, atol=0 if by_kernels else 1e-3)
    assert torch.equal(replayed.work.steps, eager.work.steps)


def test_full_gradients_of_parts_make_the_whole() -> None:
    gpu, cpu = (trainer_of("cnn", device, torch.float32) for device in ("cuda", "cpu"))
    assert isinstance(gpu.gradient, KernelGradients)
    shards = [torch.arange(200), torch.arange(7), torch.arange(0)]
    x = cpu.layout.flatten(cpu.module).repeat(3, 1)
    gpu_g = gpu.full_gradient(x.cuda(), shards)
    cpu_g = cpu.full_gradient(x, shards)
    assert torch.allclose(gpu_g.cpu(), cpu_g, rtol=0, atol=1e-5)
    assert not gpu_g[2].any()


SEEDS = torch.tensor([0, 1, 2**40 + 3, 2**63 - 1])


@pytest.mark.parametrize("draw", [bits, uniforms, normals])
@pytest.mark.parametrize("size", [1, 4097, 300_001])
def test_draws_have_the_bits_of_the_cpu(draw: Callable[..., Tensor], size: int) -> None:
    for step in (0, 1, -1, 2**33):
        cpu = draw(SEEDS, torch.tensor(step), size, 3)
        gpu = draw(SEEDS.cuda(), torch.tensor(step, device="cuda"), size, 3)
        assert torch.equal(gpu.cpu(), cpu)


def test_draws_have_the_same_bits_in_the_tails() -> None:
    step = torch.tensor(5)
    cpu = normals(SEEDS[:1], step, 20_000_000, dtype=torch.float64)
    gpu = normals(SEEDS[:1].cuda(), step.cuda(), 20_000_000, dtype=torch.float64)
    assert cpu.abs().max() > 5
    assert torch.equal(gpu.cpu(), cpu)


def test_a_captured_graph_draws_the_numbers_of_its_step() -> None:
    seeds, step = SEEDS.cuda(), torch.zeros((), dtype=torch.int64, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        normals(seeds, step, 1000)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = normals(seeds, step, 1000)
        step += 1
    step.zero_()
    for number in range(4):
        graph.replay()
        assert torch.equal(drawn.cpu(), normals(SEEDS, torch.tensor(number), 1000))


class Noisy:
    """The model's gradient and noise, by the seed of the row and the step."""

    def __init__(self, module: nn.Module) -> None:
        self.plain = VmappedGradients(module)

    def __call__(
        self, w: Tensor, buffers: Rows, batch: Batch, seeds: Tensor, step: Tensor
    ) -> Gradients:
        plain = self.plain(w, buffers, batch, seeds, step)
        noise = normals(seeds, step, w.shape[1], dtype=w.dtype)
        return plain._replace(g=plain.g + 0.1 * noise)


def noisy(device: str) -> RowTrainer:
    module = module_of("mlp").to(device, torch.float64)
    x, y = pictures(CASES["mlp"][1])
    return RowTrainer(module, Samples(x.double(), y), device=device, gradient=Noisy(module))


def test_noise_in_a_captured_graph_is_the_noise_of_the_cpu() -> None:
    trainer = noisy("cuda")
    gpu = train(trainer, Momentum())
    cpu = train(noisy("cpu"), Momentum())
    assert_captured(trainer)
    assert torch.allclose(gpu.w.cpu(), cpu.w, rtol=0, atol=1e-9)
    for k in range(len(SIZES)):
        alone = train(trainer, Momentum(), rows=[k])
        assert torch.allclose(alone.w[0], gpu.w[k], rtol=0, atol=1e-12)


class Sparse(Poisson):
    """Poisson batches of one sample on average: every third is empty."""

    def batches(
        self, shard: Tensor, epochs: int, batch_size: int | None, generator: torch.Generator
    ) -> Sequence[Tensor]:
        return super().batches(shard, epochs, 1, generator)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_empty_batches_are_what_they_are_on_the_cpu(name: str, dtype: torch.dtype) -> None:
    trainer = trainer_of(name, "cuda", dtype)
    gpu = train(trainer, SGD(lr=0.01), 12, sampling=Sparse())
    cpu = train(trainer_of(name, "cpu", dtype), SGD(lr=0.01), 12, sampling=Sparse())
    assert_captured(trainer)
    assert torch.equal(gpu.seen.cpu(), cpu.seen)
    assert torch.equal(gpu.work.steps.cpu(), cpu.work.steps)
    atol = 1e-3 if dtype == torch.float32 else 1e-9
    assert torch.allclose(gpu.w.cpu(), cpu.w, rtol=0, atol=atol)
    assert torch.allclose(gpu.loss.cpu(), cpu.loss, rtol=1e-3, atol=1e-3)


def weighted(output: Tensor, y: Tensor) -> Tensor:
    weights = torch.linspace(0.1, 3, 10, dtype=output.dtype, device=output.device)
    return nn.functional.cross_entropy(output, y, weight=weights, reduction="none")


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-3), (torch.float64, 1e-9)])
def test_a_loss_of_ones_own_is_trained_for_as_on_the_cpu(dtype: torch.dtype, atol: float) -> None:
    gpu = on_gpu("cnn", Momentum(lr=0.01), dtype, 5, loss=weighted)
    cpu = on_cpu("cnn", Momentum(lr=0.01), dtype, 5, loss=weighted)
    assert torch.allclose(gpu.w.cpu(), cpu.w, rtol=0, atol=atol)
    assert torch.allclose(gpu.loss.cpu(), cpu.loss, rtol=1e-3, atol=1e-3)
    plain = on_gpu("cnn", Momentum(lr=0.01), dtype, 5)
    assert not torch.allclose(plain.w, gpu.w, rtol=0, atol=1e-3)


def test_models_are_tested_as_on_the_cpu() -> None:
    figures = []
    for device in ("cuda", "cpu"):
        trainer = trainer_of("cnn", device, torch.float32)
        w = trainer.layout.flatten(trainer.module)
        held_out = trainer.prepared(Samples(*pictures((3, 32, 32), 50)))
        models = [(w, {}), (w * 1.1, {})]
        figures.append(trainer.test(models, held_out, [torch.arange(9), torch.tensor([40])]))
        answers = trainer.outputs(w, {}, pictures((3, 32, 32), 50)[0].to(device))
        assert answers.shape == (50, 10)
    for gpu, cpu in zip(*figures, strict=True):
        torch.testing.assert_close(gpu, cpu, rtol=1e-3, atol=1e-3)


def test_dropout_on_a_gpu_depends_on_the_rows_seeds_alone() -> None:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.Dropout(0.5), nn.Linear(20, 10))
    trainer = RowTrainer(module, Samples(*pictures((1, 8, 8))), device="cuda", tf32=False)
    together = train(trainer, SGD(lr=0.1))
    for k in range(len(SIZES)):
        assert torch.equal(train(trainer, SGD(lr=0.1), rows=[k]).w[0], together.w[k])


def test_other_samples_are_trained_on_step_by_step() -> None:
    gpu, cpu = (trainer_of("cnn", device, torch.float32) for device in ("cuda", "cpu"))
    x, y = pictures((3, 32, 32), 40)
    rows = []
    for trainer in (gpu.on(Samples(x, y)), cpu.on(Samples(x, y))):
        order = torch.Generator().manual_seed(0)
        batches = trainer.draw_batches(Epochs(), torch.arange(40), 1, 16, order)
        w = trainer.layout.flatten(trainer.module)[None]
        optimiser: Any = columns([SGD(lr=0.1)], SGD, w)
        rows.append(trainer.train(w, [batches], optimiser=optimiser).w.cpu())
    assert torch.allclose(*rows, rtol=0, atol=1e-3)


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
    gpu_records, _ = play("cuda", **settings)
    cpu_records, _ = play("cpu", **settings)
    for gpu, cpu in zip(gpu_records[-2:], cpu_records[-2:], strict=True):
        assert gpu["accuracy"] == pytest.approx(cpu["accuracy"], abs=0.01)
        assert gpu["local_accuracy"] == pytest.approx(cpu["local_accuracy"], abs=0.03)
        assert [c["steps"] for c in gpu["clients"]] == [c["steps"] for c in cpu["clients"]]


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
    named_runs = [(str(k), run) for k, run in enumerate(runs)]
    records = {}
    for device in ("cuda", "cpu"):
        simulation = FusionSimulation(named_runs, data, device=device)
        while simulation.going:
            records[device] = [record for record, _ in simulation.play_round()]
    for gpu, cpu in zip(records["cuda"], records["cpu"], strict=True):
        for name in ("alone_accuracy", "ensemble_accuracy", "local_accuracy"):
            assert gpu[name] == pytest.approx(cpu[name], abs=0.03)
        # other last digits lead to other matches
        assert gpu["accuracy"] == pytest.approx(cpu["accuracy"], abs=0.1)


def test_pictures_are_bytes_on_the_gpu() -> None:
    from tacit.data.datasets import Source

    data = Source.build("digits").load()
    x = (data.x * 255).round() / torch.tensor(255.0)
    pixels = Dataset("pixels", x, data.y, x[:100], data.y[:100], data.labels)
    run = Study(model="mlp", clients=2).runs()[0]
    simulation = Simulation([("one", run)], pixels, device="cuda")
    assert simulation.samples.train.x.dtype == torch.uint8
    assert torch.equal(simulation.samples.x.cpu(), x)


def test_the_same_seed_gives_the_same_bits() -> None:
    _, first = play("cuda", rounds=3)
    _, second = play("cuda", rounds=3)
    assert torch.equal(first.states[0].server["x"], second.states[0].server["x"])
