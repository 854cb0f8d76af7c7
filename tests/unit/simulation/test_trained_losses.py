"""What the rows of a study are trained for: the setting `loss`, in everything that trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import own_losses
import pandas as pd
import pytest
import torch
from playground import FAST, draft_of, simulate, tiny_dataset
from sklearn.metrics import r2_score, recall_score
from torch import Tensor
from torch.nn import functional

import tacit
from tacit.core.errors import StudyError
from tacit.data.dataset import Dataset
from tacit.execution.blocks import group_runs
from tacit.execution.planner import cannot_travel
from tacit.rounds.server_data import ServerData
from tacit.simulation.kinds.horizontal import Simulation, shares_nothing
from tacit.study.run import Run
from tacit.study.study import Study
from tacit.training.batches import Samples

BALANCED = {"name": "cross_entropy", "weights": "balanced"}
TRIPLE = {"name": "cross_entropy", "weights": {"a": 3, "c": 0.5}}
WEIGHT = torch.tensor([3.0, 1.0, 0.5], dtype=torch.float64)  # of the same
FULL: dict[str, Any] = {"batch_size": None, "local_test": 0, "rounds": 1}


def rare(rows: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """A table of which 4.3 % are ill, by a logistic risk of five of its columns."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 8)).astype(np.float32)
    risk = x[:, :5] @ np.array([1.0, -0.8, 0.6, 0.5, -0.4]) - 4.2
    y = rng.random(rows) < 1 / (1 + np.exp(-risk))
    return x, np.where(y, "ill", "well")


def counts_table(rows: int = 400) -> pd.DataFrame:
    """Visits, whose rate is the exponential of a line."""
    rng = np.random.default_rng(0)
    age = rng.normal(0, 1, rows)
    dose = rng.normal(0, 1, rows)
    visits = rng.poisson(np.exp(0.6 + 0.7 * age - 0.4 * dose))
    return pd.DataFrame({"age": age, "dose": dose, "visits": visits.astype(float)})


def runs_of(**settings: Any) -> list[tuple[str, Run]]:
    study = Study(**{**FAST, **settings})
    return [(f"run{number}", run) for number, run in enumerate(study.runs())]


def linear(x: Tensor, w: Tensor, outputs: int = 3) -> Tensor:
    weight, bias = w.split([outputs * x.shape[1], outputs])
    return x @ weight.view(outputs, -1).T + bias


def step(x: Tensor, y: Tensor, w: Tensor, lr: float, **options: Any) -> Tensor:
    """One full-batch step of plain SGD on torch's cross-entropy, averaged over the samples."""
    w = w.clone().requires_grad_()
    functional.cross_entropy(linear(x, w), y, reduction="none", **options).mean().backward()  # type: ignore[no-untyped-call]
    assert w.grad is not None
    return w.detach() - lr * w.grad


def initial(engine: Simulation) -> Tensor:
    return engine.states[0].initial


def final(engine: Simulation) -> Tensor:
    x: Tensor = engine.states[0].server["x"]
    return x


@pytest.mark.parametrize("form", ["loop", "vmap"])
def test_two_weighted_clients_under_fedsgd_take_the_step_of_their_pooled_data(form: Any) -> None:
    data = tiny_dataset(61)
    split = {"name": "label_dirichlet", "beta": 0.3}
    engine = simulate(
        data, form=form, algorithm="fedsgd", clients=2, split=split, loss=TRIPLE, **FULL
    )
    sizes = [len(shard) for shard in engine.states[0].train]
    assert sizes[0] != sizes[1]
    expected = step(data.x, data.y, initial(engine), 0.1, weight=WEIGHT)
    torch.testing.assert_close(final(engine), expected)


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fednova", "fedprox_adaptive"])
def test_both_forms_play_the_same_weighted_study(algorithm: str) -> None:
    looped = simulate(tiny_dataset(), form="loop", algorithm=algorithm, loss=TRIPLE)
    vmapped = simulate(tiny_dataset(), form="vmap", algorithm=algorithm, loss=TRIPLE)
    torch.testing.assert_close(final(looped), final(vmapped))
    plain = simulate(tiny_dataset(), algorithm=algorithm)
    assert not torch.allclose(final(looped), final(plain))


def test_full_gradients_are_those_of_the_loss() -> None:
    data = tiny_dataset()
    engine = simulate(data, loss=TRIPLE, **FULL)
    x = initial(engine)
    g = engine.trainer.full_gradient(x[None], [torch.arange(len(data.y))])[0]
    torch.testing.assert_close(x - g, step(data.x, data.y, x, 1.0, weight=WEIGHT))


