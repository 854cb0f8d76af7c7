"""Two parties as two real processes that run `tacit psi`, with tables whose rows are known."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from consortia import folder as consortia_folder

SOURCE = Path(__file__).parents[1] / "src"
LIMIT = 120.0  # seconds, for what would hang for ever
GLANCE = 0.01  # seconds between two looks at what a process has said


def tables(folder: Path, rows: int, seed: int = 0) -> pd.DataFrame:
    """Writes alice.csv and bob.csv; half of the people in each are known to both.

    The result holds the rows of these, sorted by identifier.
    """
    chance = random.Random(seed)
    people = chance.sample(range(10**9), rows + rows // 2)
    for name, known_people in (("alice", people[:rows]), ("bob", people[-rows:])):
        shuffled = list(known_people)
        chance.shuffle(shuffled)
        values = [f"{name} {person}" for person in shuffled]
        table = pd.DataFrame({"nin": shuffled, name: values})
        table.to_csv(folder / f"{name}.csv", index=False)
    alice = pd.read_csv(folder / "alice.csv")
    bob = pd.read_csv(folder / "bob.csv")
    return alice.merge(bob, on="nin").sort_values("nin", ignore_index=True)


@dataclass
class Process:
    """A party; what it says goes to a file."""

    name: str
    folder: Path
    options: list[str]
    command: list[str] = field(default_factory=lambda: ["-m", "tacit", "psi"])
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = self.folder / f"{self.name}-{time.monotonic_ns()}.log"
        arguments = {
            "--key": "nin",
            "--party": self.name,
            "--data": str(self.folder / f"{self.name}.csv"),
            "--out": str(self.folder / f"{self.name}-common.csv"),
            "--consortium": str(consortia_folder() / "good"),
            "--log": str(self.folder / f"{self.name}-sessions.jsonl"),
            "--threads": "1",
        }
        command = [sys.executable, *self.command]
        for option, value in arguments.items():
            command += [option, value]
        usual = {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        environment = {**os.environ, **usual, **self.environment}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *self.options], stdout=log, stderr=log, cwd=self.folder, env=environment
            )

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait_until(self, text: str) -> float:
        """When it said so; it has to live until then."""
        self._wait(lambda: text in self.said, f"say {text!r}")
        return time.monotonic()

    def port(self) -> int:
        """Where it listens, as soon as it says so."""
        pattern = re.compile(r"waiting for \w+ at 127\.0\.0\.1:(\d+)")
        self._wait(lambda: pattern.search(self.said) is not None, "say where it listens")
        (port,) = pattern.findall(self.said)
        return int(port)

    def _wait(self, condition: Callable[[], bool], event: str) -> None:
        end = time.monotonic() + LIMIT
        while not condition():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < end, f"{self.name} did not {event}:\n{self.said}"
            time.sleep(GLANCE)

    def result(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(LIMIT)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def listening(port: int = 0) -> list[str]:
    """Alice's options; port 0 is any free one."""
    return ["--with", "bob", "--listen", f"127.0.0.1:{port}"]


def dialling(port: int) -> list[str]:
    """Bob's options."""
    return ["--with", "alice", "--connect", f"127.0.0.1:{port}"]


def aligned(folder: Path) -> pd.DataFrame:
    """Both outputs side by side, row by row, as they are."""
    alice = pd.read_csv(folder / "alice-common.csv")
    bob = pd.read_csv(folder / "bob-common.csv")
    assert (alice["nin"] == bob["nin"]).all(), "rows are not aligned"
    return pd.concat([alice, bob[["bob"]]], axis=1)
