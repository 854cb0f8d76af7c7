"""YAML of strangers: little text stays little data, and every complaint is one line."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

import tacit
from tacit.channel.consortium import Consortium
from tacit.core.errors import DataError, StudyError
from tacit.core.yaml_text import DEEPEST, LONGEST, parse, reason


def laughs(levels: int = 9, first: str = "[lol, lol]") -> str:
    """Each level holds nine times the one before."""
    lines = [f"- &a0 {first}"]
    for level in range(1, levels + 1):
        inner = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"- &a{level} [{inner}]")
    return "rounds:\n" + "\n".join(lines) + "\n"


def merged(levels: int = 9) -> str:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    for level in range(1, levels + 1):
        inner = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} {{<<: [{inner}]}}")
    return "\n".join(lines) + "\n"


def keys(levels: int = 9) -> str:
    """A mapping's key that stands for much."""
    lines = ["a0: &a0 [x, y]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines) + f"\nb: {{? [*a{levels - 1}] : 1}}\n"


def ladder(levels: int) -> str:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, levels))]
    return "\n".join(lines) + "\n"


BOMBS = [
    (laughs(), "its aliases stand for too much"),
    (laughs(2, f"'{'x' * 100_000}'"), "its aliases stand for too much"),
    (merged(), "its aliases stand for too much"),
    ("rounds: &a [*a]\n", "line 1, column 9: a value contains itself; write it out"),
    ("rounds: &a {x: [*a, *a]}\n", "a value contains itself"),
    ("rounds: &a {<<: *a}\n", "a value contains itself"),
    (keys(), "its aliases stand for too much"),
    (laughs(2, f"[!{'x' * 60_000} 1]"), "its aliases stand for too much"),
    ("? [1]\n: 1\n", "found unhashable key"),
    (ladder(300), f"nested too deeply, more than {DEEPEST} times"),
    ("rounds: " + "[" * 3000, "nested too deeply"),
    ("rounds: " + "1:" * 40_000 + "1\n", "a number has more than 100 digits"),
    ("rounds: 0x" + "f" * 40_000 + "\n", "a number has more than 100 digits"),
    ("rounds: !!float ''\n", "a value is not what its tag says"),
    ("rounds: !!timestamp soon\n", "a value is not what its tag says"),
    ("rounds: !!bool perhaps\n", "a value is not what its tag says"),
    ("rounds: !!python/object/apply:os.system [ls]\n", "could not determine a constructor"),
    (f"{'x' * 900}: 1\n{'x' * 900}: 1\n", "is set twice, in lines 1 and 2"),
]


@pytest.mark.parametrize(("text", "complaint"), BOMBS, ids=range(len(BOMBS)))
def test_a_text_that_stands_for_too_much_is_refused_at_once(
    text: str, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "sent.yaml"
    path.write_text(text)
    for read in (tacit.Study.from_file, Consortium.read):
        start = time.perf_counter()
        with pytest.raises((StudyError, DataError)) as caught:
            read(path)  # type: ignore[operator]
        assert time.perf_counter() - start < 5
        line = str(caught.value)
        assert complaint in line
        assert "\n" not in line
        assert len(line) < 500


def test_a_text_that_is_too_long_is_not_even_parsed() -> None:
    with pytest.raises(yaml.YAMLError, match="more than 2,097,152 letters"):
        parse("#" * (LONGEST + 1))


def test_aliases_that_stand_for_little_are_read() -> None:
    values = parse("a: &a {x: [1, 2]}\nb: {<<: *a, y: *a}\nc: [*a, *a]\n")
    assert values["c"] == [{"x": [1, 2]}, {"x": [1, 2]}]
    assert values["b"] == {"x": [1, 2], "y": {"x": [1, 2]}}


def test_an_overriding_value_that_is_a_bomb_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("rounds: 1\n")
    for value in ("&a [*a]", "[" * 3000):
        with pytest.raises(StudyError, match="is not valid YAML"):
            tacit.Study.from_file(tmp_path / "s.yaml", [f"rounds={value}"])


def test_the_parsers_own_words_become_one_line() -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        parse("a: |\n  b\n c: [")
    assert "\n" not in reason(caught.value)


def test_a_grid_that_never_ends_is_refused() -> None:
    hundred = list(range(1, 101))
    arguments = {key: {"grid": hundred} for key in "abcdefg"}
    grids = [
        {"rounds": hundred, "clients": hundred, "seed": hundred},
        {"model": {"name": "module", "path": "a:b", "arguments": arguments}},
        {"optimiser": {"name": "adam", "lr": hundred, "beta1": hundred, "beta2": hundred}},
    ]
    for grid in grids:
        with pytest.raises(StudyError, match=r"the lists make a grid of [\d,]+ runs"):
            tacit.Study(**grid)  # type: ignore[arg-type]


def test_a_study_whose_file_could_not_be_read_again_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.execution.runner.LONGEST", 1000)
    study = tacit.Study(dataset="iris", local_epochs={"grid": [[1] * 500]}, clients=500)
    with pytest.raises(StudyError, match="needs a file of more than 1,000 bytes"):
        tacit.run(study, tmp_path / "out")
    assert not (tmp_path / "out").exists()