def test_the_centralised_reference_has_the_loss_too() -> None:
    data = tiny_dataset()
    (_, _), reference = runs_of(loss=TRIPLE, centralised=True, **FULL)
    engine = Simulation([reference], data)  # type: ignore[list-item]
    list(engine.play_round())
    expected = step(data.x, data.y, initial(engine), 0.1, weight=WEIGHT)
    torch.testing.assert_close(final(engine), expected)


def test_the_usual_losses_by_name_give_the_same_bits() -> None:
    named = simulate(tiny_dataset(), loss="cross_entropy")
    assert torch.equal(final(named), final(simulate(tiny_dataset())))
    assert named.trainer.loss is None


def test_the_reported_loss_is_the_one_that_was_trained_for() -> None:
    data = tiny_dataset()
    engine = simulate(data, loss=TRIPLE)
    record = engine.records[-1]  # type: ignore[attr-defined]
    answers = linear(data.test_x, final(engine))
    losses = functional.cross_entropy(answers, data.test_y, weight=WEIGHT, reduction="none")
    assert record["loss"] == pytest.approx(losses.mean().item())
    accuracy = (answers.argmax(1) == data.test_y).double().mean().item()
    assert record["accuracy"] == pytest.approx(accuracy)


def test_balanced_weights_are_the_same_whatever_is_set_aside() -> None:
    """They are counted in all training rows, so that runs of other seeds share them."""
    data = tiny_dataset(61)
    seeds = simulate(data, loss=BALANCED, seed=[0, 1], local_test=0.3, server_samples=9, rounds=1)
    loss: Any = seeds.trainer.loss
    assert loss.function.weights == pytest.approx((61 / 63, 61 / 60, 61 / 60))
    for number, seed in enumerate((0, 1)):
        alone = simulate(data, loss=BALANCED, seed=seed, local_test=0.3, server_samples=9, rounds=1)
        torch.testing.assert_close(seeds.states[number].server["x"], final(alone))


def test_runs_with_other_losses_are_never_one_block() -> None:
    named = runs_of(loss=["auto", BALANCED, TRIPLE, "focal"], seed=[0, 1])
    groups = group_runs(named)
    assert [len(group) for group in groups] == [2, 2, 2, 2]
    with pytest.raises(ValueError, match="expected runs of one loss"):
        Simulation(named, tiny_dataset())  # type: ignore[arg-type]


def test_pretraining_has_the_loss_of_the_clients() -> None:
    data = tiny_dataset()
    settings: Any = {"server_samples": 20, "batch_size": None, "rounds": 1}
    (named,) = runs_of(loss=TRIPLE, pretraining=1, **settings)
    engine = Simulation([named], data)  # type: ignore[list-item]
    (untrained,) = runs_of(**settings)
    x = initial(Simulation([untrained], data))  # type: ignore[list-item]
    sample = engine.states[0].sample
    expected = step(data.x[sample], data.y[sample], x, 0.1, weight=WEIGHT)
    torch.testing.assert_close(initial(engine), expected)


def test_distillation_of_weighted_clients_follows_their_mean_prediction_unweighted() -> None:
    data = tiny_dataset()
    settings: Any = {"server_samples": 20, "batch_size": None, "rounds": 1, "loss": TRIPLE}
    plain = simulate(data, **settings)
    distilled = simulate(data, distillation=1, **settings)
    (named,) = runs_of(**settings)
    engine = Simulation([named], data)  # type: ignore[list-item]
    x = data.x[engine.states[0].sample]
    answers = []
    for client in range(3):
        w = initial(engine) + draft_of(engine, engine.states[0], client).message["dx"][0]
        answers.append(linear(x, w))
    teacher = torch.stack(answers).mean(0).softmax(1)
    torch.testing.assert_close(final(distilled), step(x, teacher, final(plain), 0.1))


def test_distillation_of_counts_follows_the_mean_rate() -> None:
    """Clients that agree are followed to where they are: the student's gradient vanishes."""
    table = counts_table()
    values = torch.tensor(table[["age", "dose", "visits"]].to_numpy())
    y = values[:, 2]
    scale = {"target_centre": y.mean().item(), "target_spread": y.std(correction=0).item()}
    outcomes = (y - scale["target_centre"]) / scale["target_spread"]
    x = values[:, :2]
    data = Dataset("visits", x, outcomes, x[:50], outcomes[:50], task="regression", **scale)
    settings: Any = {"server_samples": 40, "rounds": 1, "loss": "poisson", "clients": 1}
    plain = simulate(data, **settings)
    distilled = simulate(data, distillation=3, **settings)
    torch.testing.assert_close(final(distilled), final(plain), rtol=1e-6, atol=1e-9)


