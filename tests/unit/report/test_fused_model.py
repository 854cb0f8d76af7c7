"""`tacit.fuse`: what it takes, what it gives back, and what it refuses."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import tacit
from tacit.core.errors import DataError, StudyError
from tacit.models.weight_files import read_state, write_state


def net(width: int, seed: int = 0, outputs: int = 2) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, width), nn.Tanh(), nn.Linear(width, outputs))


def test_modules_dicts_and_files_are_fused_alike(tmp_path: Path) -> None:
    modules = [net(width, width) for width in (3, 5, 4)]
    files = [tmp_path / f"{k}.pt" for k in range(3)]
    for path, module in zip(files, modules, strict=True):
        torch.save(module.state_dict(), path)
    states = [module.state_dict() for module in modules]
    fused = tacit.fuse(modules)
    assert isinstance(fused.model, nn.Module)
    assert fused.model(torch.ones(2, 4)).shape == (2, 2)
    assert 5 <= fused.widths[0] <= 12
    of_states = tacit.fuse(states)
    of_files = tacit.fuse(files)
    for key, value in fused.model.state_dict().items():
        assert torch.equal(of_states.model[key], value)
        assert torch.equal(of_files.model[key], value)


def test_copies_give_the_network_back_but_for_its_shrinkage() -> None:
    module = net(6)
    fused = tacit.fuse([module] * 4, {"name": "pfnm", "variance": 1e-6, "prior_variance": 1.0})
    assert fused.widths == (6,)
    assert fused.shared == ((0, 0, 0, 6),)
    x = torch.randn(5, 4)
    assert torch.allclose(fused.model(x), module(x), atol=1e-4)


def test_a_module_is_left_as_it_was() -> None:
    module = net(6)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    tacit.fuse([module, net(3, 1)])
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    assert module[1].out_features == 6


@pytest.mark.parametrize("name", ["fused.pt", "fused.safetensors"])
def test_the_fused_network_is_saved(tmp_path: Path, name: str) -> None:
    fused = tacit.fuse([net(3), net(4, 1)])
    saved = read_state(fused.save(tmp_path / name))
    assert all(torch.equal(saved[key], value) for key, value in fused.model.state_dict().items())


def test_who_shares_what_adds_up() -> None:
    fused = tacit.fuse([net(width, width) for width in (3, 5, 4)])
    (shared,) = fused.shared
    assert sum(shared) == fused.widths[0]
    assert sum(count * k for k, count in enumerate(shared, 1)) == 12
    assert fused.local_widths == ((3, 5, 4),)
    assert repr(fused) == f"3 models of 3/5/4 fused into one of {fused.widths[0]}"


def test_the_matching_is_drawn(tmp_path: Path) -> None:
    fused = tacit.fuse([net(3), net(4, 1)])
    assert b"local neurons become" in fused.plot().save(tmp_path / "m.svg").read_bytes()
    vectors = tacit.fuse([np.eye(3), np.eye(3) + 0.01])
    assert b"6 local vectors become 3" in vectors.plot().save(tmp_path / "v.svg").read_bytes()
    with pytest.raises(StudyError, match="only networks have weights"):
        vectors.save(tmp_path / "v.pt")


def test_class_weights_take_counts() -> None:
    nets = [net(3), net(4, 1)]
    method = {"name": "pfnm", "class_weights": True}
    weighted = tacit.fuse(nets, method, counts=[[1, 0], [0, 1]])
    plain = tacit.fuse(nets)
    assert not torch.equal(weighted.model[3].bias, plain.model[3].bias)
    too_few = [[1, 0]]
    negative = [[1, 0], [0, -1]]
    unknown = [[1, 0], [0, float("nan")]]
    for wrong in (too_few, negative, unknown, "many"):
        with pytest.raises(DataError, match=r"counts: expected .* 2 rows \(one per model\) of 2"):
            tacit.fuse(nets, method, counts=wrong)


@pytest.mark.parametrize(
    ("models", "reason"),
    [
        ([net(3)], "two models or more"),
        ([], "two models or more"),
        ([net(3), net(3, outputs=5)], "model 1 has 5 outputs, and model 0 has 2"),
        ([net(3), 7], "got int"),
        (net(3), "expected a list of models to fuse, got Sequential"),
        ("a.pt", "expected a list of models to fuse, got str"),
        (None, "expected a list of models to fuse, got NoneType"),
        ([np.array([["a"]])] * 2, "matrices of numbers"),
        (
            [net(3), nn.Sequential(*net(3), nn.Linear(2, 2))],
            "model 1 has 2 hidden layers, and model 0 has 1",
        ),
        ([net(3), nn.Conv2d(1, 2, 3)], "model 1: neurons are matched only in dense layers"),
        ([np.eye(2), np.eye(3)], "same dimension"),
        ([np.eye(2), np.full((2, 2), np.nan)], "finite"),
    ],
)
def test_what_cannot_be_fused_is_refused(models: list[object], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        tacit.fuse(models)


def test_vectors_are_matched_by_spahm() -> None:
    for method in ("average", "pfnm"):
        reason = f"{method} fuses networks; vectors and mixtures are matched by spahm"
        with pytest.raises(StudyError, match=reason):
            tacit.fuse([np.eye(2), np.eye(2)], method)
    with pytest.raises(StudyError, match="without counts"):
        tacit.fuse([np.eye(2), np.eye(2)], counts=[1, 1])


def test_vectors_may_be_tensors_or_tables() -> None:
    arrays = tacit.fuse([np.eye(3), np.eye(3) + 0.01])
    tensors = tacit.fuse([torch.eye(3), torch.eye(3) + 0.01])
    assert tensors.model == pytest.approx(arrays.model, abs=1e-6)
    tables = tacit.fuse([pd.DataFrame(np.eye(3)), pd.DataFrame(np.eye(3) + 0.01)])
    assert tables.model == pytest.approx(arrays.model)


def test_counts_that_nothing_is_made_of_are_refused() -> None:
    for method in ("pfnm", "spahm"):
        with pytest.raises(StudyError, match="does not use counts"):
            tacit.fuse([net(3), net(4, 1)], method, counts=[[1, 0], [0, 1]])


def test_copies_of_a_regression_give_it_back() -> None:
    module = net(6, outputs=1)
    x = torch.randn(5, 4)
    assert torch.allclose(tacit.fuse([module, module]).model(x), module(x), atol=1e-5)


def test_fused_weights_lie_in_one_piece() -> None:
    fused = tacit.fuse([net(3), net(4, 1)]).model
    vector = nn.utils.parameters_to_vector(fused.parameters())
    assert len(vector) == sum(p.numel() for p in fused.parameters())


def test_safetensors_whose_order_cannot_be_told_are_refused(tmp_path: Path) -> None:
    def named(*names: str, width: int) -> Path:
        hidden = [width] * (len(names) - 1)
        sizes = itertools.pairwise([4, *hidden, 2])
        state = {}
        for name, (inputs, outputs) in zip(names, sizes, strict=True):
            layer = nn.Linear(inputs, outputs)
            state[f"{name}.weight"] = layer.weight.detach()
            state[f"{name}.bias"] = layer.bias.detach()
        path = tmp_path / f"{'-'.join(names)}-{width}.safetensors"
        write_state(path, state)
        return path

    fused = tacit.fuse([named("input", "output", width=5), named("input", "output", width=6)])
    assert next(iter(fused.model)).startswith("input")
    with pytest.raises(DataError, match="fit in more than one order"):
        tacit.fuse([named("input", "hidden", "middle", "output", width=5)] * 2)


def test_skip_connections_are_refused() -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.last = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = self.last(x + self.first(x).relu())
            return outputs

    with pytest.raises(DataError, match="model 0 is not just dense layers one after another"):
        tacit.fuse([Skip(), Skip()])
