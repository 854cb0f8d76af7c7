"""Events tell all that a tracker of experiments needs, to as many listeners as there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from playground import FAST, FUSED, StopAfter

import tacit
from tacit.core.errors import StudyError
from tacit.core.events import (
    Event,
    ModelSaved,
    Noted,
    ReportWritten,
    RoundFinished,
    RunFinished,
    StudyStarted,
    TableWritten,
    tell,
)
from tacit.records.history import read_lines
from tacit.study.study import Study, describe

STUDY: dict[str, Any] = {
    **FAST,
    "name": "tracked",
    "rounds": 3,
    "algorithm": ["fedavg", {"name": "fedplus", "mu": [0.1, 1.0]}],
}


class Tracker:
    """Knows nothing but events; what it holds is what it would send to a server."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.parameters: dict[str, Any] = {}
        self.metrics: dict[str, list[dict[str, Any]]] = {}
        self.models: dict[tuple[str, int | None], Path] = {}
        self.statuses: dict[str, str] = {}
        self.tables: dict[str, Path] = {}
        self.report = Path()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case StudyStarted(settings=settings):
                self.parameters = json.loads(json.dumps(settings))
            case RoundFinished(run=run, metrics=metrics):
                self.metrics.setdefault(run, []).append(dict(metrics))
            case ModelSaved(run=run, client=client, path=path):
                assert run not in self.statuses, "a model of a run that has ended"
                self.models[run, client] = Path(path)
            case RunFinished(run=run, status=status):
                self.statuses[run] = status
            case TableWritten(name=name, path=path):
                self.tables[name] = Path(path)
            case ReportWritten(path=path):
                self.report = Path(path)

    def started(self) -> StudyStarted:
        starts = [event for event in self.events if isinstance(event, StudyStarted)]
        assert len(starts) == 1
        return starts[0]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_tracker_that_knows_nothing_but_events_rebuilds_the_study(
    tmp_path: Path, workers: int
) -> None:
    tracker = Tracker()
    results = tacit.run(STUDY, tmp_path / "a", workers=workers, on_event=tracker)
    assert tracker.parameters == {id: describe(run) for id, run in results.runs.items()}
    assert {settings["algorithm"]["name"] for settings in tracker.parameters.values()} == {
        "fedavg",
        "fedplus",
    }
    lines = read_lines(tmp_path / "a" / "history.jsonl")
    heard = [json.loads(json.dumps(line)) for id in results.runs for line in tracker.metrics[id]]
    for line, metrics in zip(lines, heard, strict=True):
        assert line == {key: metrics[key] for key in line}
    assert tracker.statuses == dict.fromkeys(results.runs, "finished")
    assert set(tracker.models.values()) == set((tmp_path / "a" / "models").glob("*.pt"))
    assert tracker.report == results.report
    assert isinstance(tracker.events[-1], ReportWritten)
    assert tracker.report.read_text().startswith("<!doctype html>")
    summary = pd.read_csv(tracker.tables["summary"])
    assert set(summary["run"]) == set(results.runs)
    assert set(tracker.tables.values()) == set((tmp_path / "a").glob("*.csv"))


def test_models_are_told_by_run_and_client(tmp_path: Path) -> None:
    tracker = Tracker()
    results = tacit.run(STUDY, tmp_path / "a", on_event=tracker)
    for id, run in results.runs.items():
        clients = {client for heard_id, client in tracker.models if heard_id == id}
        personal = run.algorithm.name == "fedplus"
        assert clients == ({None, 0, 1, 2} if personal else {None})
    id = next(id for id, run in results.runs.items() if run.algorithm.name == "fedplus")
    saved = torch.load(tracker.models[id, 1], weights_only=True)
    model = results.model(id, client=1)
    assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())


