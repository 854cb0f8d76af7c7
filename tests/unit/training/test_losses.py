"""Every loss against PyTorch's own, and what each refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import own_losses
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor, nn
from torch.nn import functional

from tacit.core.errors import StudyError
from tacit.core.rows import columns
from tacit.data.dataset import Dataset
from tacit.training.batches import Samples
from tacit.training.losses import USUAL, Loss, Outcomes, check_loss, fit_loss, hits
from tacit.training.optimisers import SGD
from tacit.training.row_trainer import RowTrainer
from tacit.training.sampling import Epochs
from tacit.training.trainer import Trained

DRAW = torch.Generator().manual_seed(0)
X = torch.randn(40, 5, generator=DRAW, dtype=torch.float64)
Y = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), 40, replacement=True, generator=DRAW)
NUMBERS = torch.randn(40, generator=DRAW, dtype=torch.float64)
COUNTS = torch.poisson(torch.full((40,), 3.0, dtype=torch.float64), generator=DRAW)
OUTPUT = torch.randn(40, 3, generator=DRAW, dtype=torch.float64)
LABELS = ("alive", "dead", "gone")
WEIGHTS = (0.5, 2.0, 7.0)
FORMS: list[Any] = ["loop", "vmap", "captured"]


def classes(y: Tensor = Y, labels: tuple[str, ...] = LABELS) -> Dataset:
    return Dataset("people", X[: len(y)], y, X[:9], y[:9], labels)


def numbers(values: Tensor) -> Dataset:
    """A regression whose outcomes were standardised."""
    centre = values.mean().item()
    spread = values.std(correction=0).item()
    y = (values - centre) / spread
    scale = {"target_centre": centre, "target_spread": spread}
    return Dataset("days", X, y, X[:9], y[:9], task="regression", **scale)


def fitted(spec: Any, dataset: Dataset) -> Loss:
    return Loss.build(spec).fitted(Outcomes.of(dataset))


def one_step(loss: Loss, dataset: Dataset, form: Any) -> tuple[nn.Module, Trained]:
    """A model, and what one full-batch step of plain SGD makes of it."""
    torch.manual_seed(1)
    module = nn.Linear(5, dataset.outputs).double()
    trainer = RowTrainer(module, Samples(dataset.x, dataset.y), form=form, loss=loss)
    w = trainer.layout.flatten(module)[None]
    everything = torch.arange(len(dataset.y))
    batches = trainer.draw_batches(Epochs(), everything, 1, None, torch.Generator())
    optimiser: Any = columns([SGD(lr=0.3)], SGD, w)
    return module, trainer.train(w, [batches], optimiser=optimiser)


def own_units(dataset: Dataset) -> Tensor:
    return dataset.y * dataset.target_spread + dataset.target_centre


def torch_loss(name: str, output: Tensor, dataset: Dataset) -> Tensor:
    """Each sample's loss, as torch has it."""
    y = dataset.y
    if name == "weights":
        weight = torch.tensor(WEIGHTS, dtype=torch.float64)
        return functional.cross_entropy(output, y, weight=weight, reduction="none")
    if name == "smoothing":
        return functional.cross_entropy(output, y, label_smoothing=0.2, reduction="none")
    if name == "huber":  # 1.5 in the target's own units
        delta = 1.5 / dataset.target_spread
        return functional.huber_loss(output[:, 0], y, delta=delta, reduction="none")
    if name == "absolute_error":
        return functional.l1_loss(output[:, 0], y, reduction="none")
    counts = own_units(dataset)
    return functional.poisson_nll_loss(output[:, 0], counts, log_input=True, reduction="none")


CASES: dict[str, tuple[Any, Dataset]] = {
    "weights": ({"name": "cross_entropy", "weights": list(WEIGHTS)}, classes()),
    "smoothing": ({"name": "cross_entropy", "smoothing": 0.2}, classes()),
    "huber": ({"name": "huber", "delta": 1.5}, numbers(10 + 4 * NUMBERS)),
    "absolute_error": ("absolute_error", numbers(NUMBERS)),
    "poisson": ("poisson", numbers(COUNTS)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CASES)
def test_a_full_batch_step_is_that_of_pytorch(name: str, form: Any) -> None:
    spec, dataset = CASES[name]
    module, trained = one_step(fitted(spec, dataset), dataset, form)
    loss = torch_loss(name, module(dataset.x), dataset).mean()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.3)
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    expected = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
    torch.testing.assert_close(trained.w[0], expected)
    torch.testing.assert_close(trained.loss[0, 0] / 40, loss.detach())


def test_the_mean_is_over_samples_and_not_over_their_weights() -> None:
    loss = fitted({"name": "cross_entropy", "weights": list(WEIGHTS)}, classes())
    weight = torch.tensor(WEIGHTS, dtype=torch.float64)
    torchs_mean = functional.cross_entropy(OUTPUT, Y, weight=weight)
    torch.testing.assert_close(loss(OUTPUT, Y).mean() * 40 / weight[Y].sum(), torchs_mean)


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    loss: Any = fitted({"name": "cross_entropy", "weights": "balanced"}, classes())
    theirs = compute_class_weight("balanced", classes=np.arange(3), y=Y.numpy())
    assert loss.weights == pytest.approx(theirs.tolist())


