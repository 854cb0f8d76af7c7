"""tacit against Flower's simulation, pfl-research, fluke and a bare PyTorch loop: one task, one machine, taking turns.

The task is `peers/task.py`: a CNN on MNIST, 10 clients, federated averaging weighted by samples, plain SGD, batches of
32, one local pass, and the accuracy on the 10,000 test pictures after every round. Everybody starts at the same weights
and reads the data by the same function. MNIST comes from the folder that TACIT_DATA names (mnist/*.gz); without it,
pictures of noise take its place: the seconds mean the same then, the accuracies nothing.

Each turn is a fresh process. "whole" is all of it: interpreter, imports, data, rounds, shutdown (and, for tacit, the
folder with its report). "rounds" lasts from the start of the first round to the end of the last, tests included;
"later" is one round, the mean of those after the first, in which Flower starts its actors. Of each there are wall
seconds and, in a second table, processor seconds of all processes together: with one core these tell the same, and
still do so when others use the machine.

The first time, each peer gets an environment of its own in `peers/.venvs` from its pinned list in `peers/<name>.txt`;
that downloads some gigabytes. Those that cannot be installed are left out, and named.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from peers.task import MARK, Task, has_mnist  # noqa: E402


@dataclass(frozen=True)
class Peer:
    """A script of `peers/`, and how it is started."""

    script: str
    alone: tuple[str, ...] = ()  # packages to install without what they ask for
    own: bool = False  # runs in an environment of its own
    parallel: str = ""  # how clients share the cores, where that can be chosen
    torchrun: bool = False
    turns: list[dict[str, Any]] = field(default_factory=list, compare=False)

    @property
    def python(self) -> Path:
        return (
            HERE / "peers" / ".venvs" / self.script / "bin" / "python"
            if self.own
            else Path(sys.executable)
        )

    def prepare(self) -> bool:
        """Makes the environment where there is none; whether the peer can take part."""
        ready = self.python.parent.parent / ".ready"
        if not self.own or ready.exists():
            return True
        print(f"making {ready.parent.relative_to(HERE)} from peers/{self.script}.txt", flush=True)
        venv.create(ready.parent, with_pip=True, clear=True)
        install = [
            str(self.python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        steps = [
            ["-r", str(HERE / "peers" / f"{self.script}.txt")],
            *([["--no-deps", *self.alone]] if self.alone else []),
        ]
        for step in steps:
            if subprocess.run([*install, *step], check=False).returncode:
                print(f"{self.script} could not be installed and is left out", flush=True)
                return False
        ready.touch()
        return True

    def run(self, task: Task) -> None:
        """One turn in a fresh process."""
        several = (
            ["-m", "torch.distributed.run", "--nproc-per-node", str(task.cores)]
            if self.torchrun
            else []
        )
        command = [str(self.python), *several, "-m", f"peers.{self.script}", task.to_json()]
        ours = {
            "PYTHONPATH": os.pathsep.join(
                [str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
            )
        }
        threads = 1 if self.torchrun else task.cores
        setting = {
            "OMP_NUM_THREADS": str(threads),
            MARK: str(time.time_ns()),
            **({} if self.own else ours),
        }
        bound = set(
            sorted(os.sched_getaffinity(0))[: task.cores]
        )  # a process may know more than one way to use cores
        start = time.perf_counter()
        done = subprocess.run(
            command,
            cwd=HERE,
            env={**os.environ, **setting},
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, bound),
        )
        whole = time.perf_counter() - start
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"name"')]
        if not lines:
            sys.exit(f"{self.script} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        self.turns.append({**json.loads(lines[-1]), "whole": whole})

    def result(self, clock: int) -> dict[str, Any]:
        """The medians of its turns, by the wall's clock (0) or the processor's (1)."""
        first = self.turns[0]
        title = " ".join(filter(None, [first["name"], first.get("version"), self.parallel]))
        ends = [[end[clock] for end in turn["ends"]] for turn in self.turns]
        measures = {
            "whole": [turn["cpu" if clock else "whole"] for turn in self.turns],
            "rounds": [times[-1] for times in ends],
            "later": [(times[-1] - times[0]) / (len(times) - 1) for times in ends],
            "accuracy": [turn["accuracies"][-1] for turn in self.turns],
        }
        return {
            "name": title,
            **{key: statistics.median(values) for key, values in measures.items()},
        }


def peers(task: Task, chosen: list[str]) -> list[tuple[Peer, Task]]:
    """Who takes part; those whose clients can work side by side in each of their two forms."""
    many = task.cores > 1
    together = f"1 client x {task.cores} cores" if many else ""
    apart = f"{task.cores} clients x 1 core"
    wide = Task(**{**vars(task), "cores_per_client": task.cores})
    found = [
        (Peer("bare"), task),
        (Peer("ours"), task),
        (Peer("pfl", own=True, parallel=together), task),
        (Peer("flower", own=True, parallel=together), wide),
        (Peer("fluke", own=True, alone=("fluke-fl==0.8.1",)), task),
    ]
    if many:
        found += [(Peer("pfl", own=True, parallel=apart, torchrun=True), task)]
        found += [(Peer("flower", own=True, parallel=apart), task)]
    return [
        (peer, its)
        for peer, its in found
        if peer.script in ("bare", "ours") or peer.script in chosen
    ]


def show(title: str, results: list[dict[str, Any]]) -> None:
    """Seconds, and each one's ratio to the bare loop and to tacit."""
    bare, ours = results[:2]
    print(f"{title:38}{'whole':>18}{'rounds':>18}{'later round':>18}   accuracy")
    for one in results:
        cells = [
            f"{one[key]:7.2f} {one[key] / bare[key]:5.2f}{one[key] / ours[key]:5.2f}"
            for key in ("whole", "rounds", "later")
        ]
        print(f"{one['name']:38}" + "".join(cells) + f"{one['accuracy']:11.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="tacit against its peers; seconds, as ratios")
    parser.add_argument(
        "--samples", type=int, default=20_000, help="training pictures; 60000 is all of MNIST"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--repeats", type=int, default=3, help="turns of each, of which the median is shown"
    )
    parser.add_argument("--cores", type=int, default=1, help="for each of them, never more")
    parser.add_argument(
        "--peers", nargs="*", default=["pfl", "flower", "fluke"], choices=["pfl", "flower", "fluke"]
    )
    parser.add_argument("--json", action="store_true", help="also print every turn")
    given = parser.parse_args()
    if (
        given.rounds < 2
        or given.repeats < 1
        or given.cores < 1
        or not 320 <= given.samples <= 60_000
    ):
        parser.error("expected 2 or more rounds, a repeat, a core, and 320 to 60000 samples")
    task = Task(samples=given.samples, rounds=given.rounds, cores=given.cores)
    players = [(peer, its) for peer, its in peers(task, given.peers) if peer.prepare()]
    data = (
        "MNIST"
        if has_mnist()
        else "noise of MNIST's shape (TACIT_DATA names no folder with mnist/*.gz)"
    )
    print(
        f"{data}, {task.samples:,} samples, {task.clients} clients, {task.rounds} rounds, {task.cores} cores each"
    )
    for turn in range(given.repeats):
        for peer, its in (
            players if turn % 2 == 0 else players[::-1]
        ):  # to and fro, so that no one always follows another
            peer.run(its)
            last = peer.turns[-1]
            print(
                f"turn {turn + 1}: {last['name']} {last['whole']:.1f} s, rounds {last['ends'][-1][0]:.1f} s",
                flush=True,
            )
    print(
        f"\nmedians of {given.repeats}: seconds, ratio to the bare loop, ratio to tacit; torch {last['torch']}"
    )
    for clock, title in enumerate(("wall", "processor")):
        show(title, [peer.result(clock) for peer, _ in players])
    if given.json:
        print(json.dumps({peer.result(0)["name"]: peer.turns for peer, _ in players}))


if __name__ == "__main__":
    main()
