"""Two parties as two real processes that run `tacit psi` on tables of known intersection."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import consortia
import pandas as pd

SOURCE = Path(__file__).parents[1] / "src"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def tables(folder: Path, rows: int, seed: int = 0) -> pd.DataFrame:
    """Writes alice.csv and bob.csv, of which half the people are in both.

    Returns their plain intersection, sorted by identifier.
    """
    chance = random.Random(seed)
    people = chance.sample(range(10**9), rows + rows // 2)
    alice = write_table(folder, "alice", people[:rows], chance)
    bob = write_table(folder, "bob", people[-rows:], chance)
    return alice.merge(bob, on="nin").sort_values("nin", ignore_index=True)


def write_table(folder: Path, party: str, people: list[int], chance: random.Random) -> pd.DataFrame:
    """Writes a party's table in random order; returns it as it is read again."""
    mixed = list(people)
    chance.shuffle(mixed)
    table = pd.DataFrame({"nin": mixed, party: [f"{party} {number}" for number in mixed]})
    path = folder / f"{party}.csv"
    table.to_csv(path, index=False)
    return pd.read_csv(path)


@dataclass
class Process:
    """A party, whose output goes to a file."""

    name: str
    folder: Path
    options: list[str]
    command: list[str] = field(default_factory=lambda: ["-m", "tacit", "psi"])
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = self.folder / f"{self.name}-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.command, *self.arguments()],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.variables(),
            )

    def arguments(self) -> list[str]:
        values = {
            "--key": "nin",
            "--party": self.name,
            "--data": str(self.folder / f"{self.name}.csv"),
            "--out": str(self.folder / f"{self.name}-common.csv"),
            "--consortium": str(consortia.folder() / "good"),
            "--threads": "1",
        }
        arguments = []
        for option, value in values.items():
            arguments += [option, value]
        return arguments + self.options

    def variables(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
            **self.environment,
        }

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait_until(self, text: str, limit: float = 60.0) -> float:
        """Waits until it has said so, and returns when; it has to live until then."""
        end = time.monotonic() + limit
        while text not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < end, f"{self.name} did not say {text!r}:\n{self.said}"
            time.sleep(0.01)
        return time.monotonic()

    def result(self, limit: float = 90.0) -> int:
        return self.process.wait(limit)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def pair(folder: Path, *options: str, **settings: Any) -> dict[str, Process]:
    """Alice listens, bob dials; both compare only with each other."""
    address = f"127.0.0.1:{free_port()}"
    listen = ["--with", "bob", "--listen", address, *options]
    dial = ["--with", "alice", "--connect", address, *options]
    return {
        "alice": Process("alice", folder, listen, **settings),
        "bob": Process("bob", folder, dial, **settings),
    }


def aligned(folder: Path) -> pd.DataFrame:
    """Both outputs side by side, row by row, as they are."""
    alice = pd.read_csv(folder / "alice-common.csv")
    bob = pd.read_csv(folder / "bob-common.csv")
    assert (alice["nin"] == bob["nin"]).all(), "rows are not aligned"
    return pd.concat([alice, bob[["bob"]]], axis=1)
