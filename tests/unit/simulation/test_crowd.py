"""Many clients, and a few that take part in a round: these few decide its cost and its record."""

from __future__ import annotations

from dataclasses import replace
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
    crowd = make_crowd()
    count = 4 * population
    data = replace(crowd, x=crowd.x[:count], y=crowd.y[:count])
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
    sizes = []
    for population in (200, 1000, 5000):
        evaluated.clear()
        of_a_crowd(population, algorithm=algorithm)
        sizes.append(list(evaluated))
    assert sizes[0] == sizes[1] == sizes[2]
    # a round's global test, and ten local ones with one model or with two
    assert sum(sizes[0]) <= 3 * (100 + 2 * 10)


@pytest.mark.parametrize("population", [ALL_TESTED, ALL_TESTED + 1])
def test_up_to_a_hundred_clients_everybody_is_recorded_and_beyond_those_who_take_part(
    population: int,
) -> None:
    played = of_a_crowd(population, dropout=0.5)
    for record in played.records:
        chosen = played.states[0].run.participants(record["round"] - 1)
        recorded = [client["client"] for client in record["clients"]]
        assert recorded == (list(range(100)) if population == 100 else chosen)
        worked = [client["client"] for client in record["clients"] if client["steps"]]
        assert len(worked) == record["replies"] < 10  # the lost ones are recorded too
        assert set(worked) < set(chosen)
        assert all(client["test_loss"] is not None for client in record["clients"])


def test_summary_figures_are_those_of_the_recorded_clients() -> None:
    played = of_a_crowd(300, attackers={"count": 100, "kind": "sign_flip"})
    record = played.records[-1]
    assert len(record["clients"]) == 10
    honest = [client for client in record["clients"] if not client["attacker"]]
    accuracies = [client["test_accuracy"] for client in honest]
    assert 0 < len(accuracies) < 10
    assert record["local_accuracy"] == pytest.approx(np.mean(accuracies))
    assert record["worst"] == min(accuracies)
    assert record["spread"] == pytest.approx(np.std(accuracies))


def test_a_crowds_own_tests_are_those_that_a_smaller_study_measures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client's figures do not depend on who else is tested, be it a few clients or everybody."""
    few = of_a_crowd(200, algorithm="fedplus")
    monkeypatch.setattr(tested_clients, "ALL_TESTED", 200)
    everybody = of_a_crowd(200, algorithm="fedplus")
    assert torch.equal(few.states[0].server["x"], everybody.states[0].server["x"])
    for record, full_record in zip(few.records, everybody.records, strict=True):
        assert len(full_record["clients"]) == 200
        for client in record["clients"]:
            assert client == full_record["clients"][client["client"]]


def test_five_thousand_clients_run_and_are_reported(tmp_path: Path) -> None:
    study = Study("crowd", **{**CROWD, "algorithm": ["fedavg", "scaffold"], "dropout": 0.2})
    results = tacit.run(study, tmp_path / "a")
    table = results.client_frame()
    assert len(table) == 2 * 3 * 10
    assert table.groupby(["run", "round"]).size().eq(10).all()
    assert results.summary()["accuracy"].min() > 0.3
    page = render(results)
    assert "a round tests and records only those that take part in it" in page
    assert len(page) < 400_000
    checkpoints = (tmp_path / "a" / "checkpoints").iterdir()
    for file in (tmp_path / "a" / "history.jsonl", *checkpoints):
        assert file.stat().st_size < 30_000
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
    files = {path.name for path in (tmp_path / "a" / "models").iterdir()}
    client_files = {f"{run}-client-{client}.pt" for client in last}
    assert files == {f"{run}.pt"} | client_files
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
    message = "fedplus keeps every client's model on the server: 5,000 of them"
    with pytest.raises(StudyError, match=message) as caught:
        tacit.run(study, tmp_path / "a")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "a").exists()
    for memory in (size, None):
        monkeypatch.setattr(horizontal, "machine_memory", lambda memory=memory: memory)
        assert study_data.try_out(study.runs()[0], make_crowd())


def test_runs_that_divide_the_data_alike_share_the_division(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    divisions = []
    real = study_data.divide

    def noting(*arguments: Any, **options: Any) -> Any:
        divisions.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr(study_data, "divide", noting)
    varied = {"algorithm": ["fedavg", "scaffold", "local"], "seed": [0, 1]}
    tacit.Splits(Study("small", **{**FAST, **varied}))
    assert len(divisions) == 2
    simulate(**{**FAST, "optimiser": {"name": "sgd", "lr": [0.1, 0.2, 0.3]}})
    assert len(divisions) == 3


def test_a_draw_of_very_many_clients_is_not_repeated_for_ever() -> None:
    labels = numpy_generator(0, "labels").integers(0, 10, 60_000)
    with pytest.raises(DataError, match="in 50 draws some client always had fewer than 2 samples"):
        Split.build("label_dirichlet")(labels, 20_000, numpy_generator(0))


@pytest.mark.parametrize("name", ["iid", "labels_per_party", "by_client", "feature_noise"])
def test_twenty_thousand_clients_get_every_sample_once(name: str) -> None:
    owner = numpy_generator(1).permutation(np.arange(60_000) % 20_000)
    keys = owner if name == "by_client" else owner % 10
    shards = Split.build(name)(keys, 20_000, numpy_generator(0))
    assert np.array_equal(np.sort(np.concatenate(shards)), np.arange(60_000))
    if name == "by_client":
        assert all((owner[shard] == client).all() for client, shard in enumerate(shards))


def test_a_cohort_does_not_ask_for_everybodys_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = RunState.participant

    def noting(state: RunState, client: int, *own_start: Any) -> Any:
        asked.append(client)
        return real(state, client, *own_start)

    monkeypatch.setattr(RunState, "participant", noting)
    played = of_a_crowd(2000, algorithm="scaffold")
    chosen = []
    for round in range(3):
        chosen += played.states[0].run.participants(round)
    assert asked == chosen