def test_balanced_weights_are_counted_in_training_rows_alone() -> None:
    dataset = Dataset(
        "people", X[:4], Y.new_tensor([0, 0, 0, 1]), X[:2], Y.new_tensor([1, 1]), "ab"
    )  # type: ignore[arg-type]
    assert Outcomes.of(dataset).counts == (3, 1)


def test_labels_that_are_not_named_weigh_one() -> None:
    loss: Any = fitted({"name": "cross_entropy", "weights": {"dead": 10}}, classes())
    assert loss.weights == (1, 10, 1)
    numbered: Any = fitted(
        {"name": "cross_entropy", "weights": {1: 4}}, classes(Y.clamp(max=1), ("0", "1"))
    )
    assert numbered.weights == (1, 4)


@pytest.mark.parametrize("weights", [None, list(WEIGHTS)])
def test_focal_with_gamma_0_is_cross_entropy(weights: Any) -> None:
    focal = fitted({"name": "focal", "gamma": 0, "weights": weights}, classes())
    cross_entropy = fitted({"name": "cross_entropy", "weights": weights}, classes())
    torch.testing.assert_close(focal(OUTPUT, Y), cross_entropy(OUTPUT, Y))
    soft = OUTPUT.flip(0).softmax(1)
    torch.testing.assert_close(focal(OUTPUT, soft), cross_entropy(OUTPUT, soft))


def test_focal_is_the_formula_of_the_paper() -> None:
    p = OUTPUT.softmax(1)[torch.arange(40), Y]
    alpha = torch.tensor(WEIGHTS, dtype=torch.float64)[Y]
    loss = fitted({"name": "focal", "gamma": 2.5, "weights": list(WEIGHTS)}, classes())
    torch.testing.assert_close(loss(OUTPUT, Y), -alpha * (1 - p) ** 2.5 * p.log())


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_has_a_slope_where_a_sample_is_certain(gamma: float) -> None:
    output = torch.tensor([[200.0, 0.0, 0.0], [0.0, 200.0, 0.0]], requires_grad=True)
    loss = fitted({"name": "focal", "gamma": gamma}, classes())
    loss(output, torch.tensor([0, 0])).sum().backward()  # type: ignore[no-untyped-call]
    assert output.grad is not None
    assert output.grad.isfinite().all()


def test_a_count_is_predicted_as_the_exponential_of_the_output() -> None:
    dataset = numbers(COUNTS)
    loss = fitted("poisson", dataset)
    rates = torch.tensor([[0.5], [4.0]], dtype=torch.float64)
    predicted = loss.predicted(rates.log())
    in_own_units = predicted * dataset.target_spread + dataset.target_centre
    torch.testing.assert_close(in_own_units, rates[:, 0])
    y = torch.zeros(2, dtype=torch.float64)
    torch.testing.assert_close(hits(rates.log(), y, loss), predicted.square())


@pytest.mark.parametrize("form", FORMS)
def test_hits_of_counts_are_the_squared_errors_of_their_rates(form: Any) -> None:
    dataset = numbers(COUNTS)
    module, trained = one_step(fitted("poisson", dataset), dataset, form)
    rates = module(dataset.x)[:, 0].exp().detach()
    errors = (rates - own_units(dataset)) / dataset.target_spread
    torch.testing.assert_close(trained.hits[0, 0], errors.square().sum())


def test_probabilities_and_numbers_are_what_other_losses_predict() -> None:
    torch.testing.assert_close(USUAL.predicted(OUTPUT), OUTPUT.softmax(1))
    assert torch.equal(USUAL.predicted(OUTPUT[:, :1]), OUTPUT[:, 0])


def test_an_enormous_rate_has_a_finite_square() -> None:
    predicted = fitted("poisson", numbers(COUNTS)).predicted(torch.tensor([[200.0]]))
    assert predicted.square().isfinite().all()


def test_the_usual_loss_is_given_to_trainers_as_none() -> None:
    for name in ("auto", "cross_entropy"):
        assert fit_loss(Loss.build(name), classes()) is None
    for name in ("auto", "squared_error"):
        assert fit_loss(Loss.build(name), numbers(NUMBERS)) is None
    assert fit_loss(Loss.build("focal"), classes()) is not None


def test_huber_without_a_delta_bends_at_one_deviation() -> None:
    dataset = numbers(10 + 4 * NUMBERS)
    spread = {"name": "huber", "delta": dataset.target_spread}
    output = OUTPUT[:, :1]
    torch.testing.assert_close(
        fitted("huber", dataset)(output, dataset.y), fitted(spread, dataset)(output, dataset.y)
    )


def test_weights_that_depend_on_the_data_are_refused_before_they_are_fitted() -> None:
    with pytest.raises(StudyError, match=r"'balanced' depends on the data; call fitted"):
        Loss.build({"name": "cross_entropy", "weights": "balanced"})(OUTPUT, Y)


