"""Clients that lie, in a whole study and alone."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import pytest
import torch
from playground import draft_of, simulate, tiny_dataset

from tacit.core.errors import StudyError
from tacit.federated.wire.attackers import Attackers, Backdoor
from tacit.simulation.kinds.horizontal import Simulation
from tacit.study.study import Study

D = torch.float64
HONEST = torch.tensor([[1.0, 2.0], [3.0, 6.0], [5.0, 1.0]], dtype=D)
MINE = torch.tensor([[4.0, -4.0], [2.0, 2.0]], dtype=D)


def lie(**spec: Any) -> torch.Tensor:
    return Attackers.build({"count": 2, **spec}).lie(MINE, HONEST, torch.Generator().manual_seed(0))


def test_each_lie_is_what_it_says() -> None:
    torch.testing.assert_close(lie(kind="sign_flip", scale=10), -10 * MINE)
    torch.testing.assert_close(lie(kind="scale", factor=3), 3 * MINE)
    half_the_mean = torch.tensor([[1.5, 1.5]] * 2, dtype=D)
    torch.testing.assert_close(lie(kind="ipm", epsilon=0.5), -half_the_mean)
    assert torch.equal(lie(kind="label_flip"), MINE)
    torch.testing.assert_close(lie(kind="backdoor", boost=2), 2 * MINE)


def test_noise_has_the_deviation_asked_for_and_forgets_the_update() -> None:
    attack = Attackers.build({"kind": "gaussian", "sigma": 3})
    update = torch.full((2, 5000), 1e6, dtype=D)
    noise = attack.lie(update, HONEST, torch.Generator().manual_seed(1))
    assert abs(noise.std().item() - 3) < 0.1
    assert abs(noise.mean().item()) < 0.2


def test_a_little_is_enough_hides_behind_the_honest() -> None:
    """n = 5, f = 2: s = floor(3.5) - 2 = 1 honest client to win, so z = Phi^-1((3 - 1) / 3)."""
    z = NormalDist().inv_cdf(2 / 3)
    expected = HONEST.mean(0) - z * torch.tensor(HONEST.numpy().std(axis=0))
    torch.testing.assert_close(lie(kind="alie"), expected.expand(2, 2))
    torch.testing.assert_close(lie(kind="alie", z=0.0), HONEST.mean(0).expand(2, 2))


def test_the_seed_says_who_attacks() -> None:
    attack = Attackers.build({"kind": "sign_flip", "count": 4})
    assert len(attack.who(15, 0)) == 4
    assert attack.who(15, 0) == attack.who(15, 0) != attack.who(15, 1)


def started(**settings: Any) -> Simulation:
    run = Study("small", clients=4, rounds=1, **settings).runs()[0]
    return Simulation([("a", run)], tiny_dataset(120))


def test_only_the_attackers_messages_change() -> None:
    """One round of the mean, by hand: the honest updates, and the flipped one."""
    simulation = started(attackers={"kind": "sign_flip", "scale": 3}, model="linear")
    state = simulation.states[0]
    dx = torch.cat([draft_of(simulation, state, k).message["dx"] for k in range(4)])
    dx[list(state.attackers)] *= -3
    list(simulation.play_round())
    torch.testing.assert_close(state.server["x"], state.initial + dx.mean(0))
    assert len(state.attackers) == 1


def test_label_flip_changes_the_attackers_training_labels_and_nothing_else() -> None:
    clean = started()
    flipped = started(attackers={"kind": "label_flip", "count": 2})
    clean_state = clean.states[0]
    state = flipped.states[0]
    for k in range(4):
        shard = clean_state.train[k]
        x = clean.samples.x[shard]
        y = clean.samples.y[shard]
        expected = 2 - y if k in state.attackers else y
        assert torch.equal(flipped.samples.y[state.train[k]], expected)
        assert torch.equal(flipped.samples.x[state.train[k]], x)
        assert torch.equal(clean_state.test[k], state.test[k])


def test_poisoned_clients_see_their_own_noise_too() -> None:
    """Feature noise and poisoning together: an attacker's features are those it would have had."""
    noise = {"name": "feature_noise", "sigma": 2.0}
    clean = started(split=noise)
    flipped = started(split=noise, attackers={"kind": "label_flip", "count": 2})
    for k in range(4):
        clean_x = clean.samples.x[clean.states[0].train[k]]
        flipped_x = flipped.samples.x[flipped.states[0].train[k]]
        assert torch.equal(clean_x, flipped_x)


@pytest.mark.parametrize("shape", [(6,), (1, 5, 5)])
def test_the_trigger_marks_a_share_of_the_samples_and_names_the_target(
    shape: tuple[int, ...],
) -> None:
    attack = Backdoor(target=2, share=0.3, size=2, value=7.0)
    x = torch.zeros(10, *shape)
    y = torch.zeros(10, dtype=torch.long)
    marked, lied = attack.poison(x, y, 3, torch.Generator().manual_seed(0))
    touched = marked.flatten(1).any(1)
    assert touched.sum() == 3
    assert torch.equal(lied == 2, touched)
    assert (marked == 7).sum() == 3 * 2 ** (len(shape) - 1 or 1)
    assert not x.any()
    corner = marked[..., -2:, -2:] if len(shape) == 3 else marked[..., -2:]
    assert (corner == 7).flatten(1).all(1).sum() == 3


