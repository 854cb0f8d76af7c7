"""Kinds of run: which one a point of the grid becomes, and what a new one takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from playground import tiny_dataset

from tacit.core.errors import StudyError
from tacit.models.model import Mlp
from tacit.study.kinds.fusion import FusionRun
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.study.kinds.reference import ReferenceRun
from tacit.study.run_names import label_runs
from tacit.study.settings import SETTINGS, describe
from tacit.study.study import Study

KIND = """
from dataclasses import dataclass
from typing import ClassVar

from tacit.models.model import Model
from tacit.study.run import Run, setting


@dataclass(frozen=True)
class RelayRun(Run, kind="relay"):
    legs: int = setting(None, "with a relay: how often the model is passed on", after="clients")
    method_setting: ClassVar[str] = "model"

    @classmethod
    def claims(cls, settings):
        return settings["legs"] is not None

    def cautions(self):
        return ["a relay has no server"]
"""
STUDY = """
import sys

import tacit.study.kinds

tacit.study.kinds.__path__.append(sys.argv[1])
from tacit.study.checks import cautions
from tacit.study.run_names import label_runs
from tacit.study.settings import SETTINGS
from tacit.study.study import Study

study = Study(legs=[None, 3], centralised=True)
print(list(SETTINGS).index("legs"), list(SETTINGS).index("clients"))
print([(run.kind, run.engine) for run in study.runs()])
print(cautions(study.runs()))
print(Study(**{**study.to_dict()}).to_yaml() == study.to_yaml())
try:
    Study(legs=3, dropout=0.5)
except tacit.TacitError as error:
    print(error)
"""


def test_a_point_of_the_grid_becomes_a_run_of_the_kind_that_claims_it() -> None:
    runs = Study(fusion=["pfnm", None], centralised=True, initial="different").runs()
    assert [type(run) for run in runs] == [FusionRun, HorizontalRun, ReferenceRun]
    assert [run.engine for run in runs] == ["fusion", "horizontal", "horizontal"]
    assert [run.is_reference for run in runs] == [False, False, True]


def test_every_kind_describes_all_settings_of_a_study_in_their_order() -> None:
    for run in Study(fusion=["pfnm", None], centralised=True).runs():
        assert list(describe(run)) == list(SETTINGS)


def test_a_fusion_is_described_by_what_its_clients_do() -> None:
    run = Study(fusion="pfnm", algorithm="fedprox", widths=[3, 4, 5, 4]).runs()[0]
    assert isinstance(run, FusionRun)
    assert describe(run)["algorithm"] == {"name": "local", "weights": "samples"}
    alone = run.alone(run.model_of(2))
    different = ("fusion", "widths", "model")
    for name in SETTINGS:
        is_same = describe(alone)[name] == describe(run)[name]
        assert is_same == (name not in different), name
    assert describe(alone)["fusion"] is describe(alone)["widths"] is None
    assert isinstance(alone.model, Mlp)
    assert set(alone.model.hidden) == {5}
    assert run.largest_model == alone.model


def test_fusions_that_differ_in_nothing_else_share_their_first_rounds_work() -> None:
    first, second = Study(fusion=["pfnm", "spahm"]).runs()
    other_seed = Study(fusion="pfnm", seed=1).runs()[0]
    assert first.shared_work() == second.shared_work() != other_seed.shared_work()
    assert Study().runs()[0].shared_work() is None


def test_a_reference_does_the_clients_mean_work_in_one_place() -> None:
    study = Study(
        local_epochs={"grid": [[1, 2, 3, 6]]},
        batch_size={"grid": [[8, 16, 32, 64]]},
        centralised=True,
    )
    reference = study.runs()[-1]
    assert isinstance(reference, ReferenceRun)
    assert (reference.clients, reference.local_epochs, reference.batch_size) == (1, 3, 8)
    assert label_runs(study.runs())[-1] == {"split": "all data", "algorithm": "centralised"}


def test_settings_of_another_kind_are_refused_by_the_kind_that_has_no_use_for_them() -> None:
    message = "pfnm fuses whole networks that every client has trained alone; leave out wire"
    with pytest.raises(StudyError, match=message):
        Study(fusion="pfnm", wire=["top_k"])
    message = "widths: only a fusion can combine networks of different widths"
    with pytest.raises(StudyError, match=message):
        Study(widths=[3, 4, 5, 4])


def test_a_network_that_the_kind_cannot_use_is_refused_with_the_data() -> None:
    run = Study(fusion="pfnm").runs()[0]
    linear = Study(model="linear").runs()[0].model.make((5,), 3)
    with pytest.raises(StudyError, match="pfnm cannot fuse"):
        run.check_data(linear, tiny_dataset(), [5, 5, 5, 5])
    Study().runs()[0].check_data(linear, tiny_dataset(), [5, 5, 5, 5])


def test_a_new_kind_is_a_file_among_the_kinds(tmp_path: Path) -> None:
    (tmp_path / "relay.py").write_text(KIND)
    command = [sys.executable, "-c", STUDY, str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == [
        "4 3",
        "[('horizontal', 'horizontal'), ('relay', 'relay'), ('reference', 'horizontal')]",
        "['a relay has no server']",
        "True",
        "dropout is not a setting of a relay run; leave it out",
    ]
