"""Two parties as two real processes that run `tacit psi`, with tables whose intersection is known."""

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

import pandas as pd
from consortia import folder

SOURCE = Path(__file__).parents[1] / "src"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def tables(place: Path, rows: int, seed: int = 0) -> pd.DataFrame:
    """Writes alice.csv and bob.csv, half of each in common; the plain intersection, sorted by identifier."""
    chance = random.Random(seed)
    people = chance.sample(range(10**9), rows + rows // 2)
    for name, own in (("alice", people[:rows]), ("bob", people[-rows:])):
        chance.shuffle(mixed := list(own))
        pd.DataFrame({"nin": mixed, name: [f"{name} {one}" for one in mixed]}).to_csv(
            place / f"{name}.csv", index=False
        )
    alice, bob = (pd.read_csv(place / f"{name}.csv") for name in ("alice", "bob"))
    return alice.merge(bob, on="nin").sort_values("nin", ignore_index=True)


@dataclass
class Process:
    """A party; what it says goes to a file."""

    name: str
    place: Path
    options: list[str]
    command: list[str] = field(default_factory=lambda: ["-m", "tacit", "psi"])
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = self.place / f"{self.name}-{time.monotonic_ns()}.log"
        data = [
            "--key",
            "nin",
            "--party",
            self.name,
            "--data",
            str(self.place / f"{self.name}.csv"),
        ]
        data += [
            "--out",
            str(self.place / f"{self.name}-common.csv"),
            "--consortium",
            str(folder() / "good"),
        ]
        environment = (
            os.environ
            | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
            | self.environment
        )
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.command, *data, "--threads", "1", *self.options],
                stdout=log, stderr=log, cwd=self.place, env=environment,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait_until(self, text: str, limit: float = 60.0) -> float:
        """When it said so; it has to live until then."""
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


def pair(place: Path, *more: str, **how: Any) -> dict[str, Process]:
    """Alice listens, bob dials; both compare only with each other."""
    port = free_port()
    return {
        "alice": Process(
            "alice", place, ["--with", "bob", "--listen", f"127.0.0.1:{port}", *more], **how
        ),
        "bob": Process(
            "bob", place, ["--with", "alice", "--connect", f"127.0.0.1:{port}", *more], **how
        ),
    }


def aligned(place: Path) -> pd.DataFrame:
    """Both outputs side by side, row by row, as they are."""
    alice, bob = (pd.read_csv(place / f"{name}-common.csv") for name in ("alice", "bob"))
    assert (alice["nin"] == bob["nin"]).all(), "rows are not aligned"
    return pd.concat([alice, bob[["bob"]]], axis=1)
