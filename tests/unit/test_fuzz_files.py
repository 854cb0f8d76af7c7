"""Malformed consortium files, study files and results: an error of one line, or success.

TACIT_FUZZ=10000 tries so many; TACIT_FUZZ_SEED begins with another one. A failure names its seed.
"""

from __future__ import annotations

import gc
import json
import os
import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import tacit
from tacit.channel.consortium import Consortium
from tacit.cli.new import commented_study
from tacit.core.errors import LONGEST_LINE, TacitError
from tacit.records.study_reader import StudyReader
from tacit.study.file import parse_override

CASES = int(os.environ.get("TACIT_FUZZ", "600"))
SEED = int(os.environ.get("TACIT_FUZZ_SEED", "18"))
SLOW = 2.0  # seconds of computing
GROWTH = 50 << 20  # bytes
Chance = random.Random

CONSORTIUM = """\
consortium: heart-study
ca: ca.pem
parties:
  alice: {address: 'alice.example:7050'}
  bob: {address: '[::1]:7050', certificate: certificates/bob.pem, key: ~/keys/bob.key}
  carol: {}
"""
STUDIES = [
    commented_study("demo"),
    """\
name: demo
dataset: {name: table, path: patients.csv, target: ill, drop: [id], dates: {visit: '%d/%m/%Y'}}
public: {name: table, path: [a.csv, b.csv], target: ill}
model: {name: mlp, hidden: {grid: [[16], [8, 8]]}}
split: [iid, {name: label_dirichlet, beta: [0.1, 1.0]}]
algorithm: [fedavg, {name: fedprox, mu: [0.1, 1]}, scaffold]
optimiser: &fast {name: adam, lr: 1e-3}
clients: 4
rounds: 3
local_epochs: {grid: [1, [5, 1, 2, 2]]}
target_accuracy: 0.9
seed: [0, 1]
""",
    """\
algorithm: fedavg
clients: 8
combiner: [{name: krum, f: 2}, median]
attackers: {kind: sign_flip, count: 2}
wire: [{name: top_k}, {name: quantise, bits: 8}]
selection: {name: listed, lists: [[0, 1], [2, 3]]}
schedule: constant
model: {name: module, path: "nowhere_at_all:Net", arguments: {width: {grid: [8, 16]}}}
""",
    """\
fusion: [pfnm, {name: spahm}, average]
dataset: digits
model: {name: mlp, hidden: [32]}
clients: 5
split: {name: labels_per_party, labels: 3}
""",
]
SNIPPETS = (
    "&a [*a]",
    "*a",
    "&b {<<: *b}",
    "<<: {rounds: 2}",
    "[" * 60,
    "{" * 400,
    "- " * 300,
    "? ",
    "!!float ''",
    "!!python/object:os.system x",
    "!!binary aGVsbG8=",
    "!!set {a, b}",
    "!!timestamp 2024-13-45",
    "!!omap [a: 1]",
    "1e999",
    "-.inf",
    ".nan",
    "9" * 30,
    "9" * 400,
    "-" + "9" * 99,
    "0x" + "f" * 90,
    "1:" * 30 + "1",
    "2024-01-01",
    "null",
    "~",
    "true",
    "''",
    "[]",
    "{}",
    "[[]]",
    "{grid: []}",
    "{grid: [1, [2]]}",
    "{grid: {grid: [1]}}",
    "{name: }",
    "{name: [a, b]}",
    "subprocess:check_output",
    "builtins:eval",
    "nowhere:Thing",
    "nowhere.x.y:__class__",
    '"\\0"',
    '"\\ud800"',
    '"~nobody/x"',
    "/dev/zero",
    "../" * 30,
    "é\u202e\U0001f600",
    "\ufeff",
    "\x00",
    "\x85",
    "---\n",
    "...\n",
    "%YAML 9.9\n",
    "\t",
    "\r",
    "#",
    ": ",
    "x" * 5000,
    '"' + "y" * 5000 + '"',
)
ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**90, -(10**90), 1e308, 1e-320, float("inf"),
    float("nan"), "", " ", "x" * 3000, "a:b", "os:system", "\n", "\0", "\ud83d", "é", b"bytes",
    [], [[]], {}, {"grid": []}, {"grid": [1, 2]}, {"name": None}, {"name": "krum"}, {1: 2},
    [None, True, 1.5, "a", [1], {"a": 1}], [1] * 20,
)  # fmt: skip


def flip(data: bytes, chance: Chance) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut(data: bytes, chance: Chance) -> bytes:
    start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return chance.choice([data[:start], data[start:end], data[:start] + data[end:]])


def shuffle_lines(data: bytes, chance: Chance) -> bytes:
    lines = data.splitlines(keepends=True)
    for _ in range(chance.randrange(1, 4)):
        line = chance.choice(lines)
        lines.insert(
            chance.randrange(len(lines)), chance.choice([line, b"  " + line, b"- " + line])
        )
    return b"".join(lines)


def insert(data: bytes, chance: Chance) -> bytes:
    place = chance.randrange(len(data) + 1)
    if chance.random() < 0.7:  # where a value begins
        places = [match.end() for match in re.finditer(rb"[:\[,-] ", data)]
        place = chance.choice(places or [place])
    snippet = chance.choice(SNIPPETS).encode("utf-8", "surrogatepass")
    rest = data[place:]
    if chance.random() < 0.5:
        rest = rest[re.match(rb"[^\n,\]}]*", rest).end() :]  # type: ignore[union-attr]
    return data[:place] + snippet + rest


