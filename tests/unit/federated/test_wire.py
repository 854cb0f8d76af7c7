"""Stages of the wire: what arrives, what is remembered, and what travels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from playground import simulate, tiny_dataset

from tacit.core.errors import StudyError
from tacit.federated.wire.quantise import Quantise
from tacit.federated.wire.stage import Load, Stage, message_bytes
from tacit.federated.wire.top_k import TopK

D = torch.float64


def rows(count: int, size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, size, dtype=D, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bits", [8, 4])
def test_quantised_numbers_lie_on_their_bucket_s_levels_next_to_what_they_were(bits: Any) -> None:
    x = rows(2, 1000)
    found = Quantise(bits, bucket=100).client({"dx": x}, {}, [1, 2])[0]["dx"]
    levels = 2 ** (bits - 1) - 1
    steps = x.view(2, 10, 100).abs().amax(2, keepdim=True) / levels
    places = found.view(2, 10, 100) / steps
    torch.testing.assert_close(places, places.round())
    assert places.abs().max() <= levels + 1e-9
    assert ((found - x).view(2, 10, 100).abs() <= steps + 1e-12).all()


def test_quantising_is_right_on_average() -> None:
    x = rows(1, 50)
    stage = Quantise(4)
    mean = torch.stack([stage.client({"dx": x}, {}, [s])[0]["dx"] for s in range(3000)]).mean(0)
    step = x.abs().max() / 7
    assert (mean - x).abs().max() < 5 * step / 2 / math.sqrt(3000)


def test_zero_stays_zero_and_columns_pass() -> None:
    message = {"dx": torch.zeros(2, 700), "a": torch.tensor([[3.3], [4.4]])}
    found, memory = Quantise(4).client(message, {}, [0, 1])
    assert torch.equal(found["dx"], message["dx"])
    assert torch.equal(found["a"], message["a"])
    assert memory == {}


@given(st.floats(0.001, 1.0), st.integers(2, 300), st.integers(0, 99))
@settings(deadline=None)
def test_top_k_sends_the_largest_and_remembers_the_rest(share: float, size: int, seed: int) -> None:
    x, owed = rows(2, size, seed), rows(2, size, seed + 1)
    stage = TopK(share)
    sent, memory = stage.client({"dx": x}, {"dx": owed}, [0, 0])
    k = max(1, math.floor(share * size + 1e-9))
    torch.testing.assert_close(sent["dx"] + memory["dx"], x + owed)
    assert ((sent["dx"] != 0).sum(1) == k).all()
    for row in range(2):
        assert (
            sent["dx"][row].abs()[sent["dx"][row] != 0].min()
            >= memory["dx"][row].abs().max() - 1e-12
        )


def test_without_error_feedback_the_rest_is_lost() -> None:
    stage = TopK(0.1, error_feedback=False)
    assert stage.init({"dx": rows(1, 20)}) == {}
    sent, memory = stage.client({"dx": rows(1, 20)}, {}, [0])
    assert memory == {}
    assert (sent["dx"] != 0).sum() == 2


def test_rows_are_independent_of_their_company() -> None:
    x = rows(3, 900)
    for stage in (Quantise(8), Quantise(4), TopK(0.1)):
        together, memory = stage.client({"dx": x}, stage.init({"dx": x}), [5, 6, 7])
        for k in range(3):
            one = {"dx": x[k : k + 1]}
            alone, mine = stage.client(one, stage.init(one), [5 + k])
            assert torch.equal(alone["dx"], together["dx"][k : k + 1])
            assert all(torch.equal(value, memory[name][k : k + 1]) for name, value in mine.items())


def test_bytes_are_those_that_travel() -> None:
    """1,000 single-precision numbers and one column: 4,004 bytes as they are."""
    message = {"dx": torch.zeros(1, 1000), "a": torch.zeros(1, 1)}
    stages: dict[str, list[Stage]] = {
        "plain": [],
        "8": [Quantise(8)],
        "4": [Quantise(4)],
        "top": [TopK(0.01)],
    }
    stages["both"] = [TopK(0.01), Quantise(8)]
    found = {name: message_bytes(message, each) for name, each in stages.items()}
    assert found["plain"] == 4004
    assert found["8"] == 1000 + 2 * 4 + 4  # two buckets' scales
    assert found["4"] == 500 + 2 * 4 + 4
    assert (
        found["top"] == math.ceil(10 * (32 + 10) / 8) + 4
    )  # ten numbers, each with a place of 10 bits
    assert found["both"] == math.ceil((10 * (8 + 10) + 2 * 32) / 8) + 4
    assert Load(10, 32, 3).bytes == 41


@pytest.mark.parametrize(
    "wire", [["quantise"], [{"name": "top_k", "share": 0.3}], ["top_k", "quantise"]]
)
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fednova"])
def test_a_study_learns_through_the_wire_for_fewer_bytes(wire: Any, algorithm: str) -> None:
    plain, cheap = (simulate(algorithm=algorithm, rounds=30, wire=stages) for stages in ([], wire))
    assert cheap.records[-1]["accuracy"] > plain.records[-1]["accuracy"] - 0.15  # type: ignore[attr-defined]
    assert cheap.records[-1]["loss"] != plain.records[-1]["loss"]  # type: ignore[attr-defined]
    size = sum(r["bytes_up"] for r in cheap.records) / sum(r["bytes_up"] for r in plain.records)  # type: ignore[attr-defined]
    assert size < 0.7


def test_with_error_feedback_what_was_sent_and_what_is_owed_add_up() -> None:
    """After a round, FedAvg's model and the mean of what the clients still owe are the model without the wire."""
    run: Any = {"rounds": 1, "batch_size": 8, "split": {"name": "quantity_skew", "beta": 2.0}}
    stages = [[{"name": "top_k", "share": share}] for share in (0.2, 1.0)]
    some, all_, plain = (
        simulate(tiny_dataset(), wire=wire, **run).states[0] for wire in (*stages, [])
    )
    n = torch.tensor([len(part) for part in some.train], dtype=D)[:, None]
    owed = torch.cat([some.wire_memory[k]["0 dx"] for k in range(3)])
    torch.testing.assert_close(some.server["x"] + (n * owed).sum(0) / n.sum(), plain.server["x"])
    assert owed.any(1).all()
    torch.testing.assert_close(all_.server["x"], plain.server["x"])


