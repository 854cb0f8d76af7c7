"""Studies: their grids, their files, their names, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from tacit.core.errors import DataError, StudyError, TacitError
from tacit.core.events import ignore
from tacit.federated.algorithms.fedprox import FedProx
from tacit.study.grid import name_point
from tacit.study.run_names import label_runs, row_names, run_ids, table_columns
from tacit.study.study import Study, describe
from tacit.study.study_data import load_data


def test_lists_multiply_also_inside_a_method() -> None:
    study = Study(
        split=["iid", {"name": "label_dirichlet", "beta": [0.1, 0.5]}],
        algorithm=["fedavg", {"name": "fedprox", "mu": [0.01, 0.1, 1]}],
        seed=[0, 1],
    )
    runs = study.runs()
    assert len(runs) == 3 * 4 * 2
    assert len({str(describe(run)) for run in runs}) == 24


def test_a_setting_that_takes_a_list_varies_as_a_grid() -> None:
    flat = Study(clients=3, local_epochs=[5, 1, 2]).runs()
    assert [run.local_epochs for run in flat] == [(5, 1, 2)]
    varied = Study(clients=3, local_epochs={"grid": [1, [5, 1, 2]]}).runs()
    assert [run.local_epochs for run in varied] == [1, (5, 1, 2)]
    labels = Study(clients=3, split={"name": "labels_per_party", "labels": [2, 3, 5]}).runs()
    assert labels[0].split.labels == (2, 3, 5)  # type: ignore[attr-defined]
    hidden = Study(model={"name": "mlp", "hidden": {"grid": [[8], [8, 4]]}}).runs()
    assert [run.model.hidden for run in hidden] == [(8,), (8, 4)]  # type: ignore[attr-defined]


def test_objects_may_stand_for_names() -> None:
    by_object = Study(algorithm=FedProx(0.5))
    by_name = Study(algorithm={"name": "fedprox", "mu": 0.5})
    assert by_object.runs() == by_name.runs()


def test_a_study_survives_its_file(tmp_path: Path) -> None:
    study = Study(
        "x",
        clients=3,
        local_epochs=[5, 1, 2],
        algorithm=["fedavg", FedProx(0.5)],
        optimiser={"name": "adam"},
    )
    (tmp_path / "s.yaml").write_text(study.to_yaml())
    again = Study.from_file(tmp_path / "s.yaml")
    assert again.runs() == study.runs()
    assert again.name == "x"


def test_overrides_reach_into_a_method(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("algorithm: fedprox\nrounds: 3\n")
    overrides = ["algorithm.mu=1e-1", "rounds=7", "seed=[1]", "optimiser.lr=0.5"]
    (run,) = Study.from_file(tmp_path / "s.yaml", overrides).runs()
    assert run.algorithm == FedProx(0.1)
    assert (run.rounds, run.seed, run.optimiser.lr) == (7, 1, 0.5)


def test_ranges_and_numpy_numbers_are_numbers() -> None:
    study = Study(
        seed=range(3),
        clients=np.int64(3),
        algorithm={"name": "fedprox", "mu": np.logspace(-2, 0, 2)},
    )
    assert len(study.runs()) == 6
    assert Study.of(yaml.safe_load(study.to_yaml())).runs() == study.runs()


def test_a_models_arguments_may_hold_a_grid() -> None:
    model = {"name": "module", "path": "own_code:Net", "arguments": {"width": {"grid": [4, 8]}}}
    arguments = [run.model.arguments for run in Study(model=model).runs()]  # type: ignore[attr-defined]
    assert arguments == [{"width": 4}, {"width": 8}]


def test_clients_that_vary_are_named_beside_a_centralised_reference() -> None:
    labels = label_runs(Study(clients=[2, 3], centralised=True).runs())
    assert [label["clients"] for label in labels] == [2, 3, 1]
    assert row_names(labels) == ["clients=2", "clients=3", "centralised"]
    study = Study(algorithm=["fedavg", "fedprox"], rounds=[2, 3], centralised=True)
    several = label_runs(study.runs())
    assert row_names(several)[0] == "fedavg, rounds=2"
    assert row_names(several)[-1] == "centralised, rounds=3"


def test_tables_have_a_column_per_attack_where_only_attacks_vary() -> None:
    attacks = ["none", {"kind": "sign_flip"}]
    labels = label_runs(Study(combiner=["mean", "median"], attackers=attacks).runs())
    assert table_columns(labels) == "attackers"
    assert row_names(labels) == [
        "combiner=mean",
        "combiner=mean",
        "combiner=median",
        "combiner=median",
    ]
    both = label_runs(Study(split=["iid", "quantity_skew"], attackers=attacks).runs())
    assert table_columns(both) == "split"
    assert row_names(both)[1] == "attackers=sign_flip"


def test_equal_points_of_the_grid_are_run_once() -> None:
    assert len(Study(algorithm=["fedavg", "fedavg"]).runs()) == 1


def test_a_centralised_reference_is_one_client_with_all_the_data() -> None:
    runs = Study(
        algorithm=["fedavg", "fedprox"],
        split=["iid", "quantity_skew"],
        seed=[0, 1],
        centralised=True,
    ).runs()
    references = [run for run in runs if run.is_reference]
    assert len(runs) == 8 + 2
    assert [run.clients for run in references] == [1, 1]
    assert [run.split.name for run in references] == ["iid", "iid"]
    assert [run.seed for run in references] == [0, 1]


def test_runs_are_named_by_what_tells_them_apart() -> None:
    runs = Study(
        algorithm=["fedavg", {"name": "fedprox", "mu": [0.1, 1]}], seed=[0, 1], centralised=True
    ).runs()
    labels = label_runs(runs)
    assert labels[2] == {"split": "iid", "algorithm": "fedprox(mu=0.1)", "seed": 0}
    assert labels[-1] == {"split": "all data", "algorithm": "centralised", "seed": 1}
    assert len(set(run_ids(labels))) == len(runs)
    assert run_ids(labels)[2] == "002-iid-fedprox-mu-0.1-seed-0"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algoritm": "fedavg"}, "a study has no setting 'algoritm'; did you mean algorithm?"),
        ({"algorithm": "fedavgg"}, "no algorithm is called 'fedavgg'; did you mean fedavg?"),
        (
            {"algorithm": {"name": "fedprox", "nu": 1}},
            "fedprox has no setting 'nu'; did you mean mu?",
        ),
        ({"algorithm": {"mu": 1}}, "expected a name or {name: clustered, settings}"),
        ({"algorithm": []}, "algorithm: an empty list leaves nothing to run"),
        ({"algorithm": None}, "algorithm: expected a name"),
        ({"rounds": "many"}, "rounds: expected a whole number, got 'many'"),
        ({"rounds": 0}, "rounds: expected 1 or more, got 0"),
        ({"clients": -1}, "clients: expected 1 or more"),
        (
            {"clients": 3, "local_epochs": [1, 2]},
            "local_epochs: expected one value for each of 3 clients, got [1, 2]",
        ),
        ({"batch_size": 0}, "batch_size: expected 1 or more"),
        ({"local_test": 1.0}, "local_test: expected a share"),
        ({"patience": 0}, "patience: expected 1 or more"),
        ({"initial": "random"}, "initial: expected same or different"),
        ({"algorithm": "fedsgd", "optimiser": "adam"}, "use optimiser: sgd"),
        ({"name": "a/b"}, "name: expected a word"),
        ({"seed": -1}, "seed: expected 0 or more"),
        ({"target_accuracy": 95}, "target_accuracy: expected a share"),
        (
            {"optimiser": {"name": "adam", "beta1": 2}},
            "adam.beta1: expected 0 or more and below 1, got 2.0",
        ),
        ({"optimiser": {"name": "adam", "eps": -1}}, "adam.eps: expected 0 or more"),
        ({"optimiser": {"name": "sgd", "lr": "inf"}}, "sgd.lr: expected a number above 0"),
        (
            {"optimiser": {"name": "sgd", "weight_decay": -1}},
            "sgd.weight_decay: expected 0 or more",
        ),
        ({"model": {"name": "mlp", "hidden": [0]}}, "mlp.hidden: expected widths of 1 or more"),
        ({"name": None}, "name: expected a word"),
        ({"name": ".."}, "name: expected a word"),
        ({"seed": {"grid": 3}}, "seed: expected {grid: [first, second, ...]}, got 3"),
    ],
)
def test_a_study_that_makes_no_sense_says_why(settings: dict[str, object], message: str) -> None:
    with pytest.raises(StudyError) as caught:
        Study(**settings).runs()  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "overrides", "message"),
    [
        ("algorithm: [fedavg\n", [], "is not valid YAML"),
        ("- a\n- b\n", [], "expected settings such as"),
        ("", [], "expected settings such as"),
        ("rounds: 3", ["rounds"], "expected key=value"),
        ("algorithm: [fedavg, fedprox]", ["algorithm.mu=1"], "algorithm is a list in this study"),
        ("rounds: 3", ["ronds=4"], "did you mean rounds?"),
        ("rounds: 3", ["seed=[1,"], "seed: '[1,' is not valid YAML"),
    ],
)
def test_a_study_file_that_cannot_be_read_says_why(
    tmp_path: Path, content: str, overrides: list[str], message: str
) -> None:
    (tmp_path / "s.yaml").write_text(content)
    with pytest.raises(TacitError) as caught:
        Study.from_file(tmp_path / "s.yaml", overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_missing_or_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("nowhere.yaml", "b.yaml", "."):
        with pytest.raises(StudyError, match="cannot read the study"):
            Study.from_file(tmp_path / name)


def test_a_folder_with_a_study_in_it_can_be_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("rounds: 3")
    with pytest.raises(StudyError) as caught:
        Study.from_file(tmp_path)
    assert f"or continue it with: tacit.resume({str(tmp_path)!r})" in str(caught.value)
    assert caught.value.parameters == ("resume",)


def test_an_error_keeps_its_parameters_when_its_point_is_named() -> None:
    error = StudyError("nothing is there", parameters=("data",))
    named = name_point(error, {"algorithm": "fedprox", "clients": 3})
    assert str(named) == "fedprox with clients 3: nothing is there"
    assert named.parameters == ("data",)


def test_data_in_a_file_are_refused_as_a_parameter(tmp_path: Path) -> None:
    (tmp_path / "iris.csv").write_text("x,y")
    with pytest.raises(DataError, match="is a file; expected the folder") as caught:
        load_data(Study(), str(tmp_path / "iris.csv"), ignore)
    assert caught.value.parameters == ("data",)
