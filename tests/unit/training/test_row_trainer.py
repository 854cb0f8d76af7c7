"""A row trainer in every form: what rows become, what gradient functions see, and what empty batches do."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
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
X, Y = (
    torch.randn(50, 6, generator=DRAW, dtype=torch.float64),
    torch.randint(0, 3, (50,), generator=DRAW),
)
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


def plans(
    trainer: RowTrainer, shards: Sequence[Tensor] = SHARDS, sampling: Sampling | None = None
) -> list[Batches]:
    drawn = []
    for k, shard in enumerate(shards):
        order = torch.Generator().manual_seed(k)
        drawn.append(trainer.draw_batches(sampling or Epochs(), shard, k + 1, 5, order))
    return drawn


def train(
    trainer: RowTrainer, w: Tensor, batches: Sequence[Batches], optimiser: Optimiser, **given: Any
) -> Trained:
    rule: Any = columns([optimiser] * len(w), type(optimiser), w)
    return trainer.train(w, batches, optimiser=rule, **given)


def assert_alike(one: Trained, other: Trained) -> None:
    torch.testing.assert_close(one.w, other.w, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(one.loss, other.loss, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(one.hits.double(), other.hits.double())
    assert torch.equal(one.seen, other.seen)
    assert torch.equal(one.work.steps, other.work.steps)


@pytest.mark.parametrize("form", FORMS[1:])
@pytest.mark.parametrize("sampling", [Epochs(), Poisson()], ids=lambda sampling: sampling.name)
def test_rows_are_trained_alike_in_every_form(form: Any, sampling: Sampling) -> None:
    w = rows_of(mlp(), len(SHARDS))
    rule: Any = columns([FedProx(mu=0.1 * k) for k in range(len(w))], FedProx, w)
    results = []
    for trainer in (RowTrainer(mlp(), SAMPLES), RowTrainer(mlp(), SAMPLES, form=form)):
        batches = plans(trainer, sampling=sampling)
        results.append(train(trainer, w, batches, Momentum(lr=0.05), rule=rule, sent={"x": w}))
    assert_alike(*results)
    assert results[0].work.steps.flatten().tolist() == [8, 4, 9, 0]


def test_a_plan_is_cut_short_by_its_first_batches() -> None:
    for form in FORMS:
        trainer = RowTrainer(mlp(), SAMPLES, form=form)
        batches = trainer.draw_batches(
            Epochs(), torch.arange(20), 2, 5, torch.Generator().manual_seed(0)
        )
        assert len(batches) == 8
        done = train(trainer, rows_of(mlp(), 1), [batches.first(3)], SGD())
        assert done.work.steps.item() == 3


def test_batches_of_another_form_are_refused() -> None:
    looped, captured = (RowTrainer(mlp(), SAMPLES, form=form) for form in ("loop", "captured"))
    for trainer, other in ((looped, captured), (captured, looped)):
        with pytest.raises(
            ValueError, match=r"batches: expected those that this trainer's draw_batches\(\) makes"
        ):
            train(trainer, rows_of(mlp(), 1), plans(other, SHARDS[:1]), SGD())


class Witness:
    """A gradient of noise, drawn from the seeds and the step that it is given."""

    def __init__(self) -> None:
        self.seen: list[tuple[list[int], int]] = []

    def __call__(
        self, w: Tensor, buffers: Rows, batch: Batch, seeds: Tensor, step: Tensor
    ) -> Gradients:
        assert (seeds.dtype, seeds.shape, step.dtype, step.shape) == (
            torch.int64,
            w.shape[:1],
            torch.int64,
            (),
        )
        self.seen.append((seeds.tolist(), int(step)))
        noise = normals(seeds, step, w.shape[1], dtype=w.dtype)
        zero = w.new_zeros(len(w), 1)
        return Gradients(w + noise, zero, zero, buffers)


@pytest.mark.parametrize("form", FORMS)
def test_a_gradient_function_sees_every_rows_seed_and_the_number_of_its_step(form: Any) -> None:
    witness = Witness()
    trainer = RowTrainer(None, SAMPLES, form=form, gradient=witness)
    shards = [torch.arange(10), torch.arange(25), torch.arange(5)]
    drawn = [trainer.draw_batches(Epochs(), shard, 1, 5, torch.Generator()) for shard in shards]
    train(trainer, torch.zeros(3, 4, dtype=torch.float64), drawn, SGD(), seeds=[7, 8, 9])
    assert [step for _, step in witness.seen] == [0, 1, 2, 3, 4]
    assert [seeds for seeds, _ in witness.seen] == [
        [8, 7, 9],
        [8, 7],
        [8],
        [8],
        [8],
    ]  # rows that are done have left


@pytest.mark.parametrize("form", FORMS)
def test_noise_in_a_row_depends_on_its_seed_alone(form: Any) -> None:
    def trained(rows: list[int], seeds: list[int]) -> Tensor:
        trainer = RowTrainer(None, SAMPLES, form=form, gradient=Witness())
        w = torch.ones(len(rows), 6, dtype=torch.float64)
        batches = plans(trainer)
        return train(trainer, w, [batches[k] for k in rows], SGD(lr=0.1), seeds=seeds).w

    together = trained([0, 1, 2], SEEDS[:3])
    for k in range(3):
        assert torch.equal(trained([k], [SEEDS[k]])[0], together[k])
    assert not torch.equal(trained([0], [SEEDS[1]])[0], together[0])
    looped = RowTrainer(None, SAMPLES, gradient=Witness())
    w = torch.ones(3, 6, dtype=torch.float64)
    alike = train(looped, w, plans(looped)[:3], SGD(lr=0.1), seeds=SEEDS[:3]).w
    torch.testing.assert_close(together, alike, rtol=1e-12, atol=1e-12)


def test_a_gradient_function_of_ones_own_wants_seeds_or_its_noise_would_be_the_same_in_all_rows() -> (
    None
):
    trainer = RowTrainer(None, SAMPLES, gradient=Witness())
    w, batches = torch.zeros(2, 4, dtype=torch.float64), [ListedBatches([torch.arange(2)])] * 2
    with pytest.raises(
        ValueError,
        match="seeds: expected one per row, since a gradient function of your own may draw",
    ):
        train(trainer, w, batches, SGD())
    with pytest.raises(ValueError, match="since a gradient function of your own may draw"):
        trainer.full_gradient(w, [torch.arange(2)] * 2)


@pytest.mark.parametrize("form", FORMS)
def test_rows_batches_and_seeds_must_be_as_many(form: Any) -> None:
    trainer = RowTrainer(mlp(), SAMPLES, form=form)
    w = rows_of(mlp(), 2)
    batches = [
        trainer.draw_batches(Epochs(), torch.arange(4), 1, 2, torch.Generator()) for _ in range(2)
    ]
    with pytest.raises(ValueError, match="batches: expected 2, those of every row, got 1"):
        train(trainer, w, batches[:1], SGD())
    with pytest.raises(ValueError, match="seeds: expected 2, one per row, got 3"):
        train(trainer, w, batches, SGD(), seeds=[1, 2, 3])
    by_list, by_tensor = (
        train(trainer, w, batches, SGD(), seeds=seeds) for seeds in ([1, 2], torch.tensor([1, 2]))
    )
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


def as_planned(trainer: RowTrainer, lists: Sequence[Sequence[Tensor]]) -> list[Batches]:
    """These very batches, in the trainer's own form."""

    class Given(Sampling):
        def batches(self, shard: Tensor, *_: Any) -> Sequence[Tensor]:
            return lists[int(shard)]

    return [
        trainer.draw_batches(Given(), torch.tensor(k), 1, None, torch.Generator())
        for k in range(len(lists))
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("module", [mlp(), mlp(nn.BatchNorm1d(8))], ids=["plain", "batch norm"])
def test_an_empty_batch_is_a_step_with_a_gradient_of_zero(form: Any, module: nn.Module) -> None:
    trainer = RowTrainer(module, SAMPLES, form=form)
    w = rows_of(module, 3)
    buffers = {
        name: torch.stack([value] * 3)
        for name, value in trainer.layout.copy_buffers(module).items()
    }
    done = train(trainer, w, as_planned(trainer, WITH_EMPTY), Momentum(lr=0.1), buffers=buffers)
    for k, batches in enumerate(WITH_EMPTY):
        wanted = by_hand(trainer.layout.unflatten(w[k]), module, batches)
        torch.testing.assert_close(done.w[k], wanted[0], rtol=1e-9, atol=1e-11)
        for name, value in wanted[1].items():
            torch.testing.assert_close(done.buffers[name][k], value)
    assert done.work.steps.flatten().tolist() == [4, 4, 2]
    assert done.seen.flatten().tolist() == [8, 3, 0]
    assert torch.equal(done.w[2], w[2])
    assert done.loss.isfinite().all()
    assert done.loss[2].item() == done.hits[2].item() == 0


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
    done = train(trainer, w, as_planned(trainer, [[batch], [batch[:4]]]), SGD(lr=1.0))
    for k, index in enumerate((batch, batch[:4])):
        module = mlp()
        trainer.layout.load(module, w[k])
        loss = weighted(module(X[index]), Y[index]).mean()
        parts = torch.autograd.grad(loss, list(module.parameters()))
        g = torch.cat([part.reshape(-1) for part in parts])
        torch.testing.assert_close(done.w[k], w[k] - g)
        torch.testing.assert_close(done.loss[k, 0], loss.detach() * len(index))
        tested = trainer.test([(w[k], {})], trainer.samples)[0]
        torch.testing.assert_close(tested[0], weighted(module(X), Y).detach())


@pytest.mark.parametrize("form", FORMS)
def test_a_loss_that_is_no_number_per_sample_is_refused(form: Any) -> None:
    trainer = RowTrainer(mlp(), SAMPLES, form=form, loss=functional.cross_entropy)
    with pytest.raises(
        StudyError, match=r"a loss must return one number per sample, \(4,\); it returned \(\)"
    ):
        train(trainer, rows_of(mlp(), 1), as_planned(trainer, [[torch.arange(4)]]), SGD())


@pytest.mark.parametrize("form", FORMS)
def test_the_full_gradient_is_that_of_all_samples(
    form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.training.row_trainer.FULL", 7)
    trainer, w = RowTrainer(mlp(), SAMPLES, form=form), rows_of(mlp(), 4)
    g = trainer.full_gradient(w, SHARDS)
    for k, shard in enumerate(SHARDS[:3]):
        batch = Batch(X[shard][None], Y[shard][None], (len(shard),))
        alone = row_gradients(mlp())(w[k : k + 1], {}, batch, torch.zeros(1), torch.zeros(()))
        torch.testing.assert_close(g[k : k + 1], alone.g)
    assert not g[3].any()
    done = train(trainer, w, plans(trainer), SGD(), sent={"x": w}, full_of=SHARDS)
    assert done.work.full_gradient is not None
    torch.testing.assert_close(done.work.full_gradient, g)
    given = train(trainer, w, plans(trainer), SGD(), full_gradient=g)
    assert given.work.full_gradient is not None
    assert torch.equal(given.work.full_gradient, g)


def dropping() -> nn.Module:
    return mlp(nn.Dropout(0.5))


@pytest.mark.parametrize("form", FORMS)
def test_a_model_that_draws_is_trained_row_by_row_each_from_its_seed(form: Any) -> None:
    trainer = RowTrainer(dropping(), SAMPLES, form=form)
    assert trainer.draws
    assert trainer.at_once == 1
    w = rows_of(dropping(), 2)
    before = torch.random.get_rng_state()
    together = train(trainer, w, plans(trainer)[:2], SGD(lr=0.1), seeds=SEEDS[:2])
    assert torch.equal(torch.random.get_rng_state(), before)
    for k in range(2):
        alone = train(
            trainer, w[k : k + 1], plans(trainer)[k : k + 1], SGD(lr=0.1), seeds=SEEDS[k : k + 1]
        )
        assert torch.equal(alone.w[0], together.w[k])
    other = train(trainer, w, plans(trainer)[:2], SGD(lr=0.1), seeds=[1, 2])
    assert not torch.equal(other.w, together.w)


def test_dropout_draws_what_torch_draws_after_that_seed() -> None:
    trainer, module = RowTrainer(dropping(), SAMPLES), dropping().train()
    w = rows_of(dropping(), 1)
    batches = [torch.arange(10), torch.arange(10, 20)]
    shard = torch.arange(20)
    done = train(
        trainer,
        w,
        [ListedBatches(batches)],
        SGD(lr=0.1),
        sent={"x": w},
        full_of=[shard],
        seeds=[42],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        functional.cross_entropy(module(X[shard]), Y[shard])  # the full gradient draws first
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
        for batch in batches:
            optimiser.zero_grad()
            functional.cross_entropy(module(X[batch]), Y[batch]).backward()
            optimiser.step()
    torch.testing.assert_close(done.w, rows_of(module, 1))


@pytest.mark.parametrize("form", FORMS)
def test_models_are_tested_on_all_samples_or_on_their_own(form: Any) -> None:
    trainer = RowTrainer(mlp(), SAMPLES, form=form)
    held_out = trainer.prepared(Samples(X[:9], Y[:9]))
    w = rows_of(mlp(), 3)
    models = [(row, {}) for row in w]
    places = [torch.tensor([3, 1]), torch.tensor([8]), torch.arange(0)]
    everything, chosen = trainer.test(models, held_out), trainer.test(models, held_out, places)
    module = mlp()
    for k, place in enumerate(places):
        trainer.layout.load(module, w[k])
        for index, figures in ((torch.arange(9), everything[k]), (place, chosen[k])):
            loss, hit = evaluate(module, X[index], Y[index])
            torch.testing.assert_close(figures[0], loss)
            assert figures[1].tolist() == hit.tolist()
        torch.testing.assert_close(trainer.outputs(w[k], {}, X), module(X).detach())
    assert trainer.test([], held_out) == []
    assert [len(loss) for loss, _ in trainer.test(models, held_out, [EMPTY] * 3)] == [0, 0, 0]


def test_the_module_that_was_given_is_left_alone() -> None:
    module = mlp()
    kept = rows_of(module, 1)
    trainer = RowTrainer(module, SAMPLES)
    trainer.test([(torch.zeros_like(kept[0]), {})], SAMPLES)
    trainer.outputs(torch.zeros_like(kept[0]), {}, X)
    assert torch.equal(rows_of(module, 1), kept)
    assert module.training


@pytest.mark.parametrize("form", FORMS)
def test_the_same_model_trains_on_other_samples(form: Any) -> None:
    trainer = RowTrainer(mlp(), SAMPLES, form=form)
    soft = Samples(X[:20] + 1, torch.rand(20, 3, dtype=torch.float64).softmax(1))
    public = trainer.on(soft)
    w = rows_of(mlp(), 1)
    batches = public.draw_batches(
        Epochs(), torch.arange(20), 1, 8, torch.Generator().manual_seed(0)
    )
    done = train(public, w, [batches], SGD(lr=0.1))
    alone = train(RowTrainer(mlp(), soft), w, [batches], SGD(lr=0.1))
    torch.testing.assert_close(done.w, alone.w)
    assert public.gradient is trainer.gradient
    assert len(trainer.samples.y) == 50
    figures = public.test([(w[0], {})], public.prepared(SAMPLES))[0]
    torch.testing.assert_close(figures[0], trainer.test([(w[0], {})], trainer.samples)[0][0])


def test_rows_at_once_follow_from_the_form() -> None:
    assert RowTrainer(mlp(), SAMPLES).at_once == 1
    assert RowTrainer(mlp(), SAMPLES, at_once=9).at_once == 9
    assert RowTrainer(mlp(), SAMPLES, form="vmap").at_once > 1000
    assert RowTrainer(dropping(), SAMPLES, at_once=9).at_once == 1


@pytest.mark.parametrize("form", FORMS)
def test_bytes_are_the_pictures_that_they_came_from(form: Any) -> None:
    pixels = torch.randint(
        0, 256, (30, 6), generator=torch.Generator().manual_seed(3), dtype=torch.uint8
    )
    floats = pixels.float() / torch.tensor(255.0)
    module = mlp().float()
    w = rows_of(module, 1)
    rows = []
    for samples in (Samples(floats, Y[:30]), Samples(pixels, Y[:30], 255.0)):
        trainer = RowTrainer(module, samples, form=form)
        assert trainer.samples.x.dtype == (torch.uint8 if form == "captured" else torch.float32)
        rows.append(train(trainer, w, plans(trainer, [torch.arange(30)]), SGD(lr=0.1)).w)
    assert torch.equal(*rows)


def training_in(names: set[str]) -> Any:
    rows = rows_of(mlp(), 6)

    def work(trainer: RowTrainer, k: int) -> Tensor:
        names.add(threading.current_thread().name)
        return train(
            trainer, rows[k : k + 1], [ListedBatches(torch.arange(50).split(5))], Adam(), seeds=[k]
        ).w

    return work


def test_work_that_shares_nothing_is_spread_over_threads_in_order() -> None:
    here, there = set[str](), set[str]()
    one = RowTrainer(mlp(), SAMPLES)
    several = RowTrainer(mlp(), SAMPLES, side_by_side=3)
    works = training_in(here), training_in(there)
    state = torch.random.get_rng_state()
    wanted = list(one.spread(works[0], range(6), apart=True))
    spread = list(several.spread(works[1], range(6), apart=True))
    assert all(torch.equal(a, b) for a, b in zip(wanted, spread, strict=True))
    assert here == {threading.current_thread().name}
    assert threading.current_thread().name not in there
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("options", "apart"),
    [
        ({"side_by_side": 3}, False),
        ({"side_by_side": 3, "form": "vmap"}, True),
        ({"side_by_side": 3, "gradient": Witness()}, True),
        ({"side_by_side": 1}, True),
    ],
)
def test_other_work_is_done_one_after_another_by_the_trainer_itself(
    options: Any, apart: bool
) -> None:
    trainer = RowTrainer(mlp(), SAMPLES, **options)
    assert list(trainer.spread(lambda mine, k: (mine is trainer, k), range(4), apart=apart)) == [
        (True, k) for k in range(4)
    ]


def test_models_that_draw_are_never_spread() -> None:
    trainer = RowTrainer(dropping(), SAMPLES, side_by_side=3)
    assert all(trainer.spread(lambda mine, _: mine is trainer, range(4), apart=True))
