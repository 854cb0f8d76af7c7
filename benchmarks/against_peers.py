"""tacit against Flower's simulation, pfl-research, fluke and a bare PyTorch loop.

All do the same task on the same machine and take turns. The task is in `peers/task.py`: a CNN on
MNIST, 10 clients, federated averaging weighted by samples, plain SGD, batches of 32, one local
pass, and the accuracy on the 10,000 test pictures after every round. All start from the same
weights and read the data by the same function. MNIST comes from the folder that TACIT_DATA names
(mnist/*.gz). Without it, pictures of noise are used: the seconds then mean the same, the
accuracies nothing.

Each turn is a fresh process, and three times are shown:
- "whole" is the process from its start to its end: interpreter, imports, data, rounds, shutdown
  (and, for tacit, the folder with its report);
- "rounds" lasts from the start of the first round to the end of the last, tests included;
- "later round" is the mean of the rounds after the first, in which Flower starts its actors.
The first table shows wall seconds, the second the processor seconds of all processes together.
With one core the two agree; processor seconds also hold when others use the machine.

The first time, each peer gets a virtual environment in `peers/.venvs` from its pinned list in
`peers/<name>.txt`; that downloads some gigabytes. A peer that cannot be installed is named and
left out.
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from peers.task import MARK, Task, has_mnist  # noqa: E402

PEERS = ["pfl", "flower", "fluke"]
WALL, PROCESSOR = 0, 1  # the clocks, by their position in a turn's pairs of seconds


@dataclass(frozen=True)
class Peer:
    """A script of `peers/`, and how it is started."""

    script: str
    isolated: bool = False  # runs in a virtual environment of its own
    without_dependencies: tuple[str, ...] = ()  # packages installed without what they require
    parallel: str = ""  # how clients share the cores, where that can be chosen
    torchrun: bool = False
    turns: list[dict[str, Any]] = field(default_factory=list, compare=False)

    @property
    def python(self) -> Path:
        if not self.isolated:
            return Path(sys.executable)
        return HERE / "peers" / ".venvs" / self.script / "bin" / "python"

    def prepare(self) -> bool:
        """Creates the environment if there is none; returns whether the peer can take part."""
        environment = self.python.parent.parent
        ready = environment / ".ready"
        if not self.isolated or ready.exists():
            return True
        print(f"creating {environment.relative_to(HERE)} from peers/{self.script}.txt", flush=True)
        venv.create(environment, with_pip=True, clear=True)
        if not self.install():
            print(f"{self.script} could not be installed and is left out", flush=True)
            return False
        ready.touch()
        return True

    def install(self) -> bool:
        """Installs the peer's packages; returns whether that worked."""
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        requirements = HERE / "peers" / f"{self.script}.txt"
        done = subprocess.run([*pip, "-r", str(requirements)], check=False)
        if done.returncode == 0 and self.without_dependencies:
            packages = self.without_dependencies
            done = subprocess.run([*pip, "--no-deps", *packages], check=False)
        return done.returncode == 0

    def run(self, task: Task) -> None:
        """Takes one turn in a fresh process."""
        cores = sorted(os.sched_getaffinity(0))[: task.cores]

        def stay_on_cores() -> None:  # threads are not the only way for a process to use cores
            os.sched_setaffinity(0, cores)

        start = time.perf_counter()
        done = subprocess.run(
            self.command(task),
            cwd=HERE,
            env=self.environment(task),
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=stay_on_cores,
        )
        seconds = time.perf_counter() - start
        reports = [line for line in done.stdout.splitlines() if line.startswith('{"name"')]
        if not reports:
            sys.exit(f"{self.script} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        self.turns.append({**json.loads(reports[-1]), "whole": seconds})

    def command(self, task: Task) -> list[str]:
        command = [str(self.python)]
        if self.torchrun:
            command += ["-m", "torch.distributed.run", "--nproc-per-node", str(task.cores)]
        return [*command, "-m", f"peers.{self.script}", task.to_json()]

    def environment(self, task: Task) -> dict[str, str]:
        """The process's environment variables."""
        threads = 1 if self.torchrun else task.cores
        variables = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            MARK: str(time.time_ns()),
        }
        if not self.isolated:
            source = str(HERE.parent / "src")
            variables["PYTHONPATH"] = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
        return variables

    @property
    def title(self) -> str:
        first = self.turns[0]
        words = [first["name"], first.get("version"), self.parallel]
        return " ".join(word for word in words if word)

    def result(self, clock: int) -> dict[str, float]:
        """The medians over the turns, by the wall clock (0) or the processor's (1)."""
        whole = "cpu" if clock == PROCESSOR else "whole"
        columns: dict[str, list[float]] = {"whole": [], "rounds": [], "later": [], "accuracy": []}
        for turn in self.turns:
            ends = [end[clock] for end in turn["ends"]]
            columns["whole"].append(turn[whole])
            columns["rounds"].append(ends[-1])
            columns["later"].append((ends[-1] - ends[0]) / (len(ends) - 1))
            columns["accuracy"].append(turn["accuracies"][-1])
        return {name: statistics.median(values) for name, values in columns.items()}


