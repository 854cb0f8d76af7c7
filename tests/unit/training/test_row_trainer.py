"""A row trainer in every form: what rows become, what gradient functions see, and empty batches."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.core.errors import StudyError
from tacit.core.rows import Rows, columns
from tacit.federated.algorithms.fedprox import FedProx
from tacit.training.batches import Batch, Batches, ListedBatches, Samples
from tacit.training.draws import normals
from tacit.training.evaluation import evaluate
from tacit.training.gradients import Gradients, row_gradients
from tacit.training.optimisers import SGD, Adam, Momentum, Optimiser
from tacit.training.row_trainer import RowTrainer
from tacit.training.sampling import Epochs, Poisson, Sampling
from tacit.training.trainer import Trained

DRAW = torch.Generator().manual_seed(0)
X = torch.randn(50, 6, generator=DRAW, dtype=torch.float64)
Y = torch.randint(0, 3, (50,), generator=DRAW)
SAMPLES = Samples(X, Y)
FORMS: list[Any] = ["loop", "vmap", "captured"]
SHARDS = [torch.arange(40), torch.arange(30, 37), torch.arange(12), torch.arange(0)]
SEEDS = [11, 2**62 + 5, 13, 14]


def mlp(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), *layers, nn.ReLU(), nn.Linear(8, 3)).double()


def rows_of(module: nn.Module, count: int) -> Tensor:
    row = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
    return torch.stack([row * (1 + k / 10) for k in range(count)])


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batches_of(
    trainer: RowTrainer, shards: Sequence[Tensor] = SHARDS, sampling: Sampling | None = None
) -> list[Batches]:
    """Batches of five, from k + 1 passes over the k-th shard."""
    rows = []
    for k, shard in enumerate(shards):
        rows.append(trainer.draw_batches(sampling or Epochs(), shard, k + 1, 5, seeded(k)))
    return rows


def train(
    trainer: RowTrainer, w: Tensor, batches: Sequence[Batches], optimiser: Optimiser, **options: Any
) -> Trained:
    row_optimisers: Any = columns([optimiser] * len(w), type(optimiser), w)
    return trainer.train(w, batches, optimiser=row_optimisers, **options)


def assert_alike(ours: Trained, theirs: Trained) -> None:
    torch.testing.assert_close(ours.w, theirs.w, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(ours.loss, theirs.loss, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(ours.hits.double(), theirs.hits.double())
    assert torch.equal(ours.seen, theirs.seen)
    assert torch.equal(ours.work.steps, theirs.work.steps)


@pytest.mark.parametrize("form", FORMS[1:])
@pytest.mark.parametrize("sampling", [Epochs(), Poisson()], ids=lambda sampling: sampling.name)
def test_rows_are_trained_alike_in_every_form(form: Any, sampling: Sampling) -> None:
    w = rows_of(mlp(), len(SHARDS))
    rule: Any = columns([FedProx(mu=0.1 * k) for k in range(len(w))], FedProx, w)
    results = []
    for trainer in (RowTrainer(mlp(), SAMPLES), RowTrainer(mlp(), SAMPLES, form=form)):
        batches = batches_of(trainer, sampling=sampling)
        results.append(train(trainer, w, batches, Momentum(lr=0.05), rule=rule, sent={"x": w}))
    assert_alike(*results)
    assert results[0].work.steps.flatten().tolist() == [8, 4, 9, 0]


def test_batches_are_cut_short_to_the_first() -> None:
    for form in FORMS:
        trainer = RowTrainer(mlp(), SAMPLES, form=form)
        batches = trainer.draw_batches(Epochs(), torch.arange(20), 2, 5, seeded(0))
        assert len(batches) == 8
        trained = train(trainer, rows_of(mlp(), 1), [batches.first(3)], SGD())
        assert trained.work.steps.item() == 3


def test_batches_of_another_form_are_refused() -> None:
    looped = RowTrainer(mlp(), SAMPLES, form="loop")
    captured = RowTrainer(mlp(), SAMPLES, form="captured")
    expected = r"batches: expected those that this trainer's draw_batches\(\) makes"
    for trainer, wrong_trainer in ((looped, captured), (captured, looped)):
        batches = batches_of(wrong_trainer, SHARDS[:1])
        with pytest.raises(ValueError, match=expected):
            train(trainer, rows_of(mlp(), 1), batches, SGD())


class Witness:
    """A gradient of noise, drawn from the seeds and the step that it is given."""

    def __init__(self) -> None:
        self.seen: list[tuple[list[int], int]] = []

    def __call__(
        self, w: Tensor, buffers: Rows, batch: Batch, seeds: Tensor, step: Tensor
    ) -> Gradients:
        assert (seeds.dtype, seeds.shape) == (torch.int64, w.shape[:1])
        assert (step.dtype, step.shape) == (torch.int64, ())
        self.seen.append((seeds.tolist(), int(step)))
        noise = normals(seeds, step, w.shape[1], dtype=w.dtype)
        zero = w.new_zeros(len(w), 1)
        return Gradients(w + noise, zero, zero, buffers)


@pytest.mark.parametrize("form", FORMS)
def test_a_gradient_function_sees_every_rows_seed_and_the_number_of_its_step(form: Any) -> None:
    witness = Witness()
    trainer = RowTrainer(None, SAMPLES, form=form, gradient=witness)
    shards = [torch.arange(10), torch.arange(25), torch.arange(5)]
    batches = [trainer.draw_batches(Epochs(), shard, 1, 5, seeded(0)) for shard in shards]
    train(trainer, torch.zeros(3, 4, dtype=torch.float64), batches, SGD(), seeds=[7, 8, 9])
    # rows that are done have left
    assert witness.seen == [([8, 7, 9], 0), ([8, 7], 1), ([8], 2), ([8], 3), ([8], 4)]


@pytest.mark.parametrize("form", FORMS)
def test_noise_in_a_row_depends_on_its_seed_alone(form: Any) -> None:
    def trained(rows: list[int], seeds: list[int]) -> Tensor:
        trainer = RowTrainer(None, SAMPLES, form=form, gradient=Witness())
        w = torch.ones(len(rows), 6, dtype=torch.float64)
        batches = batches_of(trainer)
        return train(trainer, w, [batches[k] for k in rows], SGD(lr=0.1), seeds=seeds).w

    together = trained([0, 1, 2], SEEDS[:3])
    for k in range(3):
        assert torch.equal(trained([k], [SEEDS[k]])[0], together[k])
    assert not torch.equal(trained([0], [SEEDS[1]])[0], together[0])
    looped = RowTrainer(None, SAMPLES, gradient=Witness())
    w = torch.ones(3, 6, dtype=torch.float64)
    in_a_loop = train(looped, w, batches_of(looped)[:3], SGD(lr=0.1), seeds=SEEDS[:3]).w
    torch.testing.assert_close(together, in_a_loop, rtol=1e-12, atol=1e-12)


def test_a_gradient_function_of_ones_own_wants_seeds() -> None:
    """Without them its noise would be the same in all rows."""
    trainer = RowTrainer(None, SAMPLES, gradient=Witness())
    w = torch.zeros(2, 4, dtype=torch.float64)
    batches = [ListedBatches([torch.arange(2)])] * 2
    expected = "seeds: expected one per row, since a gradient function of your own may draw"
    with pytest.raises(ValueError, match=expected):
        train(trainer, w, batches, SGD())
    with pytest.raises(ValueError, match="since a gradient function of your own may draw"):
        trainer.full_gradient(w, [torch.arange(2)] * 2)


@pytest.mark.parametrize("form", FORMS)
def test_rows_batches_and_seeds_must_be_as_many(form: Any) -> None:
    trainer = RowTrainer(mlp(), SAMPLES, form=form)
    w = rows_of(mlp(), 2)
    batches = [trainer.draw_batches(Epochs(), torch.arange(4), 1, 2, seeded(0))] * 2
    with pytest.raises(ValueError, match="batches: expected 2, those of every row, got 1"):
        train(trainer, w, batches[:1], SGD())
    with pytest.raises(ValueError, match="seeds: expected 2, one per row, got 3"):
        train(trainer, w, batches, SGD(), seeds=[1, 2, 3])
    by_list = train(trainer, w, batches, SGD(), seeds=[1, 2])
    by_tensor = train(trainer, w, batches, SGD(), seeds=torch.tensor([1, 2]))
    assert torch.equal(by_list.w, by_tensor.w)


def test_a_trainer_needs_a_module_or_a_gradient_function() -> None:
    with pytest.raises(ValueError, match="expected a module, or a gradient function"):
        RowTrainer(None, SAMPLES)
    with pytest.raises(ValueError, match="a gradient function and no module"):
        _ = RowTrainer(None, SAMPLES, gradient=Witness()).module


EMPTY = torch.arange(0)
WITH_EMPTY = [
    [torch.arange(4), EMPTY, torch.arange(4, 8), EMPTY],
    [EMPTY, EMPTY, torch.arange(3), EMPTY],
    [EMPTY, EMPTY],
]


def in_form_of(trainer: RowTrainer, lists: Sequence[Sequence[Tensor]]) -> list[Batches]:
    """These very batches, in the form that the trainer wants."""

    class Listed(Sampling):
        def batches(self, shard: Tensor, *_: Any) -> Sequence[Tensor]:
            return lists[int(shard)]

    rows = range(len(lists))
    return [trainer.draw_batches(Listed(), torch.tensor(k), 1, None, seeded(0)) for k in rows]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("module", [mlp(), mlp(nn.BatchNorm1d(8))], ids=["plain", "batch norm"])
def test_an_empty_batch_is_a_step_with_a_gradient_of_zero(form: Any, module: nn.Module) -> None:
    trainer = RowTrainer(module, SAMPLES, form=form)
    w = rows_of(module, 3)
    buffers = {}
    for name, value in trainer.layout.copy_buffers(module).items():
        buffers[name] = torch.stack([value] * 3)
    batches = in_form_of(trainer, WITH_EMPTY)
    trained = train(trainer, w, batches, Momentum(lr=0.1), buffers=buffers)
    for k, row_batches in enumerate(WITH_EMPTY):
        expected_w, expected_buffers = by_hand(trainer.layout.unflatten(w[k]), module, row_batches)
        torch.testing.assert_close(trained.w[k], expected_w, rtol=1e-9, atol=1e-11)
        for name, value in expected_buffers.items():
            torch.testing.assert_close(trained.buffers[name][k], value)
    assert trained.work.steps.flatten().tolist() == [4, 4, 2]
    assert trained.seen.flatten().tolist() == [8, 3, 0]
    assert torch.equal(trained.w[2], w[2])
    assert trained.loss.isfinite().all()
    assert trained.loss[2].item() == trained.hits[2].item() == 0


def by_hand(parameters: Rows, module: nn.Module, batches: Sequence[Tensor]) -> tuple[Tensor, Rows]:
    """Momentum by torch, its gradient zero where a batch is empty."""
    twin = copy.deepcopy(module).train()
    twin.load_state_dict(parameters, strict=False)
    optimiser = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    for batch in batches:
        optimiser.zero_grad(set_to_none=False)
        if len(batch):
            functional.cross_entropy(twin(X[batch]), Y[batch]).backward()
        else:
            for parameter in twin.parameters():
                parameter.grad = torch.zeros_like(parameter)
        optimiser.step()
    row = torch.cat([parameter.detach().reshape(-1) for parameter in twin.parameters()])
    return row, dict(twin.named_buffers())


def weighted(output: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy in which the classes weigh differently."""
    weights = torch.tensor([1.0, 5.0, 0.1], dtype=output.dtype, device=output.device)
    return functional.cross_entropy(output, y, weight=weights, reduction="none")