def weights(value: Any) -> dict[str, Any]:
    return {"name": "cross_entropy", "weights": value}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (weights([1, -1, 1]), "cross_entropy.weights: expected numbers of 0 or more, got -1"),
        (weights({"dead": -2}), "expected numbers of 0 or more, got -2"),
        (weights({"dead": "heavy"}), "expected numbers, got 'heavy'"),
        (weights([float("inf"), 1]), "expected numbers of 0 or more, got inf"),
        (weights([0, 0]), "all are 0, so nothing would be learnt"),
        (weights("balance"), "expected balanced or a list of numbers"),
        ({"name": "cross_entropy", "smoothing": 1}, "a share from 0 to below 1, got 1"),
        ({"name": "cross_entropy", "smoothing": -0.1}, "a share from 0 to below 1, got -0.1"),
        ({"name": "focal", "gamma": -1}, "focal.gamma: expected 0 or more, got -1"),
        ({"name": "focal", "weights": [-1]}, "focal.weights: expected numbers of 0 or more"),
        ({"name": "huber", "delta": 0}, "huber.delta: expected a number above 0, got 0"),
        ("hubert", "no loss is called 'hubert'; did you mean huber"),
        (3, "loss: expected a name or"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(spec: Any, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        Loss.build(spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (weights({"daed": 10}), "no class is called 'daed'; did you mean dead"),
        (weights({False: 10}), "no class is called 'False'; .*YAML reads yes and no as"),
        (weights([1, 2]), "expected 3 numbers, one for each of alive, dead, gone; got 2"),
        (weights({"alive": 0, "dead": 0, "gone": 0}), "all are 0"),
        (
            "huber",
            "huber is a loss for a number to predict, and these data have classes; use",
        ),
        ("poisson", "poisson is a loss for a number to predict"),
        ("squared_error", "use cross_entropy or focal"),
        ("own_losses:averaged", r"own_losses:averaged: .*number per sample, \(2,\); .*\(\)"),
        ("own_losses:NO_FUNCTION", r"expected a function of \(output, y\), got 3"),
        ("own_losses:nothing", "cannot import 'own_losses:nothing'"),
    ],
)
def test_a_loss_that_does_not_suit_classes_is_refused(spec: Any, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        check_loss(Loss.build(spec), classes())


def test_a_loss_that_does_not_suit_numbers_is_refused() -> None:
    message = (
        "cross_entropy is a loss for classes, and these data have a number to predict; use abs"
    )
    with pytest.raises(StudyError, match=message):
        check_loss(Loss.build(weights("balanced")), numbers(COUNTS))
    with pytest.raises(StudyError, match=r"counts of 0 or more, .* is -1.*; use squared_error"):
        check_loss(Loss.build("poisson"), numbers(COUNTS - 1))


def test_balanced_weights_need_a_training_row_of_every_class() -> None:
    with pytest.raises(StudyError, match="every class, and gone has none; give the weights as"):
        check_loss(Loss.build(weights("balanced")), classes(Y.clamp(max=1)))


def test_counts_that_were_rounded_are_no_negative_ones() -> None:
    values = torch.tensor([0, 0, 1e6, 3e6, 7.0] * 8)
    single = numbers(values.double())
    y = ((values - single.target_centre) / single.target_spread).float()
    scale = {"target_centre": single.target_centre, "target_spread": single.target_spread}
    rounded = Dataset("days", X.float(), y, X.float()[:9], y[:9], task="regression", **scale)
    check_loss(Loss.build("poisson"), rounded)


def test_ones_own_loss_is_a_function_or_a_class() -> None:
    for spec in ("own_losses:doubled", own_losses.doubled):
        loss = fitted(spec, classes())
        torch.testing.assert_close(loss(OUTPUT, Y), 2 * USUAL(OUTPUT, Y))
    halved = Loss.build("own_losses:Halved")
    assert isinstance(halved, own_losses.Halved)
    trainer = RowTrainer(nn.Linear(5, 1).double(), Samples(X, NUMBERS), loss=halved)
    assert trainer.loss is not None
    torch.testing.assert_close(trainer.loss.predicted(OUTPUT[:, :1]), 2 * OUTPUT[:, 0])


def test_a_loss_of_ones_own_cannot_change_the_outcomes() -> None:
    y = torch.tensor([0, 1, 1])
    loss = Loss.build(forgetful_of_outcomes).fitted(Outcomes(("a", "b"), (1, 2)))
    loss(torch.zeros(3, 2), y)
    assert y.tolist() == [0, 1, 1]


def forgetful_of_outcomes(output: Tensor, y: Tensor) -> Tensor:
    y.zero_()
    return output.sum(1)


def test_a_function_that_takes_other_arguments_is_refused() -> None:
    def lonely(output: Tensor) -> Tensor:
        return output.sum(1)

    with pytest.raises(StudyError, match=r"a loss is called with \(output, y\), and too many"):
        Loss.build(lonely).fitted(Outcomes(("a", "b"), (1, 2)))