def players(task: Task, chosen: list[str]) -> list[tuple[Peer, Task]]:
    """Who takes part, and with which task.

    Frameworks whose clients can train side by side take part twice: with all cores for one client
    after another, and with one core for each of several clients.
    """
    fluke = Peer("fluke", isolated=True, without_dependencies=("fluke-fl==0.8.1",))
    all_cores = replace(task, cores_per_client=task.cores)
    several_cores = task.cores > 1
    in_turn = f"1 client x {task.cores} cores" if several_cores else ""
    candidates = [
        (Peer("bare"), task),
        (Peer("ours"), task),
        (Peer("pfl", isolated=True, parallel=in_turn), task),
        (Peer("flower", isolated=True, parallel=in_turn), all_cores),
        (fluke, task),
    ]
    if several_cores:
        side_by_side = f"{task.cores} clients x 1 core"
        candidates += [
            (Peer("pfl", isolated=True, parallel=side_by_side, torchrun=True), task),
            (Peer("flower", isolated=True, parallel=side_by_side), task),
        ]
    scripts = {"bare", "ours", *chosen}
    return [(peer, its_task) for peer, its_task in candidates if peer.script in scripts]


def take_turns(players: list[tuple[Peer, Task]], repeats: int) -> None:
    for turn in range(repeats):
        # to and fro, so that nobody always follows the same peer
        order = players if turn % 2 == 0 else players[::-1]
        for peer, task in order:
            peer.run(task)
            report = peer.turns[-1]
            rounds = report["ends"][-1][WALL]
            print(
                f"turn {turn + 1}: {report['name']} {report['whole']:.1f} s, rounds {rounds:.1f} s",
                flush=True,
            )


def show(title: str, peers: list[Peer], clock: int) -> None:
    """Prints seconds, and their ratios to the bare loop's and to tacit's."""
    print(f"{title:38}{'whole':>18}{'rounds':>18}{'later round':>18}   accuracy")
    results = [peer.result(clock) for peer in peers]
    bare, ours = results[:2]
    for peer, result in zip(peers, results, strict=True):
        line = f"{peer.title:38}"
        for key in ("whole", "rounds", "later"):
            seconds = result[key]
            line += f"{seconds:7.2f} {seconds / bare[key]:5.2f}{seconds / ours[key]:5.2f}"
        print(line + f"{result['accuracy']:11.3f}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="tacit against its peers; seconds, as ratios")
    parser.add_argument(
        "--samples", type=int, default=20_000, help="training pictures; 60000 is all of MNIST"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--repeats", type=int, default=3, help="turns of each peer; their medians are shown"
    )
    parser.add_argument("--cores", type=int, default=1, help="the most that each peer may use")
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS)
    parser.add_argument("--json", action="store_true", help="also print every turn")
    arguments = parser.parse_args()
    counts_are_fine = arguments.rounds >= 2 and arguments.repeats >= 1 and arguments.cores >= 1
    if not counts_are_fine or not 320 <= arguments.samples <= 60_000:
        parser.error("expected 2 or more rounds, a repeat, a core, and 320 to 60000 samples")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    task = Task(samples=arguments.samples, rounds=arguments.rounds, cores=arguments.cores)
    candidates = players(task, arguments.peers)
    ready = [(peer, its_task) for peer, its_task in candidates if peer.prepare()]
    data = "MNIST"
    if not has_mnist():
        data = "noise of MNIST's shape (TACIT_DATA names no folder with mnist/*.gz)"
    print(f"{data}, {task.samples:,} samples, {task.clients} clients, {task.rounds} rounds")
    print(f"{task.cores} cores for each peer")
    take_turns(ready, arguments.repeats)
    peers = [peer for peer, _ in ready]
    torch_version = peers[-1].turns[-1]["torch"]
    print(f"\nmedians of {arguments.repeats}; torch {torch_version}")
    print("seconds, their ratio to the bare loop's, their ratio to tacit's")
    show("wall", peers, WALL)
    show("processor", peers, PROCESSOR)
    if arguments.json:
        print(json.dumps({peer.title: peer.turns for peer in peers}))


if __name__ == "__main__":
    main()