@pytest.mark.parametrize("form", FORMS)
def test_a_loss_of_ones_own_is_what_rows_are_trained_and_tested_for(form: Any) -> None:
    trainer = RowTrainer(mlp(), SAMPLES, form=form, loss=weighted)
    batch = torch.arange(13)
    w = rows_of(mlp(), 2)
    trained = train(trainer, w, in_form_of(trainer, [[batch], [batch[:4]]]), SGD(lr=1.0))
    for k, index in enumerate((batch, batch[:4])):
        module = mlp()
        trainer.layout.load(module, w[k])
        loss = weighted(module(X[index]), Y[index]).mean()
        slopes = torch.autograd.grad(loss, list(module.parameters()))
        g = torch.cat([slope.reshape(-1) for slope in slopes])
        torch.testing.assert_close(trained.w[k], w[k] - g)
        torch.testing.assert_close(trained.loss[k, 0], loss.detach() * len(index))
        (answers,) = trainer.test([(w[k], {})], trainer.samples)
        torch.testing.assert_close(answers.losses, weighted(module(X), Y).detach())


@pytest.mark.parametrize("form", FORMS)
def test_a_loss_that_is_no_number_per_sample_is_refused(form: Any) -> None:
    trainer = RowTrainer(mlp(), SAMPLES, form=form, loss=functional.cross_entropy)
    batches = in_form_of(trainer, [[torch.arange(4)]])
    expected = r"a loss must return one number per sample, \(4,\); it returned \(\)"
    with pytest.raises(StudyError, match=expected):
        train(trainer, rows_of(mlp(), 1), batches, SGD())


