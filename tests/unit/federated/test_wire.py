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
    message, _ = Quantise(bits, bucket=100).client({"dx": x}, {}, [1, 2])
    rounded = message["dx"]
    levels = 2 ** (bits - 1) - 1
    steps = x.view(2, 10, 100).abs().amax(2, keepdim=True) / levels
    level = rounded.view(2, 10, 100) / steps
    torch.testing.assert_close(level, level.round())
    assert level.abs().max() <= levels + 1e-9
    moved = (rounded - x).view(2, 10, 100).abs()
    assert (moved <= steps + 1e-12).all()


def test_quantising_is_right_on_average() -> None:
    x = rows(1, 50)
    stage = Quantise(4)
    messages = [stage.client({"dx": x}, {}, [seed])[0] for seed in range(3000)]
    mean = torch.stack([message["dx"] for message in messages]).mean(0)
    step = x.abs().max() / 7
    assert (mean - x).abs().max() < 5 * step / 2 / math.sqrt(3000)


def test_zero_stays_zero_and_columns_pass() -> None:
    message = {"dx": torch.zeros(2, 700), "a": torch.tensor([[3.3], [4.4]])}
    sent, memory = Quantise(4).client(message, {}, [0, 1])
    assert torch.equal(sent["dx"], message["dx"])
    assert torch.equal(sent["a"], message["a"])
    assert memory == {}


@given(st.floats(0.001, 1.0), st.integers(2, 300), st.integers(0, 99))
@settings(deadline=None)
def test_top_k_sends_the_largest_and_remembers_the_rest(share: float, size: int, seed: int) -> None:
    x = rows(2, size, seed)
    owed = rows(2, size, seed + 1)
    stage = TopK(share)
    sent, memory = stage.client({"dx": x}, {"dx": owed}, [0, 0])
    k = max(1, math.floor(share * size + 1e-9))
    torch.testing.assert_close(sent["dx"] + memory["dx"], x + owed)
    assert ((sent["dx"] != 0).sum(1) == k).all()
    for row in range(2):
        sizes = sent["dx"][row].abs()
        smallest_sent = sizes[sizes > 0].min()
        assert smallest_sent >= memory["dx"][row].abs().max() - 1e-12


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
            row = slice(k, k + 1)
            message = {"dx": x[row]}
            alone, row_memory = stage.client(message, stage.init(message), [5 + k])
            assert torch.equal(alone["dx"], together["dx"][row])
            for name, value in row_memory.items():
                assert torch.equal(value, memory[name][row])


def test_bytes_are_those_that_travel() -> None:
    """1,000 single-precision numbers and one column: 4,004 bytes as they are."""
    message = {"dx": torch.zeros(1, 1000), "a": torch.zeros(1, 1)}
    stages: dict[str, list[Stage]] = {
        "plain": [],
        "8": [Quantise(8)],
        "4": [Quantise(4)],
        "top": [TopK(0.01)],
        "both": [TopK(0.01), Quantise(8)],
    }
    sizes = {name: message_bytes(message, wire) for name, wire in stages.items()}
    ten_numbers = 10 * (32 + 10)  # each with its position, of 10 bits
    assert sizes["plain"] == 4004
    assert sizes["8"] == 1000 + 2 * 4 + 4  # two buckets' scales
    assert sizes["4"] == 500 + 2 * 4 + 4
    assert sizes["top"] == math.ceil(ten_numbers / 8) + 4
    assert sizes["both"] == math.ceil((10 * (8 + 10) + 2 * 32) / 8) + 4
    assert Load(10, 32, 3).bytes == 41


@pytest.mark.parametrize(
    "wire", [["quantise"], [{"name": "top_k", "share": 0.3}], ["top_k", "quantise"]]
)
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fednova"])
def test_a_study_learns_through_the_wire_for_fewer_bytes(wire: Any, algorithm: str) -> None:
    plain: Any = simulate(algorithm=algorithm, rounds=30, wire=[])
    cheap: Any = simulate(algorithm=algorithm, rounds=30, wire=wire)
    assert cheap.records[-1]["accuracy"] > plain.records[-1]["accuracy"] - 0.15
    assert cheap.records[-1]["loss"] != plain.records[-1]["loss"]
    plain_bytes = sum(record["bytes_up"] for record in plain.records)
    cheap_bytes = sum(record["bytes_up"] for record in cheap.records)
    assert cheap_bytes < 0.7 * plain_bytes