def test_zeno_judges_updates_by_the_loss_of_the_clients() -> None:
    data = tiny_dataset()
    (named,) = runs_of(loss=TRIPLE, server_samples=20)
    engine = Simulation([named], data)  # type: ignore[list-item]
    state = engine.states[0]
    sample = Samples(data.x[state.sample], data.y[state.sample])
    judge = ServerData(state.run, engine.trainer, sample).losses(state.server_state)
    assert judge is not None
    w = initial(engine)
    answers = linear(sample.x, w)
    losses = functional.cross_entropy(answers, sample.y, weight=WEIGHT, reduction="none")
    torch.testing.assert_close(judge(torch.zeros_like(w)[None], 20)[0, 0], losses.mean())


FUSED: dict[str, Any] = {
    "model": {"name": "mlp", "hidden": [4]},
    "fusion": "average",
    "initial": "different",
    "clients": 2,
    "rounds": 1,
    "batch_size": None,
}


def test_clients_of_a_fusion_train_for_the_loss(tmp_path: Path) -> None:
    fused = tacit.run({"dataset": "iris", **FUSED, "loss": TRIPLE_IRIS}, tmp_path / "fused")
    local = {key: value for key, value in FUSED.items() if key != "fusion"}
    alone = tacit.run(
        {"dataset": "iris", **local, "algorithm": "local", "loss": TRIPLE_IRIS}, tmp_path / "alone"
    )
    for client in range(2):
        ours = fused.model(fused.best(), client=client).state_dict()
        theirs = alone.model(alone.best(), client=client).state_dict()
        for name, value in ours.items():
            torch.testing.assert_close(value, theirs[name])


TRIPLE_IRIS = {"name": "cross_entropy", "weights": [3, 1, 0.5]}


def visits(tmp_path: Path) -> dict[str, Any]:
    counts_table().to_csv(tmp_path / "visits.csv", index=False)
    source = {"name": "table", "path": str(tmp_path / "visits.csv"), "target": "visits"}
    source["task"] = "regression"
    return {"dataset": source, "clients": 3, "optimiser": {"name": "sgd", "lr": 0.05}}


def test_counts_are_predicted_scored_and_fused_as_rates(tmp_path: Path) -> None:
    settings = {**visits(tmp_path), "loss": "poisson", "model": "linear", "rounds": 30}
    results = tacit.run(settings, tmp_path / "run")
    run = results.best()
    table = counts_table()
    rates = results.predict(run, table.drop(columns="visits"))
    assert rates.min() > 0
    deviance_of_truth = np.exp(0.6 + 0.7 * table["age"] - 0.4 * table["dose"])
    assert np.corrcoef(rates, deviance_of_truth)[0, 1] > 0.98

    data = results.runs[run].dataset.load()
    with torch.no_grad():
        predicted = results.model(run)(data.test_x)[:, 0].exp().double()
    actual = data.test_y.double() * data.target_spread + data.target_centre
    last = results.summary().iloc[0]
    assert last["r2"] == pytest.approx(r2_score(actual, predicted), abs=1e-5)
    assert last["rmse"] == pytest.approx((predicted - actual).square().mean().sqrt().item())
    loss = functional.poisson_nll_loss(predicted.log(), actual)
    assert last["loss"] == pytest.approx(loss.item(), rel=1e-5)

    fused = tacit.run({**visits(tmp_path), "loss": "poisson", **FUSED}, tmp_path / "fused")
    record = fused.records[-1]
    networks = [fused.model(fused.best(), client=client) for client in range(2)]
    with torch.no_grad():
        mean = torch.stack([net(data.test_x)[:, 0].exp() for net in networks]).mean(0)
    assert record["ensemble_r2"] == pytest.approx(r2_score(actual, mean), abs=1e-5)


