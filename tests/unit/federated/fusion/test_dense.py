"""Networks as arrays: what is read, what is refused, and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import a_network, answers, assert_networks_agree, shuffled
from torch import nn

from tacit.core.errors import DataError, StudyError
from tacit.federated.fusion.average import Average
from tacit.federated.fusion.dense import Dense, check_neurons, in_order
from tacit.federated.fusion.fusion import Fused, check_networks
from tacit.federated.fusion.pfnm import Pfnm

seeds = st.integers(0, 9999)


def an_mlp(*widths: int, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for k in range(len(widths) - 1):
        layers += [nn.ReLU()] * (k > 0) + [nn.Linear(widths[k], widths[k + 1], dtype=dtype)]
    return nn.Sequential(*layers)


def test_a_state_dict_is_read_layer_by_layer() -> None:
    module = an_mlp(4, 3, 5, 2)
    network = Dense.of(module.state_dict())
    assert (network.inputs, network.widths, network.outputs) == (4, (3, 5), 2)
    assert np.array_equal(network.weights[1], module[3].weight.detach().numpy())  # type: ignore[arg-type]
    x = torch.randn(10, 4, dtype=torch.float64)
    np.testing.assert_allclose(
        answers(network, x.numpy()), module(x).detach().numpy(), rtol=1e-9, atol=1e-12
    )


WRONG: dict[str, tuple[Any, str]] = {
    "a convolution": (
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3), nn.Linear(3, 2)),
        "dense layers",
    ),
    "a batch norm": (
        nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)),
        "only in dense layers",
    ),
    "a layer norm": (
        nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2)),
        "only in dense layers",
    ),
    "layers that do not fit": (
        nn.Sequential(nn.Linear(4, 3), nn.Linear(5, 2)),
        r"as they stand: .*1\.weight \(2, 5\)",
    ),
    "no hidden layer": (nn.Sequential(nn.Linear(4, 3)), "at least one hidden layer"),
    "nothing": (nn.Sequential(nn.ReLU()), "at least one hidden layer"),
}


@pytest.mark.parametrize("kind", list(WRONG))
def test_what_has_no_neurons_to_match_is_refused_in_a_line(kind: str) -> None:
    module, match = WRONG[kind]
    with pytest.raises(DataError, match=match) as caught:
        Dense.of(module.state_dict(), "client 7")
    assert str(caught.value).startswith("client 7: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", ["1.weight", "1.bias", "3.bias"])
def test_weights_that_are_no_numbers_are_refused(value: float, place: str) -> None:
    state = an_mlp(4, 3, 2).state_dict()
    state[place].view(-1)[0] = value
    with pytest.raises(DataError, match="not finite numbers"):
        Dense.of(state)


def test_a_bias_alone_belongs_to_no_layer() -> None:
    state = {**an_mlp(4, 3, 2).state_dict(), "extra.bias": torch.zeros(3)}
    with pytest.raises(DataError, match=r"extra\.bias"):
        Dense.of(state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_dict_comes_back_as_it_was(dtype: torch.dtype) -> None:
    state = an_mlp(4, 3, 5, 2, dtype=dtype).state_dict()
    back = Dense.of(state).state(state)
    assert list(back) == list(state)
    torch.testing.assert_close(back, dict(state), rtol=0, atol=0)
    assert {value.dtype for value in back.values()} == {dtype}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_has_the_names_and_numbers_of_the_other_network_and_its_own_widths(
    dtype: torch.dtype,
) -> None:
    wide = Dense.of(an_mlp(4, 9, 8, 2).state_dict())
    state = wide.state(an_mlp(4, 3, 5, 2, dtype=dtype).state_dict())
    sizes = {name: tuple(value.shape) for name, value in state.items()}
    weights = {"1.weight": (9, 4), "3.weight": (8, 9), "5.weight": (2, 8)}
    biases = {"1.bias": (9,), "3.bias": (8,), "5.bias": (2,)}
    assert sizes == weights | biases
    assert {value.dtype for value in state.values()} == {dtype}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_module_computes_what_the_network_does(dtype: torch.dtype) -> None:
    like = an_mlp(4, 3, 5, 2, dtype=dtype)
    before = {name: value.clone() for name, value in like.state_dict().items()}
    x = torch.randn(10, 4, dtype=dtype)
    again = Dense.of(like.state_dict()).module(like)
    torch.testing.assert_close(again(x), like(x), rtol=0, atol=0)
    wide = a_network([7, 6], np.random.default_rng(0), inputs=4)
    module = wide.module(like)
    outputs = module(x).detach()
    assert outputs.dtype == dtype
    np.testing.assert_allclose(outputs.numpy(), answers(wide, x.numpy()), rtol=1e-4, atol=1e-4)
    linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    sizes = [(layer.in_features, layer.out_features) for layer in linear]
    assert sizes == [(4, 7), (7, 6), (6, 2)]
    torch.testing.assert_close(dict(like.state_dict()), before, rtol=0, atol=0)


def test_a_part_has_the_rows_and_columns_of_its_neurons() -> None:
    network = a_network([4, 3], np.random.default_rng(0))
    some = network.part([np.array([2, 0]), np.array([1])])
    assert np.array_equal(some.weights[0], network.weights[0][[2, 0]])
    assert np.array_equal(some.weights[1], network.weights[1][1:2][:, [2, 0]])
    assert np.array_equal(some.weights[2], network.weights[2][:, 1:2])
    assert np.array_equal(some.biases[0], network.biases[0][[2, 0]])
    assert np.array_equal(some.biases[1], network.biases[1][1:2])
    assert np.array_equal(some.biases[2], network.biases[2])


@given(seeds, st.lists(st.integers(1, 5), min_size=1, max_size=3))
@settings(max_examples=30)
def test_all_neurons_in_another_order_are_the_same_network(seed: int, widths: list[int]) -> None:
    rng = np.random.default_rng(seed)
    network = a_network(widths, rng)
    moved, orders = shuffled(network, rng)
    assert_networks_agree(network.part(orders), moved, rtol=0)


@pytest.mark.parametrize("widths", [[5], [4, 6]])
def test_the_part_of_a_client_whose_neurons_are_all_matched_is_the_whole(widths: list[int]) -> None:
    rng = np.random.default_rng(0)
    network = a_network(widths, rng)
    fused = Pfnm().fuse([shuffled(network, rng)[0] for _ in range(3)], rng)
    x = rng.normal(size=(20, 3))
    expected = answers(fused.network, x)
    for client in range(3):
        of_client = answers(fused.part(client), x)
        np.testing.assert_allclose(of_client, expected, rtol=1e-9, atol=1e-12)


def test_a_clients_part_has_its_own_width() -> None:
    network = a_network([3, 4], np.random.default_rng(0))
    first_layer = (np.array([2, 0]), np.array([1]))
    second_layer = (np.array([3]), np.array([0, 1, 2]))
    fused = Fused(network, (first_layer, second_layer))
    assert [fused.part(client).widths for client in range(2)] == [(2, 1), (1, 3)]
    assert np.array_equal(fused.part(1).weights[1], network.weights[1][:3, 1:2])


# The plain average, and networks that do not go together


def test_an_average_counts_clients_by_their_samples() -> None:
    rng = np.random.default_rng(0)
    first = a_network([3, 4], rng)
    second = a_network([3, 4], rng)
    fused = Average().fuse([first, second], rng, counts=np.array([[1.0, 0.0], [1.0, 2.0]]))
    for layer in range(3):
        weight = 0.25 * first.weights[layer] + 0.75 * second.weights[layer]
        bias = 0.25 * first.biases[layer] + 0.75 * second.biases[layer]
        np.testing.assert_allclose(fused.network.weights[layer], weight)
        np.testing.assert_allclose(fused.network.biases[layer], bias)
    assert_networks_agree(fused.part(1), fused.network, rtol=0)
    alike = Average().fuse([first, second], rng).network
    np.testing.assert_allclose(alike.weights[1], (first.weights[1] + second.weights[1]) / 2)


def test_networks_of_other_widths_have_no_average() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(StudyError, match="use pfnm or spahm"):
        Average().fuse([a_network([3], rng), a_network([4], rng)], rng)


@pytest.mark.parametrize(
    ("other", "what"),
    [(([3], 4, 2), "4 inputs"), (([3], 3, 5), "5 outputs"), (([3, 3], 3, 2), "2 hidden layers")],
    ids=str,
)
def test_networks_that_cannot_become_one_are_refused(other: Any, what: str) -> None:
    rng = np.random.default_rng(0)
    widths, inputs, outputs = other
    networks = [a_network([3], rng), a_network([9], rng), a_network(widths, rng, inputs, outputs)]
    with pytest.raises(DataError, match=f"c has {what}, and a has .*; they must agree"):
        check_networks(networks, "abc")
    check_networks(networks[:2], "ab")


def test_a_bias_of_another_length_is_refused() -> None:
    state = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).state_dict()
    state["0.bias"] = torch.zeros(5)
    with pytest.raises(DataError, match=r"expected 3 numbers in 0\.bias"):
        Dense.of(state)


def test_layers_without_biases_stay_without() -> None:
    module = nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False))
    again = Dense.of(module.state_dict()).module(module)
    x = torch.randn(5, 4)
    assert torch.equal(again(x), module(x))
    assert list(again.state_dict()) == ["0.weight", "2.weight"]


def test_weights_lie_in_one_piece() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    network = Dense.of(module.state_dict())
    turned = Dense(tuple(np.asfortranarray(weight) for weight in network.weights), network.biases)
    assert all(parameter.is_contiguous() for parameter in turned.module(module).parameters())


def shapes(**sizes: tuple[int, int]) -> dict[str, torch.Tensor]:
    state = {}
    for name, (outputs, inputs) in sizes.items():
        state[f"{name}.weight"] = torch.zeros(outputs, inputs)
        state[f"{name}.bias"] = torch.zeros(outputs)
    return state


def test_layers_whose_order_is_lost_are_put_in_the_only_one_that_fits() -> None:
    ordered = in_order(shapes(hidden=(5, 4), input=(4, 3), output=(2, 5)))
    expected = shapes(input=(4, 3), hidden=(5, 4), output=(2, 5))
    assert list(ordered) == list(expected)
    with pytest.raises(
        DataError, match=r"more than one order, and safetensors keep none.*number their names"
    ):
        in_order(shapes(hidden=(4, 4), input=(4, 4), output=(2, 4)))
    with pytest.raises(DataError, match="no order that could be found"):
        in_order(shapes(hidden=(4, 4), input=(5, 3), output=(2, 4)))


class Skip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.second = nn.Linear(6, 6)
        self.last = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x).relu()
        outputs: torch.Tensor = self.last(h + self.second(h).relu())
        return outputs


def test_neurons_that_are_more_than_their_weights_are_refused() -> None:
    hidden = [nn.Linear(4, 6), nn.Dropout(), nn.Tanh(), nn.Linear(6, 5), nn.GELU()]
    check_neurons(nn.Sequential(*hidden, nn.Linear(5, 2)), (4,))
    across = nn.Sequential(nn.Linear(4, 6), nn.Softmax(-1), nn.Linear(6, 2))
    norm = nn.LayerNorm(6, elementwise_affine=False)
    fixed = nn.Sequential(nn.Linear(4, 6), norm, nn.Linear(6, 2))
    for module in (Skip(), across, fixed):
        with pytest.raises(DataError, match="not just dense layers one after another"):
            check_neurons(module, (4,))
