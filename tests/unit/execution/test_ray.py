"""A study on a real Ray cluster of two nodes on this machine, one of which is killed half way."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folders import assert_same_results

import tacit
from tacit.core.errors import StudyError
from tacit.core.events import Event, RoundFinished, RunFinished, Warned

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")

STUDY = {
    "dataset": "digits",
    "model": "mlp",
    "clients": 3,
    "rounds": 100,
    "algorithm": ["fedavg", {"name": "fedprox", "mu": 0.1}],
    "split": ["iid", "label_dirichlet"],
}
# A dead node is noticed after two seconds, not after fifteen; a slow one has time to answer.
# Workers count as much as other processes, or a busy machine would leave them nothing.
SOON = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 20_000,
    "health_check_failure_threshold": 3,
    "worker_niceness": 0,
}


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": SOON}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()


def test_a_study_on_ray_survives_the_death_of_a_node(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.execution.ray.SLICE", 0.05)  # a few rounds
    other = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    events: list[Event] = []
    alive = True

    def listen(event: Event) -> None:
        nonlocal alive
        events.append(event)
        played = {heard.run for heard in events if isinstance(heard, RoundFinished)}
        ended = {heard.run for heard in events if isinstance(heard, RunFinished)}
        if alive and isinstance(event, RoundFinished):
            # no further slices are asked for meanwhile: the first worker waits for the other
            time.sleep(0.1)
        if alive and len(played - ended) > 1:  # both nodes are in the middle of a run
            alive = False
            cluster.remove_node(other, allow_graceful=False)  # SIGKILL to all its processes

    tacit.run(STUDY, tmp_path / "ray", on=cluster.address, on_event=listen)
    tacit.run(STUDY, tmp_path / "here", workers=1)
    assert_same_results(tmp_path / "ray", tmp_path / "here")
    assert not alive
    warnings = [event.text for event in events if isinstance(event, Warned)]
    assert any("a worker of the Ray cluster was lost" in text for text in warnings)
    assert len([event for event in events if isinstance(event, RunFinished)]) == 4
    assert len([event for event in events if isinstance(event, RoundFinished)]) == 4 * 100

    def interrupt(event: Event) -> None:
        if isinstance(event, RunFinished):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tacit.run(STUDY, tmp_path / "stopped", on=cluster.address, on_event=interrupt)
    tacit.resume(tmp_path / "stopped", on=cluster.address)
    assert_same_results(tmp_path / "stopped", tmp_path / "here")


def test_workers_on_ray_do_not_look_for_modules_in_the_current_folder_first(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("yaml", "threadpoolctl", "sklearn"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    study = {"dataset": "iris", "model": "linear", "rounds": 1}
    tacit.run(study, tmp_path / "out", on=cluster.address)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("nonsense", r"expected ray, HOST:PORT or ray://HOST:PORT, got 'nonsense'"),
        ("127.0.0.1:9", "no Ray cluster at"),
    ],
)
def test_a_cluster_that_is_not_there_is_named(address: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=text) as caught:
        tacit.run(STUDY, tmp_path / "a", on=address)
    assert caught.value.parameters == ("on",)
    assert not (tmp_path / "a").exists()


def test_a_cluster_without_gpus_is_refused_even_if_workers_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tacit.execution import ray as on_ray

    monkeypatch.setattr(on_ray.ray, "cluster_resources", lambda: {"CPU": 2.0})
    plan = tacit.plan(STUDY, device="cuda", on="ray", workers=2)
    recorder: Any = None
    with pytest.raises(StudyError, match="has no GPU; use the device cpu") as caught:
        on_ray.RayPool(plan, [], {}, recorder)
    assert caught.value.parameters == ("device",)