def test_backdoor_success_is_recorded_and_boosting_raises_it() -> None:
    study: Any = {
        "dataset": "digits",
        "model": "mlp",
        "clients": 5,
        "rounds": 6,
        "optimiser": {"name": "sgd", "lr": 0.2},
    }
    attack = {"kind": "backdoor", "target": 1, "size": 3}

    def last_record(**settings: Any) -> Any:
        simulation: Any = simulate(**study, **settings)
        return simulation.records[-1]

    boosted = last_record(attackers={**attack, "boost": 5})
    silenced = last_record(attackers={**attack, "boost": 0})
    assert boosted["backdoor"] > 0.8
    assert silenced["backdoor"] < 0.3
    assert silenced["accuracy"] > 0.5
    assert "backdoor" not in last_record()


def test_fairness_is_among_the_honest() -> None:
    study: Any = {"clients": 6, "split": {"name": "labels_per_party", "labels": 1}, "rounds": 2}
    attack = {"kind": "label_flip", "count": 2}
    simulation: Any = simulate(tiny_dataset(240), attackers=attack, **study)
    record = simulation.records[-1]
    clients = record["clients"]
    accuracies = [client["test_accuracy"] for client in clients]
    honest = [client["test_accuracy"] for client in clients if not client["attacker"]]
    assert (len(honest), len(accuracies)) == (4, 6)
    assert record["worst"] == min(honest)
    assert record["local_accuracy"] == pytest.approx(sum(honest) / 4)
    assert sum(honest) / 4 != sum(accuracies) / 6


def test_colluding_attackers_know_the_honest_and_only_them() -> None:
    simulation = started(attackers={"kind": "ipm", "epsilon": 0.5, "count": 2}, model="linear")
    state = simulation.states[0]
    dx = torch.cat([draft_of(simulation, state, k).message["dx"] for k in range(4)])
    honest = [k for k in range(4) if k not in state.attackers]
    list(simulation.play_round())
    step = (dx[honest].sum(0) - 2 * 0.5 * dx[honest].mean(0)) / 4
    torch.testing.assert_close(state.server["x"], state.initial + step)


def test_samples_of_the_target_class_say_nothing_about_a_backdoor() -> None:
    attack = {"kind": "backdoor", "target": 1, "size": 2, "value": 5.0, "boost": 2}
    simulation: Any = simulate(tiny_dataset(120), clients=4, rounds=3, attackers=attack)
    samples = simulation.samples
    marked = samples.test_x[samples.test_y != 1].clone()
    marked[:, -2:] = 5.0
    x = simulation.states[0].server["x"]
    weight = x[:15].view(3, 5)
    bias = x[15:]
    answers = (marked @ weight.T + bias).argmax(1)
    share = (answers == 1).double().mean().item()
    assert simulation.records[-1]["backdoor"] == pytest.approx(share)


@pytest.mark.parametrize(
    "combiner",
    [
        "median",
        "geometric_median",
        {"name": "trimmed_mean", "beta": 0.3},
        {"name": "krum", "f": 2},
        {"name": "zeno", "b": 2},
    ],
)
def test_robust_rules_learn_where_the_mean_does_not(combiner: Any) -> None:
    study: Any = {
        "clients": 9,
        "rounds": 30,
        "local_epochs": 2,
        "server_samples": 12,
        "attackers": {"kind": "sign_flip", "count": 2, "scale": 20},
    }
    robust: Any = simulate(combiner=combiner, **study)
    assert robust.records[-1]["accuracy"] > 0.75
    mean: Any = simulate(combiner="mean", **study)
    accuracy = mean.records[-1]["accuracy"]
    assert accuracy is None or accuracy < 0.6


def test_a_study_file_may_list_kinds_of_attack() -> None:
    study = Study(clients=15, attackers={"count": 4, "kind": ["sign_flip", "gaussian"]})
    assert [run.attackers.name for run in study.runs()] == ["sign_flip", "gaussian"]
    again = Study(**study.to_dict())
    assert again.runs() == study.runs()


def test_attackers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(StudyError, match="4 of 4 clients leave no honest one"):
        Study(clients=4, attackers={"kind": "alie", "count": 4})
    with pytest.raises(StudyError, match="expected a class from 0 to 2, got 9"):
        started(attackers={"kind": "backdoor", "target": 9})
    with pytest.raises(
        StudyError, match="count: expected 1 or more, got 0; for no attack, use attackers: none"
    ):
        Study(attackers={"kind": "alie", "count": 0})
    with pytest.raises(StudyError, match="did you mean sign_flip"):
        Study(attackers={"kind": "sign_flop"})