def test_the_start_holds_the_study_from_which_it_can_be_run_again(tmp_path: Path) -> None:
    tracker = Tracker()
    tacit.run(STUDY, tmp_path / "a", on_event=tracker)
    start = tracker.started()
    again = Study.of(json.loads(json.dumps(start.study)))
    assert again.runs() == Study.of(STUDY).runs()
    assert again.to_yaml() == (tmp_path / "a" / "study.yaml").read_text()
    assert set(start.settings) == set(start.grid)


def test_a_resumed_study_starts_with_the_same_event_but_for_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.execution.runner.CHECKPOINT_SECONDS", 0.0)
    first, second = Tracker(), Tracker()
    with pytest.raises(KeyboardInterrupt):
        tacit.run(STUDY, tmp_path / "a", workers=1, on_event=[first, StopAfter(5)])
    tacit.resume(tmp_path / "a", workers=1, on_event=second)
    before, after = vars(first.started()), vars(second.started())
    assert before.pop("done") == 0
    assert after.pop("done") > 0
    assert before == after
    heard = [event for event in first.events + second.events if isinstance(event, RoundFinished)]
    rounds = {(event.run, event.round) for event in heard}
    assert len(rounds) == 3 * STUDY["rounds"]


def test_two_listeners_hear_the_same_in_the_same_order(tmp_path: Path) -> None:
    first, second = Tracker(), Tracker()
    tacit.run(STUDY, tmp_path / "a", on_event=(first, second))
    assert first.events == second.events
    assert len(first.events) > 3 * STUDY["rounds"]


def test_what_a_listener_raises_ends_the_study_which_can_be_resumed(tmp_path: Path) -> None:
    class FullError(Exception):
        pass

    def refuse(event: Event) -> None:
        if isinstance(event, RoundFinished) and event.round == 2:
            raise FullError("the server's disk is full")

    before, after = Tracker(), Tracker()
    with pytest.raises(FullError) as caught:
        tacit.run(STUDY, tmp_path / "a", workers=1, on_event=[before, refuse, after])
    assert caught.value.__notes__ == [f"continue with: tacit.resume({str(tmp_path / 'a')!r})"]
    assert before.events[:-1] == after.events
    assert isinstance(before.events[-1], RoundFinished)
    results = tacit.resume(tmp_path / "a", workers=1)
    assert (results.summary()["status"] == "finished").all()


def test_after_a_listener_has_failed_the_ends_of_all_runs_are_still_told(tmp_path: Path) -> None:
    def refuse(event: Event) -> None:
        if isinstance(event, RunFinished):
            raise OSError("the server is gone")

    before, after = Tracker(), Tracker()
    study = {**FUSED, "split": "iid"}  # two runs in one block
    with pytest.raises(OSError, match="the server is gone"):
        tacit.run(study, tmp_path / "a", workers=1, on_event=[refuse, before])
    results = tacit.resume(tmp_path / "a", workers=1, on_event=after)
    assert not before.statuses
    assert after.statuses == dict.fromkeys(results.runs, "finished")


def test_nobody_may_listen(tmp_path: Path) -> None:
    tacit.run(STUDY, tmp_path / "a", on_event=[])
    assert (tmp_path / "a" / "report.html").exists()


@pytest.mark.parametrize("listeners", ["tracker", [3], 3, {"a": print}], ids=repr)
def test_what_cannot_listen_is_refused_before_anything_is_written(
    tmp_path: Path, listeners: Any
) -> None:
    with pytest.raises(
        StudyError,
        match=r"^on_event: expected a function of an event, or a list of such functions, got ",
    ):
        tacit.run(STUDY, tmp_path / "a", on_event=listeners)
    assert not (tmp_path / "a").exists()


def test_parties_that_compare_tell_several_listeners_too() -> None:
    first, second = Tracker(), Tracker()
    tacit.psi({"alice": ["1", "2"], "bob": ["2"]}, "nin", on_event=[first, second])
    assert first.events == second.events != []


def test_one_listener_is_told_without_a_detour() -> None:
    tracker = Tracker()
    assert tell(tracker) is tracker
    tell([tracker, tracker])(Noted("twice"))
    assert tracker.events == [Noted("twice")] * 2
