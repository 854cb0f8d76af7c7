"""Many clients, of which a few take part in a round: what a round costs and records follows from these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_code import make_crowd
from playground import FAST, simulate
from torch import Tensor

import tacit
from tacit.core.errors import DataError, StudyError
from tacit.core.seeds import numpy_generator
from tacit.data.datasets import Dataset
from tacit.data.splits.split import Split
from tacit.report.page import render
from tacit.simulation.state import RunState
from tacit.study import study_data, tested_clients
from tacit.study.kinds import horizontal
from tacit.study.study import Study
from tacit.study.tested_clients import ALL_TESTED
from tacit.training import evaluation

CROWD: dict[str, Any] = {
    "dataset": {"name": "function", "path": "own_code:make_crowd"},
    "model": {"name": "mlp", "hidden": [8]},
    "optimiser": {"name": "sgd", "lr": 0.1},
    "clients": 5000,
    "selection": {"name": "fraction", "c": 0.002},
    "batch_size": 2,
    "local_test": 0.25,
    "rounds": 3,
}


def of_a_crowd(population: int, **settings: Any) -> Any:
    """A study with four samples per client and ten clients per round, played to its end."""
    whole = make_crowd()
    kept = 4 * population
    data = Dataset(
        "crowd", whole.x[:kept], whole.y[:kept], whole.test_x, whole.test_y, whole.labels
    )
    chosen = {"name": "fraction", "c": 10 / population}
    return simulate(data, **{**CROWD, "clients": population, "selection": chosen, **settings})


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples each evaluation looked at."""
    sizes: list[int] = []
    real = evaluation.evaluate

    def counting(
        module: torch.nn.Module, x: Tensor, y: Tensor, **options: Any
    ) -> tuple[Tensor, Tensor]:
        sizes.append(len(x))
        return real(module, x, y, **options)

    monkeypatch.setattr(evaluation, "evaluate", counting)
    return sizes


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "local", "fedplus"])
def test_the_population_does_not_change_how_much_is_evaluated(
    evaluated: list[int], algorithm: str
) -> None:
    found = []
    for population in (200, 1000, 5000):
        evaluated.clear()
        of_a_crowd(population, algorithm=algorithm)
        found.append(list(evaluated))
    assert found[0] == found[1] == found[2]
    assert sum(found[0]) <= 3 * (
        100 + 2 * 10
    )  # a round's global test, and ten local ones with one model or with two


@pytest.mark.parametrize("population", [ALL_TESTED, ALL_TESTED + 1])
def test_up_to_a_hundred_clients_everybody_is_recorded_and_beyond_those_who_take_part(
    population: int,
) -> None:
    played = of_a_crowd(population, dropout=0.5)
    for record in played.records:
        chosen = played.states[0].run.participants(record["round"] - 1)
        named = [one["client"] for one in record["clients"]]
        assert named == (list(range(100)) if population == 100 else chosen)
        worked = [one["client"] for one in record["clients"] if one["steps"]]
        assert len(worked) == record["replies"] < 10  # the lost ones are recorded too
        assert set(worked) < set(chosen)
        assert all(one["test_loss"] is not None for one in record["clients"])


def test_summary_figures_are_those_of_the_recorded_clients() -> None:
    played = of_a_crowd(300, attackers={"count": 100, "kind": "sign_flip"})
    record = played.records[-1]
    known = [one["test_accuracy"] for one in record["clients"] if not one["attacker"]]
    assert 0 < len(known) < len(record["clients"]) == 10
    assert record["local_accuracy"] == pytest.approx(np.mean(known))
    assert record["worst"] == min(known)
    assert record["spread"] == pytest.approx(np.std(known))


def test_a_crowds_own_tests_are_those_that_a_smaller_study_measures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same study, once with everybody tested: the recorded clients' figures do not depend on who else is."""
    few = of_a_crowd(200, algorithm="fedplus")
    monkeypatch.setattr(tested_clients, "ALL_TESTED", 200)
    whole = of_a_crowd(200, algorithm="fedplus")
    assert torch.equal(few.states[0].server["x"], whole.states[0].server["x"])
    for mine, theirs in zip(few.records, whole.records, strict=True):
        assert len(theirs["clients"]) == 200
        assert [theirs["clients"][one["client"]] for one in mine["clients"]] == mine["clients"]


