"""Numbers in place of classes: the same loop, another loss and another score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playground import FAST, draft_of, simulate
from sklearn.metrics import r2_score
from torch import Tensor

import tacit
from tacit.core.errors import StudyError
from tacit.core.events import Event, RoundFinished
from tacit.core.rows import Rows
from tacit.data.dataset import Dataset
from tacit.models.model import Model, make_module
from tacit.simulation.kinds.horizontal import Simulation
from tacit.study.study import Study
from tacit.training.batches import gather
from tacit.training.evaluation import evaluate
from tacit.training.gradients import row_gradients
from tacit.training.losses import hits, losses

SMALL: dict[str, Any] = {
    "dataset": "diabetes",
    "model": "linear",
    "clients": 3,
    "rounds": 3,
    "optimiser": {"name": "sgd", "lr": 0.05},
}


def a_line(samples: int = 60) -> Dataset:
    """Outcomes that a linear model can learn, in double precision."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 5, generator=draw, dtype=torch.float64)
    y = x @ torch.tensor([1.0, -1.0, 0.5, 0.0, 0.0], dtype=torch.float64)
    return Dataset(
        name="line",
        x=x,
        y=y,
        test_x=x[:20] + 0.1,
        test_y=y[:20],
        task="regression",
        target_centre=7.0,
        target_spread=3.0,
    )


def test_the_loss_of_numbers_is_the_squared_error() -> None:
    output = torch.tensor([[1.0], [3.0]])
    y = torch.tensor([0.0, 1.0])
    assert losses(output, y).tolist() == [1, 4]
    assert losses(output, y, "mean").item() == 2.5
    assert hits(output.requires_grad_(), y).tolist() == [1, 4]
    assert not hits(output, y).requires_grad


def test_soft_labels_are_still_classes() -> None:
    output = torch.zeros(2, 3)
    soft = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    assert losses(output, soft).tolist() == pytest.approx([np.log(3)] * 2)
    assert hits(output, soft).dtype == torch.bool