def test_with_error_feedback_what_was_sent_and_what_is_owed_add_up() -> None:
    """FedAvg's model and the mean of what clients still owe are the model without the wire."""
    run: Any = {"rounds": 1, "batch_size": 8, "split": {"name": "quantity_skew", "beta": 2.0}}

    def played(*wire: Any) -> Any:
        return simulate(tiny_dataset(), wire=list(wire), **run).states[0]

    plain = played()
    fifth = played({"name": "top_k", "share": 0.2})
    n = torch.tensor([len(shard) for shard in fifth.train], dtype=D)[:, None]
    owed = torch.cat([fifth.wire_memory[k]["0 dx"] for k in range(3)])
    torch.testing.assert_close(fifth.server["x"] + (n * owed).sum(0) / n.sum(), plain.server["x"])
    assert owed.any(1).all()
    everything = played({"name": "top_k", "share": 1.0})
    torch.testing.assert_close(everything.server["x"], plain.server["x"])


def test_a_lost_reply_does_not_touch_the_wires_memory() -> None:
    lists = {"name": "listed", "lists": [[0, 1, 2], [0]]}
    run: Any = {"batch_size": 8, "wire": [{"name": "top_k", "share": 0.2}], "selection": lists}
    first = simulate(tiny_dataset(), rounds=1, **run).states[0].wire_memory
    second = simulate(tiny_dataset(), rounds=2, **run).states[0].wire_memory
    assert torch.equal(first[1]["0 dx"], second[1]["0 dx"])
    assert not torch.equal(first[0]["0 dx"], second[0]["0 dx"])


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
    c_k = torch.cat([state.method_memory[k]["c"] for k in range(3)])
    torch.testing.assert_close(state.server["c"], c_k.mean(0))


def test_with_error_feedback_c_is_the_mean_less_what_is_owed() -> None:
    run: Any = {
        "rounds": 8,
        "clients": 3,
        "batch_size": 8,
        "wire": [{"name": "top_k", "share": 0.2}, "quantise"],
    }
    state = simulate(tiny_dataset(120), algorithm="scaffold", **run).states[0]
    c_k = torch.cat([state.method_memory[k]["c"] for k in range(3)])
    owed = torch.cat([state.wire_memory[k]["0 dc"] for k in range(3)])
    torch.testing.assert_close(state.server["c"], (c_k - owed).mean(0))


def test_the_server_s_copy_of_a_personal_model_is_the_model_less_what_is_owed() -> None:
    run: Any = {"rounds": 8, "batch_size": 8, "wire": [{"name": "top_k", "share": 0.2}]}
    state = simulate(tiny_dataset(120), algorithm={"name": "fedplus", "mu": 0.1}, **run).states[0]
    for client in range(3):
        w = state.method_memory[client]["w"][0]
        owed = state.wire_memory[client]["0 dx"][0]
        torch.testing.assert_close(state.server["models"][client], w - owed)


def test_quantising_does_not_hide_a_divergence() -> None:
    run: Any = {
        "model": "mlp",
        "optimiser": {"name": "sgd", "lr": 1e300},
        "rounds": 3,
        "wire": ["quantise"],
    }
    assert simulate(tiny_dataset(), **run).states[0].status == "diverged"
    without_wire: Any = {**run, "wire": [], "clients": 5, "combiner": "multi_krum"}
    assert simulate(tiny_dataset(), **without_wire).states[0].status == "diverged"


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
    _, memory = TopK(0.1).client({"dx": x}, {"dx": torch.zeros_like(x)}, [0])
    assert memory["dx"].isfinite().all()


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