@pytest.mark.parametrize("form", FORMS)
def test_the_full_gradient_is_that_of_all_samples(
    form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.training.row_trainer.FULL", 7)
    trainer = RowTrainer(mlp(), SAMPLES, form=form)
    w = rows_of(mlp(), 4)
    g = trainer.full_gradient(w, SHARDS)
    for k, shard in enumerate(SHARDS[:3]):
        batch = Batch(X[shard][None], Y[shard][None], (len(shard),))
        alone = row_gradients(mlp())(w[k : k + 1], {}, batch, torch.zeros(1), torch.zeros(()))
        torch.testing.assert_close(g[k : k + 1], alone.g)
    assert not g[3].any()
    batches = batches_of(trainer)
    computed = train(trainer, w, batches, SGD(), sent={"x": w}, full_of=SHARDS)
    assert computed.work.full_gradient is not None
    torch.testing.assert_close(computed.work.full_gradient, g)
    passed_on = train(trainer, w, batches, SGD(), full_gradient=g)
    assert passed_on.work.full_gradient is not None
    assert torch.equal(passed_on.work.full_gradient, g)


def dropping() -> nn.Module:
    return mlp(nn.Dropout(0.5))


@pytest.mark.parametrize("form", FORMS)
def test_a_model_that_draws_is_trained_row_by_row_each_from_its_seed(form: Any) -> None:
    trainer = RowTrainer(dropping(), SAMPLES, form=form)
    assert trainer.draws
    assert trainer.at_once == 1
    w = rows_of(dropping(), 2)
    batches = batches_of(trainer)[:2]
    before = torch.random.get_rng_state()
    together = train(trainer, w, batches, SGD(lr=0.1), seeds=SEEDS[:2])
    assert torch.equal(torch.random.get_rng_state(), before)
    for k in range(2):
        row = slice(k, k + 1)
        alone = train(trainer, w[row], batches[row], SGD(lr=0.1), seeds=SEEDS[row])
        assert torch.equal(alone.w[0], together.w[k])
    with_other_seeds = train(trainer, w, batches, SGD(lr=0.1), seeds=[1, 2])
    assert not torch.equal(with_other_seeds.w, together.w)


def test_dropout_draws_what_torch_draws_after_that_seed() -> None:
    trainer = RowTrainer(dropping(), SAMPLES)
    module = dropping().train()
    w = rows_of(dropping(), 1)
    batches = [torch.arange(10), torch.arange(10, 20)]
    listed = [ListedBatches(batches)]
    shard = torch.arange(20)
    trained = train(trainer, w, listed, SGD(lr=0.1), sent={"x": w}, full_of=[shard], seeds=[42])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        functional.cross_entropy(module(X[shard]), Y[shard])  # the full gradient draws first
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
        for batch in batches:
            optimiser.zero_grad()
            functional.cross_entropy(module(X[batch]), Y[batch]).backward()
            optimiser.step()
    torch.testing.assert_close(trained.w, rows_of(module, 1))


@pytest.mark.parametrize("form", FORMS)
def test_models_are_tested_on_all_samples_or_on_their_own(form: Any) -> None:
    trainer = RowTrainer(mlp(), SAMPLES, form=form)
    held_out = trainer.prepared(Samples(X[:9], Y[:9]))
    w = rows_of(mlp(), 3)
    models = [(row, {}) for row in w]
    indices = [torch.tensor([3, 1]), torch.tensor([8]), torch.arange(0)]
    on_all = trainer.test(models, held_out)
    on_some = trainer.test(models, held_out, indices)
    module = mlp()
    for k, row_index in enumerate(indices):
        trainer.layout.load(module, w[k])
        for index, figures in ((torch.arange(9), on_all[k]), (row_index, on_some[k])):
            torch.testing.assert_close(figures, evaluate(module, X[index], Y[index]))
        torch.testing.assert_close(trainer.outputs(w[k], {}, X), module(X).detach())
    assert trainer.test([], held_out) == []
    assert [len(figures.losses) for figures in trainer.test(models, held_out, [EMPTY] * 3)] == [
        0,
        0,
        0,
    ]


def test_the_module_that_was_given_is_left_alone() -> None:
    module = mlp()
    before = rows_of(module, 1)
    trainer = RowTrainer(module, SAMPLES)
    zeros = torch.zeros_like(before[0])
    trainer.test([(zeros, {})], SAMPLES)
    trainer.outputs(zeros, {}, X)
    assert torch.equal(rows_of(module, 1), before)
    assert module.training


@pytest.mark.parametrize("form", FORMS)
def test_the_same_model_trains_on_other_samples(form: Any) -> None:
    trainer = RowTrainer(mlp(), SAMPLES, form=form)
    targets = torch.rand(20, 3, dtype=torch.float64, generator=seeded(1)).softmax(1)
    public_samples = Samples(X[:20] + 1, targets)
    public = trainer.on(public_samples)
    w = rows_of(mlp(), 1)
    batches = public.draw_batches(Epochs(), torch.arange(20), 1, 8, seeded(0))
    trained = train(public, w, [batches], SGD(lr=0.1))
    looped = train(RowTrainer(mlp(), public_samples), w, [batches], SGD(lr=0.1))
    torch.testing.assert_close(trained.w, looped.w)
    assert public.gradient is trainer.gradient
    assert len(trainer.samples.y) == 50
    models = [(w[0], {})]
    on_public = public.test(models, public.prepared(SAMPLES))
    torch.testing.assert_close(on_public, trainer.test(models, trainer.samples))


def test_rows_at_once_follow_from_the_form() -> None:
    assert RowTrainer(mlp(), SAMPLES).at_once == 1
    assert RowTrainer(mlp(), SAMPLES, at_once=9).at_once == 9
    assert RowTrainer(mlp(), SAMPLES, form="vmap").at_once > 1000
    assert RowTrainer(dropping(), SAMPLES, at_once=9).at_once == 1


@pytest.mark.parametrize("form", FORMS)
def test_bytes_are_the_pictures_that_they_came_from(form: Any) -> None:
    pixels = torch.randint(0, 256, (30, 6), generator=seeded(3), dtype=torch.uint8)
    floats = pixels.float() / torch.tensor(255.0)
    module = mlp().float()
    w = rows_of(module, 1)
    rows = []
    for samples in (Samples(floats, Y[:30]), Samples(pixels, Y[:30], 255.0)):
        trainer = RowTrainer(module, samples, form=form)
        assert trainer.samples.x.dtype == (torch.uint8 if form == "captured" else torch.float32)
        batches = batches_of(trainer, [torch.arange(30)])
        rows.append(train(trainer, w, batches, SGD(lr=0.1)).w)
    assert torch.equal(*rows)


def train_row_in(names: set[str]) -> Callable[[RowTrainer, int], Tensor]:
    """Trains one of six rows, and notes the name of the thread."""
    w = rows_of(mlp(), 6)
    batches = [ListedBatches(torch.arange(50).split(5))]

    def train_row(trainer: RowTrainer, k: int) -> Tensor:
        names.add(threading.current_thread().name)
        return train(trainer, w[k : k + 1], batches, Adam(), seeds=[k]).w

    return train_row


def test_tasks_that_share_nothing_are_spread_over_threads_in_order() -> None:
    names, names_of_threads = set[str](), set[str]()
    trainer = RowTrainer(mlp(), SAMPLES)
    threaded = RowTrainer(mlp(), SAMPLES, side_by_side=3)
    before = torch.random.get_rng_state()
    in_turn = list(trainer.spread(train_row_in(names), range(6), apart=True))
    spread = list(threaded.spread(train_row_in(names_of_threads), range(6), apart=True))
    assert len(in_turn) == len(spread) == 6
    assert all(map(torch.equal, in_turn, spread))
    assert names == {threading.current_thread().name}
    assert threading.current_thread().name not in names_of_threads
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("options", "apart"),
    [
        ({"side_by_side": 3}, False),
        ({"side_by_side": 3, "form": "vmap"}, True),
        ({"side_by_side": 3, "gradient": Witness()}, True),
        ({"side_by_side": 1}, True),
    ],
)
def test_other_tasks_are_done_one_after_another_by_the_trainer_itself(
    options: Any, apart: bool
) -> None:
    trainer = RowTrainer(mlp(), SAMPLES, **options)
    spread = list(trainer.spread(lambda worker, k: (worker, k), range(4), apart=apart))
    assert spread == [(trainer, k) for k in range(4)]


def test_models_that_draw_are_never_spread() -> None:
    trainer = RowTrainer(dropping(), SAMPLES, side_by_side=3)
    assert all(trainer.spread(lambda worker, _: worker is trainer, range(4), apart=True))