def encode_otherwise(data: bytes, chance: Chance) -> bytes:
    encoding = chance.choice(["utf-16", "utf-32", "utf-8-sig", "cp037"])
    return data.decode("utf-8", "replace").encode(encoding, "replace")


def change_values(data: bytes, chance: Chance) -> bytes:
    """Another value, a key less, or one more level, anywhere in the tree."""
    is_json = data[:1] in b"{["
    try:
        tree = json.loads(data) if is_json else yaml.safe_load(data)
    except Exception:  # it was malformed before
        return data
    for _ in range(chance.randrange(1, 4)):
        tree = changed(tree, chance)
    if is_json:
        return json.dumps(tree, default=str).encode("utf-8", "surrogatepass")
    text: str = yaml.dump(tree, default_flow_style=chance.choice([None, True, False]))
    return text.encode("utf-8", "surrogatepass")


def changed(tree: Any, chance: Chance) -> Any:
    if not isinstance(tree, dict | list) or not tree or chance.random() < 0.2:
        nested = chance.choice([[tree], {"grid": [tree]}, {"name": tree}, [tree, tree]])
        return chance.choice([chance.choice(ODD_VALUES), nested])
    if isinstance(tree, list):
        position = chance.randrange(len(tree))
        return [*tree[:position], changed(tree[position], chance), *tree[position + 1 :]]
    key = chance.choice(list(tree))
    what = chance.random()
    if what < 0.1:
        return {name: value for name, value in tree.items() if name != key}
    if what < 0.2:
        return {**tree, chance.choice(["x", "", 5, None, key, "name", "grid"]): tree[key]}
    return {**tree, key: changed(tree[key], chance)}


CHANGES: list[Callable[[bytes, Chance], bytes]] = [
    flip, cut, shuffle_lines, insert, insert, encode_otherwise, change_values, change_values,
    change_values,
]  # fmt: skip


def malformed(text: str | bytes, chance: Chance) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        if data:
            data = chance.choice(CHANGES)(data, chance)
    return data


def try_consortium(folder: Path, chance: Chance) -> None:
    path = folder / "consortium.yaml"
    path.write_bytes(malformed(CONSORTIUM, chance))
    consortium = Consortium.read(path)
    path.write_text(consortium.text(folder))  # what is understood is written, and read again
    assert Consortium.read(path) == consortium


def try_study(folder: Path, chance: Chance) -> None:
    path = folder / "study.yaml"
    path.write_bytes(malformed(chance.choice(STUDIES), chance))
    study = tacit.Study.from_file(path)
    path.write_text(study.to_yaml())
    assert tacit.Study.from_file(path).to_yaml() == study.to_yaml()


def try_override(folder: Path, chance: Chance) -> None:
    text = chance.choice(STUDIES[1].splitlines()).replace(": ", "=", 1)
    parse_override(malformed(text, chance).decode("utf-8", "replace"))


def try_results(folder: Path, chance: Chance) -> None:
    name = chance.choice(["outline.json", "history.jsonl", "timings.jsonl", "splits.json"])
    before = (folder / name).read_bytes()
    (folder / name).write_bytes(malformed(before, chance))
    try:
        reader = StudyReader(folder)
        assert reader.rounds is not None
        assert reader.portraits is not None
    finally:
        (folder / name).write_bytes(before)


TRIALS = [try_consortium, try_study, try_study, try_override, try_results]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study."""
    path = tmp_path_factory.mktemp("fuzz") / "study"
    tacit.run({"dataset": "iris", "model": "linear", "clients": 2, "rounds": 1}, path)
    return path


def memory() -> int:
    """The bytes that this process uses."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def attempt(number: int, folder: Path) -> str:
    """One case: its outcome, which is no exception but a TacitError of one line."""
    chance = Chance(f"{SEED}-{number}")
    trial = TRIALS[number % len(TRIALS)]
    start = time.process_time()
    outcome = "accepted"
    try:
        trial(folder, chance)
    except TacitError as error:
        line = str(error)
        assert line
        assert "\n" not in line, line
        assert len(line) <= LONGEST_LINE, line
        outcome = "refused"
    assert time.process_time() - start < SLOW
    return f"{trial.__name__} {outcome}"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks /proc for memory")
def test_malformed_files_end_in_one_line_or_are_understood(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    outcomes: dict[str, int] = {}
    start = time.perf_counter()
    before = 0
    for number in range(CASES):
        if number == min(CASES // 2, 500):
            before = memory()  # what is imported on demand has been
        try:
            outcome = attempt(number, folder)
        except BaseException as error:
            error.add_note(f"seed {SEED}, case {number}")
            raise
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    after = memory()
    seconds = time.perf_counter() - start
    growth = f"memory {before >> 20} to {after >> 20} MB"
    sys.stdout.write(f"seed {SEED}: {CASES} cases in {seconds:.0f} s, {growth}, {outcomes}\n")
    assert after - before < GROWTH
    assert min(outcomes.get(f"{trial.__name__} refused", 0) for trial in TRIALS) > CASES / 50
    assert outcomes["try_consortium accepted"] > CASES / 100
    assert outcomes["try_study accepted"] > CASES / 100
