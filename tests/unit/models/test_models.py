from __future__ import annotations

import pytest
import torch

from tacit.core.errors import StudyError
from tacit.models.model import Model, make_module


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_the_cnn_has_the_published_sizes() -> None:
    """3->6 k5: 456; 6->16 k5: 2,416; 400-120-84-10: 48,120 + 10,164 + 850.

    On 28 x 28: 156, 256-120: 30,840.
    """
    cnn = Model.build("cnn")
    assert 456 + 2416 + 48120 + 10164 + 850 == 62006
    assert count(cnn.make((3, 32, 32), 10)) == 62006
    assert count(cnn.make((1, 28, 28), 10)) == 156 + 2416 + 30840 + 10164 + 850


def test_mlp_and_linear_flatten_their_input() -> None:
    mlp = Model.build({"name": "mlp", "hidden": [7, 5]}).make((1, 8, 8), 3)
    assert mlp(torch.zeros(2, 1, 8, 8)).shape == (2, 3)
    assert count(Model.build("linear").make((4,), 3)) == 15


def test_the_same_seed_gives_the_same_weights_and_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    first, again, different = (
        list(make_module(Model.build("mlp"), (4,), 3, seed).parameters()) for seed in (1, 1, 2)
    )
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, different, strict=True))


def test_frozen_parameters_are_shared_by_all_seeds_and_instances_are_copied() -> None:
    frozen = Model.build("own_code:HalfFrozen")
    first, second = (make_module(frozen, (4,), 2, seed) for seed in (1, 2))
    assert torch.equal(first[0].weight, second[0].weight)  # type: ignore[index]
    assert not torch.equal(first[1].weight, second[1].weight)  # type: ignore[index]
    ready = [make_module(Model.build("own_code:READY"), (4,), 2, 0) for _ in range(2)]
    assert ready[0] is not ready[1]


def test_any_module_comes_by_import_path() -> None:
    model = Model.build({"name": "module", "path": "own_code:Net", "arguments": {"width": 3}})
    assert make_module(model, (4,), 2, 0)(torch.zeros(5, 4)).shape == (5, 2)


@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        ("cnn", (1, 8, 8), "cnn needs pictures of 16 x 16"),
        ({"name": "module", "path": "own_code:Net"}, (5,), "cannot take samples of shape"),
        (
            {"name": "module", "path": "own_code:Net", "arguments": {"wide": 3}},
            (4,),
            "cannot be made with",
        ),
        (
            {"name": "module", "path": "own_code:make_data"},
            (4,),
            "expected a torch.nn.Module, got tuple",
        ),
        ({"name": "module", "path": "own_code:Nets"}, (4,), "cannot import 'own_code:Nets'"),
        ({"name": "module", "path": "torch.nn:Identity"}, (4,), "must give 2 numbers per sample"),
        ({"name": "module"}, (4,), "module needs path"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_training(
    spec: object, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(StudyError, match=message):
        make_module(Model.build(spec), shape, 2, 0)  # type: ignore[arg-type]
