from __future__ import annotations

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
    first, *others = (
        tacit.fuse(some) for some in (modules, [one.state_dict() for one in modules], files)
    )
    assert isinstance(first.model, nn.Module)
    assert first.model(torch.ones(2, 4)).shape == (2, 2)
    assert 5 <= first.widths[0] <= 12
    for other in others:
        assert all(
            torch.equal(other.model[key], value) for key, value in first.model.state_dict().items()
        )


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
    weighted = tacit.fuse(nets, {"name": "pfnm", "class_weights": True}, counts=[[1, 0], [0, 1]])
    plain = tacit.fuse(nets)
    assert not torch.equal(weighted.model[3].bias, plain.model[3].bias)
    for wrong in ([[1, 0]], [[1, 0], [0, -1]], [[1, 0], [0, float("nan")]], "many"):
        with pytest.raises(DataError, match="counts: expected 2 rows, a model each, of 2 numbers"):
            tacit.fuse(nets, {"name": "pfnm", "class_weights": True}, counts=wrong)


@pytest.mark.parametrize(
    ("models", "said"),
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
        ([net(3), nn.Conv2d(1, 2, 3)], "model 1: neurons are matched in dense layers alone"),
        ([np.eye(2), np.eye(3)], "same dimension"),
        ([np.eye(2), np.full((2, 2), np.nan)], "finite"),
    ],
)
def test_what_cannot_be_fused_is_refused(models: list[object], said: str) -> None:
    with pytest.raises(DataError, match=said):
        tacit.fuse(models)


def test_vectors_are_matched_by_spahm() -> None:
    for method in ("average", "pfnm"):
        with pytest.raises(
            StudyError, match=f"{method} fuses networks; vectors and mixtures are matched by spahm"
        ):
            tacit.fuse([np.eye(2), np.eye(2)], method)
    with pytest.raises(StudyError, match="without counts"):
        tacit.fuse([np.eye(2), np.eye(2)], counts=[1, 1])


def test_vectors_may_be_tensors_or_tables() -> None:
    wanted = tacit.fuse([np.eye(3), np.eye(3) + 0.01]).model
    assert tacit.fuse([torch.eye(3), torch.eye(3) + 0.01]).model == pytest.approx(wanted, abs=1e-6)
    assert tacit.fuse(
        [pd.DataFrame(np.eye(3)), pd.DataFrame(np.eye(3) + 0.01)]
    ).model == pytest.approx(wanted)


def test_counts_that_nothing_is_made_of_are_refused() -> None:
    for method in ("pfnm", "spahm"):
        with pytest.raises(StudyError, match="makes nothing of counts"):
            tacit.fuse([net(3), net(4, 1)], method, counts=[[1, 0], [0, 1]])


def test_copies_of_a_regression_give_it_back() -> None:
    module = net(6, outputs=1)
    x = torch.randn(5, 4)
    assert torch.allclose(tacit.fuse([module, module]).model(x), module(x), atol=1e-5)


def test_fused_weights_lie_in_one_piece() -> None:
    fused = tacit.fuse([net(3), net(4, 1)]).model
    assert len(nn.utils.parameters_to_vector(fused.parameters())) == sum(
        p.numel() for p in fused.parameters()
    )


def test_safetensors_whose_order_cannot_be_told_are_refused(tmp_path: Path) -> None:
    def named(*names: str, width: int) -> Path:
        sizes = [4, *[width] * (len(names) - 1), 2]
        layers = {name: nn.Linear(*sizes[k : k + 2]) for k, name in enumerate(names)}
        state = {
            f"{name}.{part}": value
            for name, layer in layers.items()
            for part, value in layer.state_dict().items()
        }
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
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.last(x + self.first(x).relu())
            return found

    with pytest.raises(DataError, match="model 0 is more than dense layers one after another"):
        tacit.fuse([Skip(), Skip()])
