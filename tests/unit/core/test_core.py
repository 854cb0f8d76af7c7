"""Registry, fields, rows, seeds and files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.core.errors import DataError, StudyError, TacitError
from tacit.core.fields import conform
from tacit.core.files import replacing
from tacit.core.own_code import own_code
from tacit.core.registry import Registered
from tacit.core.rows import batch_key, columns, head, join, pick
from tacit.core.seeds import derive, generator, numpy_generator
from tacit.federated.combine.combiner import Combiner


class Fruit(Registered, family="fruits"):
    pass


@dataclass(frozen=True)
class Apple(Fruit, name="apple"):
    weight: float = 1.0
    seeds: int = 5
    colour: Literal["red", "green"] = "red"

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise StudyError("apples are not lighter than air")


def test_a_subclass_outside_the_package_is_built_by_its_import_path() -> None:
    path = "tacit.federated.algorithms.fedprox:FedProx"
    member = Registered.find.__func__(Registered, path)  # type: ignore[attr-defined]
    assert member.name == "fedprox"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("aple", "did you mean apple?"),
        ({"name": "apple", "wieght": 2}, "did you mean weight?"),
        ({"name": "apple", "weight": "heavy"}, "apple.weight: expected a number, got 'heavy'"),
        ({"name": "apple", "seeds": 1.5}, "expected a whole number"),
        ({"name": "apple", "seeds": True}, "expected a whole number"),
        ({"name": "apple", "colour": "blue"}, "expected red or green, got 'blue'"),
        ({"weight": 1}, "expected a name"),
        (7, "expected a name"),
        ("nowhere.at_all:Thing", "cannot import"),
        ("own_code:Net", "is not a subclass"),
        ("math:sqrt", "math belongs to Python itself"),
    ],
)
def test_a_wrong_spec_gets_one_clear_line(spec: object, message: str) -> None:
    with pytest.raises(StudyError) as caught:
        Fruit.build(spec)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_method_without_its_rule_cannot_be_made() -> None:
    @dataclass(frozen=True)
    class Empty(Combiner):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Empty()


def test_two_methods_of_one_name_are_refused() -> None:
    with pytest.raises(StudyError, match="two fruits are called 'apple'"):
        type("Other", (Fruit,), {"__module__": "elsewhere"}, name="apple")


def test_numbers_written_as_text_by_yaml_are_numbers() -> None:
    assert conform("1e-3", float, "lr") == 1e-3
    assert conform([1, 2], int | tuple[int, ...], "epochs") == (1, 2)
    assert conform(None, int | None, "patience") is None


def test_columns_hold_one_value_per_row_and_skip_the_constructor() -> None:
    view = columns([Apple(1.0), Apple(2.0)], Apple, torch.zeros(1, dtype=torch.float64))
    assert view.weight.tolist() == [[1.0], [2.0]]  # type: ignore[attr-defined]
    assert view.weight.dtype == torch.float64  # type: ignore[attr-defined]
    assert view.seeds == 5
    assert batch_key(Apple(1.0), Apple) == batch_key(Apple(2.0), Apple)
    assert batch_key(Apple(seeds=1), Apple) != batch_key(Apple(seeds=2), Apple)


@given(st.integers(1, 6), st.data())
def test_rows_picked_apart_join_again(count: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, count))
    tree = {
        "a": torch.arange(count),
        "view": columns([Apple(float(k)) for k in range(count)], Apple, torch.zeros(1)),
    }
    blocks = [head(tree, cut), pick(tree, slice(cut, count))]
    again = join([block for block in blocks if len(block["a"])])  # type: ignore[arg-type]
    assert torch.equal(again["a"], tree["a"])  # type: ignore[arg-type]
    assert torch.equal(again["view"].weight, tree["view"].weight)  # type: ignore[union-attr]


def test_generators_follow_from_seed_and_name_alone() -> None:
    first = torch.rand(3, generator=generator(1, "a", 2))
    second = torch.rand(3, generator=generator(1, "a", 2))
    assert torch.equal(first, second)
    names = [
        (1, "a", 2),
        (2, "a", 2),
        (1, "b", 2),
        (1, "a", 3),
        (1, "a", "2"),
        (1, "a"),
        (1, "a/i2"),
    ]
    assert len({derive(*name) for name in names}) == len(names)
    assert numpy_generator(1, "x").random() == numpy_generator(1, "x").random()


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    with replacing(path) as file:
        file.write("first")
    with pytest.raises(TypeError), replacing(path) as file:
        file.write(2)
    assert path.read_text() == "first"
    assert os.listdir(path.parent) == ["file.txt"]


@own_code()
def read_data() -> None:
    try:
        raise ValueError("no such patient")
    except ValueError as cause:
        raise DataError("the data cannot be read", parameters=("data",)) from cause


def test_an_error_that_gets_the_users_line_keeps_its_parameters() -> None:
    with pytest.raises(DataError) as caught:
        read_data()
    assert str(caught.value).startswith("the data cannot be read (test_core.py:")
    assert caught.value.parameters == ("data",)


def test_an_error_is_one_line_that_a_terminal_can_show() -> None:
    text = str(TacitError("no file '\x1b[2J\n\u202egnp.exe': " + "x" * 5000))
    assert text.startswith(r"no file '\x1b[2J \u202egnp.exe': xxx")
    assert text.isprintable()
    assert len(text) < 1100