def test_negative_counts_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = counts_table()
    table["visits"] -= 1
    table.to_csv(tmp_path / "visits.csv", index=False)
    source = {"name": "table", "path": str(tmp_path / "visits.csv"), "target": "visits"}
    settings = {"dataset": source | {"task": "regression"}, "loss": "poisson", "clients": 2}
    with pytest.raises(StudyError, match="poisson is a loss for counts of 0 or more") as caught:
        tacit.run(settings, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dataset": "diabetes", "loss": BALANCED}, "cross_entropy is a loss for classes"),
        ({"loss": {"name": "huber", "delta": 1}}, "huber is a loss for a number to predict"),
        ({"loss": {"name": "focal", "weights": {"setsoa": 2}}}, "did you mean setosa"),
        ({"loss": "own_losses:averaged"}, "must return one number per sample"),
        ({"loss": "own_losses:broken"}, "own_losses:broken raised RuntimeError: no such thing"),
        ({"loss": "huber", "fusion": "average"}, "huber is a loss for a number to predict"),
    ],
)
def test_a_loss_that_does_not_suit_the_data_is_refused_first(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = {"name": "mlp", "hidden": [3]}
    with pytest.raises(StudyError, match=message) as caught:
        tacit.run({**FAST, "model": model, **settings}, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_losses_are_compared_and_told_apart_from_the_loss_that_was_measured(
    tmp_path: Path,
) -> None:
    results = tacit.run({**FAST, "loss": ["auto", TRIPLE_IRIS, "focal"]}, tmp_path)
    frame = results.frame()
    assert frame["loss"].dtype == float
    weighted = "cross_entropy(weights=[3, 1, 0.5])"
    assert list(frame["objective"].unique()) == ["auto", weighted, "focal"]
    rows = [f"objective={name}" for name in ("auto", weighted, "focal")]
    assert list(results.table().index) == rows
    assert "loss" in results.metrics
    assert [run.loss.name for run in results.runs.values()] == ["auto", "cross_entropy", "focal"]


def test_ones_own_loss_by_path_or_as_an_object_trains_alike(tmp_path: Path) -> None:
    by_path = tacit.run({**FAST, "loss": "own_losses:doubled"}, tmp_path / "path")
    as_object = tacit.run({**FAST, "loss": own_losses.doubled}, tmp_path / "object")
    assert "path: own_losses:doubled" in (tmp_path / "object" / "study.yaml").read_text()
    weighted = {"name": "cross_entropy", "weights": [2, 2, 2]}
    expected = tacit.run({**FAST, "loss": weighted}, tmp_path / "weighted")
    assert by_path.frame()["loss"].tolist() == as_object.frame()["loss"].tolist()
    assert by_path.frame()["loss"].tolist() == pytest.approx(expected.frame()["loss"].tolist())


def test_a_loss_that_only_this_process_knows_stays_here() -> None:
    here = Study(**{**FAST, "loss": lambda output, y: (output[:, 0] - y) ** 2})
    (run,) = here.runs()
    path = cannot_travel([("a", run)])
    assert path is not None
    assert "#" in path
    there = Study(**{**FAST, "loss": own_losses.doubled})
    assert cannot_travel([("a", there.runs()[0])]) is None


def test_ones_own_loss_may_say_what_outputs_mean(tmp_path: Path) -> None:
    """A model whose outputs are doubled ends at half the weights of one that is not."""
    settings = {**FAST, "dataset": "diabetes", "rounds": 60}
    settings["optimiser"] = {"name": "sgd", "lr": 0.02}
    halved = tacit.run({**settings, "loss": "own_losses:Halved"}, tmp_path / "halved")
    usual = tacit.run(settings, tmp_path / "usual")
    assert halved.summary()["r2"].iloc[0] == pytest.approx(usual.summary()["r2"].iloc[0], abs=0.02)


@pytest.mark.parametrize("model", ["linear", {"name": "mlp", "hidden": [16]}])
def test_balanced_weights_find_more_of_a_rare_class(model: Any, tmp_path: Path) -> None:
    x, y = rare()
    frame = pd.DataFrame(x, columns=[f"x{column}" for column in range(8)]).assign(state=y)
    frame.to_csv(tmp_path / "rare.csv", index=False)
    source = {"name": "table", "path": str(tmp_path / "rare.csv"), "target": "state"}
    results = tacit.run(
        {
            "dataset": source,
            "model": model,
            "clients": 4,
            "rounds": 20,
            "optimiser": {"name": "sgd", "lr": 0.2},
            "loss": ["auto", BALANCED],
        },
        tmp_path / "run",
    )
    data = next(iter(results.runs.values())).dataset.load()
    recalls = []
    for run in results.runs:
        with torch.no_grad():
            found = results.model(run)(data.test_x).argmax(1)
        recalls.append(recall_score(data.test_y == 0, found == 0))
    assert data.labels[0] == "ill"
    assert recalls[0] < 0.4
    assert recalls[1] > 0.6


def test_clients_with_a_loss_of_ones_own_are_not_trained_in_threads() -> None:
    """It may draw from torch's generator, which all threads share."""
    assert shares_nothing(simulate(tiny_dataset(), loss=TRIPLE).states[0])
    assert not shares_nothing(simulate(tiny_dataset(), loss="own_losses:doubled").states[0])