def test_a_lost_reply_does_not_touch_the_wires_memory() -> None:
    lists = {"name": "listed", "lists": [[0, 1, 2], [0]]}
    run: Any = {"batch_size": 8, "wire": [{"name": "top_k", "share": 0.2}], "selection": lists}
    one, two = (simulate(tiny_dataset(), rounds=r, **run).states[0].wire_memory for r in (1, 2))
    assert torch.equal(one[1]["0 dx"], two[1]["0 dx"])
    assert not torch.equal(one[0]["0 dx"], two[0]["0 dx"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "quantise", "bits": 3},
        {"name": "top_k", "share": 0},
        {"name": "quantise", "bucket": 0},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(StudyError, match="expected"):
        Stage.build(wrong)


@pytest.mark.parametrize(
    "wire",
    [[{"name": "quantise", "bits": 4}], [{"name": "top_k", "share": 0.2, "error_feedback": False}]],
)
def test_through_a_wire_that_loses_something_c_is_still_the_mean_of_the_control_variates(
    wire: Any,
) -> None:
    split = {"name": "labels_per_party", "labels": 1}
    run: Any = {
        "rounds": 8,
        "clients": 3,
        "local_epochs": 3,
        "batch_size": None,
        "split": split,
        "wire": wire,
    }
    state = simulate(tiny_dataset(120), algorithm="scaffold", **run).states[0]
    torch.testing.assert_close(
        state.server["c"], torch.cat([state.memory[k]["c"] for k in range(3)]).mean(0)
    )


def test_with_error_feedback_c_is_the_mean_less_what_is_owed() -> None:
    run: Any = {
        "rounds": 8,
        "clients": 3,
        "batch_size": 8,
        "wire": [{"name": "top_k", "share": 0.2}, "quantise"],
    }
    state = simulate(tiny_dataset(120), algorithm="scaffold", **run).states[0]
    kept = torch.cat([state.memory[k]["c"] - state.wire_memory[k]["0 dc"] for k in range(3)])
    torch.testing.assert_close(state.server["c"], kept.mean(0))


def test_the_server_s_copy_of_a_personal_model_is_the_model_less_what_is_owed() -> None:
    run: Any = {"rounds": 8, "batch_size": 8, "wire": [{"name": "top_k", "share": 0.2}]}
    state = simulate(tiny_dataset(120), algorithm={"name": "fedplus", "mu": 0.1}, **run).states[0]
    for client in range(3):
        owed = state.wire_memory[client]["0 dx"][0]
        torch.testing.assert_close(
            state.server["models"][client], state.memory[client]["w"][0] - owed
        )


def test_quantising_does_not_hide_a_divergence() -> None:
    run: Any = {
        "model": "mlp",
        "optimiser": {"name": "sgd", "lr": 1e300},
        "rounds": 3,
        "wire": ["quantise"],
    }
    assert simulate(tiny_dataset(), **run).states[0].status == "diverged"
    multi = {"name": "multi_krum", "f": 1}
    assert (
        simulate(tiny_dataset(), **{**run, "wire": []}, clients=5, combiner=multi).states[0].status
        == "diverged"
    )


def test_the_buffers_of_a_model_travel_whole() -> None:
    message = {
        "dx": torch.zeros(1, 1000),
        "buffers": torch.zeros(1, 100),
        "counters": torch.zeros(1, 2, dtype=torch.long),
    }
    assert message_bytes(message, [TopK(0.01)]) == math.ceil(10 * (32 + 10) / 8) + 400 + 16


def test_one_nan_is_not_remembered_for_ever() -> None:
    x = rows(1, 20)
    x[0, 3] = math.nan
    assert (
        TopK(0.1)
        .client({"dx": x}, {"dx": torch.zeros(1, 20, dtype=D)}, [0])[1]["dx"]
        .isfinite()
        .all()
    )


def test_every_stage_client_and_round_draws_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    plain = Quantise.client

    def listen(self: Quantise, message: Any, memory: Any, seeds: Any) -> Any:
        seen.extend(seeds)
        return plain(self, message, memory, seeds)

    @dataclass(frozen=True)
    class Again(Quantise):
        """Another stage, since one cannot come twice."""

    monkeypatch.setattr(Quantise, "client", listen)
    simulate(tiny_dataset(), rounds=2, wire=["quantise", Again(bits=4)])
    assert len(seen) == len(set(seen)) == 2 * 2 * 3