def test_five_thousand_clients_run_and_are_reported(tmp_path: Path) -> None:
    study = Study("crowd", **{**CROWD, "algorithm": ["fedavg", "scaffold"], "dropout": 0.2})
    results = tacit.run(study, tmp_path / "a")
    table = results.client_frame()
    assert len(table) == 2 * 3 * 10
    assert table.groupby(["run", "round"]).size().eq(10).all()
    assert results.summary()["accuracy"].min() > 0.3
    page = render(results)
    assert "a round tests and records those that take part in it alone" in page
    assert len(page) < 400_000
    assert (tmp_path / "a" / "history.jsonl").stat().st_size < 30_000
    assert all(file.stat().st_size < 30_000 for file in (tmp_path / "a" / "checkpoints").iterdir())
    assert results.plot("clients")._repr_png_()


def test_own_models_are_kept_of_the_last_round(tmp_path: Path) -> None:
    settings = {
        **CROWD,
        "clients": 120,
        "selection": {"name": "fraction", "c": 0.1},
        "algorithm": "local",
    }
    results = tacit.run(Study("crowd", **settings), tmp_path / "a")
    run = results.best()
    last = results.runs[run].participants(2)
    files = sorted(path.name for path in (tmp_path / "a" / "models").iterdir())
    assert files == sorted([f"{run}.pt", *(f"{run}-client-{client}.pt" for client in last)])
    results.model(run, client=last[0])
    absent = next(client for client in range(120) if client not in last)
    with pytest.raises(
        StudyError, match="of more than 100 clients, only the last round's have files"
    ):
        results.model(run, client=absent)


def test_fedplus_is_refused_where_its_server_would_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study("crowd", **{**CROWD, "algorithm": "fedplus"})
    size = 2 * 5000 * (6 * 8 + 8 + 8 * 3 + 3) * 4
    monkeypatch.setattr(horizontal, "machine_memory", lambda: size - 1)
    with pytest.raises(
        StudyError, match=r"fedplus keeps every client's model on the server: 5,000 of them"
    ) as caught:
        tacit.run(study, tmp_path / "a")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "a").exists()
    for known in (size, None):
        monkeypatch.setattr(horizontal, "machine_memory", lambda known=known: known)
        assert study_data.try_out(study.runs()[0], make_crowd())


def test_runs_that_divide_the_data_alike_share_the_division(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = []
    real = study_data.divide
    monkeypatch.setattr(
        study_data, "divide", lambda *given, **named: drawn.append(1) or real(*given, **named)
    )
    tacit.Splits(
        Study("small", **{**FAST, "algorithm": ["fedavg", "scaffold", "local"], "seed": [0, 1]})
    )
    assert len(drawn) == 2
    simulate(**{**FAST, "optimiser": [{"name": "sgd", "lr": lr} for lr in (0.1, 0.2, 0.3)]})
    assert len(drawn) == 3


def test_a_draw_of_very_many_clients_is_not_repeated_for_ever() -> None:
    labels = numpy_generator(0, "labels").integers(0, 10, 60_000)
    with pytest.raises(DataError, match="in 50 draws some client always had fewer than 2 samples"):
        Split.build("label_dirichlet")(labels, 20_000, numpy_generator(0))


@pytest.mark.parametrize("name", ["iid", "labels_per_party", "by_client", "feature_noise"])
def test_twenty_thousand_clients_get_every_sample_once(name: str) -> None:
    owner = numpy_generator(1).permutation(np.arange(60_000) % 20_000)
    keys = owner if name == "by_client" else owner % 10
    parts = Split.build(name)(keys, 20_000, numpy_generator(0))
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(60_000))
    if name == "by_client":
        assert all((owner[part] == client).all() for client, part in enumerate(parts))


def test_a_cohort_does_not_ask_for_everybodys_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = RunState.participant

    def noting(state: RunState, client: int, *given: Any) -> Any:
        asked.append(client)
        return real(state, client, *given)

    monkeypatch.setattr(RunState, "participant", noting)
    played = of_a_crowd(2000, algorithm="scaffold")
    chosen = [k for turn in range(3) for k in played.states[0].run.participants(turn)]
    assert asked == chosen