def test_both_forms_of_the_gradient_agree() -> None:
    data = a_line()
    module = make_module(Model.build({"name": "mlp", "hidden": [4]}), (5,), 1, 0).double()
    w = torch.randn(2, 29, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    batch = gather(data.x, data.y, [torch.arange(7), torch.arange(10, 14)])
    buffers: Rows = {}
    seeds = torch.zeros(2)
    step = torch.zeros(())
    looped = row_gradients(module, "loop")(w, buffers, batch, seeds, step)
    vmapped = row_gradients(module, "vmap")(w, buffers, batch, seeds, step)
    for name in ("g", "loss", "hits"):
        torch.testing.assert_close(getattr(looped, name), getattr(vmapped, name))


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_both_forms_play_the_same_study(algorithm: str) -> None:
    looped = simulate(a_line(), form="loop", algorithm=algorithm)
    vmapped = simulate(a_line(), form="vmap", algorithm=algorithm)
    for a, b in zip(looped.records, vmapped.records, strict=True):  # type: ignore[attr-defined]
        assert a["r2"] == pytest.approx(b["r2"])
        assert a["clients"][1]["train_r2"] == pytest.approx(b["clients"][1]["train_r2"])


def test_the_score_is_what_scikit_learn_calls_r2(tmp_path: Path) -> None:
    results = tacit.run(SMALL, tmp_path / "a")
    data = Study(**SMALL).runs()[0].dataset.load()
    run = results.best()
    with torch.no_grad():
        predicted = results.model(run)(data.test_x)[:, 0].double()
    last = results.summary().iloc[0]
    assert last["r2"] == pytest.approx(r2_score(data.test_y.double(), predicted), abs=1e-6)
    errors = (predicted - data.test_y.double()) * data.target_spread
    assert last["rmse"] == pytest.approx(errors.square().mean().sqrt().item(), rel=1e-5)


def test_local_and_train_scores_use_the_variance_of_the_test_set() -> None:
    data = a_line()
    engine = simulate(data, rounds=1, fine_tuning=1)
    record = engine.records[-1]  # type: ignore[attr-defined]
    state = engine.states[0]
    variance = data.test_y.var(correction=0)

    def score(index: Tensor) -> float:
        y = data.y[index]
        answers = evaluate(engine.module, data.x[index], y)
        return float(1 - answers.hits(y).mean() / variance)

    engine.layout.load(engine.module, state.server["x"], state.buffers)
    central = [score(index) for index in state.test]
    assert [client["central_r2"] for client in record["clients"]] == pytest.approx(central)
    assert record["central_r2"] == pytest.approx(np.mean(central))
    local = [client["test_r2"] for client in record["clients"]]
    assert record["local_r2"] == pytest.approx(np.mean(local))
    for client in record["clients"]:
        assert client["train_r2"] == pytest.approx(float(1 - client["train_loss"] / variance))


def test_the_event_of_a_round_tells_the_score(tmp_path: Path) -> None:
    heard: list[Event] = []
    for name, settings in {"r2": SMALL, "accuracy": {**SMALL, "dataset": "iris"}}.items():
        tacit.run(settings, tmp_path / name, on_event=heard.append)
        rounds = [event for event in heard if isinstance(event, RoundFinished)]
        assert rounds[-1].score == rounds[-1].metrics[name]


def test_no_record_of_a_regression_speaks_of_accuracy(tmp_path: Path) -> None:
    varied = {"algorithm": ["fedavg", "fedplus"], "split": ["iid", "label_dirichlet"]}
    results = tacit.run({**SMALL, **varied}, tmp_path)
    assert results.score == "r2"
    columns = [*results.summary(), *results.client_frame()]
    assert not [name for name in columns if "accuracy" in name]
    assert {"best_r2", "r2_per_mb", "rmse", "local_r2", "central_r2"} <= set(results.summary())
    assert {"train_r2", "test_r2"} <= set(results.client_frame())
    assert results.table().equals(results.table("r2"))
    assert list(results.titles) == ["r2", "rmse", "local_r2", "central_r2"]
    page = results.report.read_text()
    assert "Global test R² after the last round" in page
    assert "accuracy" not in page.split('<main id="content">')[1].split('id="run_again"')[0]


def test_target_and_patience_act_on_r2_also_below_minus_one() -> None:
    assert simulate(a_line(), rounds=200, target_accuracy=0.5).states[0].status == "target"
    far = {"optimiser": {"name": "sgd", "lr": 1e-9}, "model": "own_code:Far"}
    stopped = simulate(a_line(), rounds=50, patience=4, **far)
    scores = [record["r2"] for record in stopped.records]  # type: ignore[attr-defined]
    assert scores[0] < -1
    assert stopped.states[0].status in ("patience", "finished")
    assert stopped.states[0].best == max(scores)


def test_a_regression_that_diverges_has_no_score() -> None:
    engine = simulate(a_line(), rounds=400, optimiser={"name": "sgd", "lr": 50.0})
    last = engine.records[-1]  # type: ignore[attr-defined]
    assert last["status"] == "diverged"
    assert (last["loss"], last["r2"], last["rmse"]) == (None, None, None)


@pytest.mark.parametrize(
    "split", ["labels_per_party", "label_dirichlet", "quantity_skew", "feature_noise"]
)
def test_splits_by_label_divide_tenths_of_the_outcome(split: str) -> None:
    data = a_line(200)
    state = simulate(data, split={"name": split}, clients=5, rounds=1).states[0]
    assert state.train.samples + state.test.samples == 200
    if split == "labels_per_party":
        for train, test in zip(state.train, state.test, strict=True):
            tenths = data.groups[torch.cat([train, test])]
            assert len(tenths.unique()) == 2


def test_distillation_follows_the_clients_mean_prediction() -> None:
    """One step of it follows the gradient of the squared distance to the mean."""
    settings: dict[str, Any] = {"server_samples": 9, "batch_size": None, "rounds": 1, "clients": 3}
    plain = simulate(a_line(), **settings).states[0].server["x"]
    distilled = simulate(a_line(), distillation=1, **settings).states[0].server["x"]
    (run,) = Study(**{**FAST, **settings}).runs()
    engine = Simulation([("run0", run)], a_line())
    state = engine.states[0]
    x = engine.samples.x[state.sample]
    answers = []
    for client in range(3):
        w = state.initial + draft_of(engine, state, client).message["dx"][0]
        answers.append(x @ w[:5] + w[5])
    mean = torch.stack(answers).mean(0)
    w = plain.clone().requires_grad_()
    loss = ((x @ w[:5] + w[5] - mean) ** 2).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(distilled, plain - 0.1 * w.grad)  # type: ignore[operator]


@pytest.mark.parametrize("kind", ["label_flip", "backdoor"])
def test_attacks_on_classes_are_refused(kind: str, tmp_path: Path) -> None:
    message = f"{kind} changes classes, and these data have numbers to predict"
    with pytest.raises(StudyError, match=message):
        tacit.run({**SMALL, "attackers": {"kind": kind}}, tmp_path / "a")


def test_attacks_on_updates_work_as_ever() -> None:
    engine = simulate(a_line(), attackers={"kind": "sign_flip"}, combiner="median", clients=5)
    assert engine.records[-1]["r2"] is not None  # type: ignore[attr-defined]


def test_classes_and_numbers_do_not_mix_in_a_study(tmp_path: Path) -> None:
    message = "its data are diabetes for regression and iris for classification"
    with pytest.raises(StudyError, match=message):
        tacit.run({**SMALL, "dataset": ["diabetes", "iris"]}, tmp_path / "a")


def test_a_model_for_classes_does_not_fit_numbers() -> None:
    with pytest.raises(StudyError, match=r"must give one number per sample; it gives \(3,\)"):
        make_module(Model.build(torch.nn.Linear(5, 3)), (5,), 1, 0)


@pytest.mark.parametrize(
    ("algorithm", "rate"), [("fedplus", 0.5), ("local", 500.0), ("fedavg", 5.0)]
)
def test_a_regression_on_its_way_to_infinity_ends_as_diverged_or_finished(
    tmp_path: Path, algorithm: str, rate: float
) -> None:
    study = {
        "dataset": "diabetes",
        "model": "linear",
        "clients": 3,
        "rounds": 40,
        "algorithm": algorithm,
    }
    results = tacit.run({**study, "optimiser": {"name": "sgd", "lr": rate}}, tmp_path / "a")
    assert results.summary()["status"].iloc[0] in ("diverged", "finished")
