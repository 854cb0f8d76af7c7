"""Private set intersection: tacit over mutual TLS between two processes, OpenMined's in one, and the bare arithmetic.

Two tables of identifiers, half of them in common. "tacit" is the session between two processes on this machine, from
the agreement to the result on both sides; "whole" adds starting Python, reading the tables and writing the common rows.
"bare" is what no protocol of this kind can do without, by the same library: two processes at once, each of which hashes
and multiplies its own elements and multiplies the other's, on one thread each; so the ratio is meant for two cores,
where tacit has no more either. OpenMined's library comes in an environment of its own, made the first time. They take
turns; medians. Then one large run: time, bytes, memory.

Usage: python benchmarks/psi.py [--size 100000] [--large 1000000] [--repeats 3] [--group ristretto255]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from against_peers import Peer  # noqa: E402

from tacit.channel.certificates import create_authority, issue  # noqa: E402
from tacit.channel.consortium import Address, Consortium, default_member  # noqa: E402

BARE = """
import os, sys
from tacit.vertical.groups.group import Group
group, count = Group.build(sys.argv[1]), int(sys.argv[2])
key, values = group.draw_key(), [b"%012d" % number for number in range(4096)]
hashed = group.hash(values, b"bare")
if group.name == "ristretto255":
    from tacit.vertical.groups.sodium import sodium
    uniform, library = os.urandom(64 * 4096), sodium()
    def work():
        library.map_uniform(uniform)
        library.multiply(hashed, key)
        library.multiply(hashed, key)
else:
    def work():
        group.encrypt_hashed(values, b"bare", key)
        group.encrypt(hashed, key)
sys.stdin.readline()
for _ in range(count // 4096):
    work()
"""


@dataclass(frozen=True)
class Turn:
    seconds: float  # the longer of the two sessions
    whole: float
    bytes: int  # that both sent
    memory: float  # of the larger process at its peak, in MB
    common: int


def write_table(path: Path, size: int, own: str) -> None:
    """Identifiers like national numbers, half of them the same in every table, and a value."""
    names = [f"{number:08d}A" for number in range(size // 2)] + [
        f"{own}{number:08d}" for number in range(size // 2)
    ]
    random.Random(own).shuffle(names)
    path.write_text(
        "nin,value\n" + "".join(f"{name},{place}\n" for place, name in enumerate(names))
    )


def make_consortium(folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", free.getsockname()[1])
    create_authority(folder, "benchmark")
    for party in ("alice", "bob"):
        issue(folder, party)
    members = {
        name: default_member(name, folder, address if name == "alice" else None)
        for name in ("alice", "bob")
    }
    Consortium("benchmark", folder / "ca.pem", members).write(folder / "consortium.yaml")


def compare(folder: Path, group: str) -> Turn:
    """Both parties at once, each a process of its own."""
    start, running = time.perf_counter(), []
    for party in ("alice", "bob"):
        command = [
            sys.executable,
            "-m",
            "tacit",
            "psi",
            "--party",
            party,
            "--data",
            f"{party}.csv",
            "--key",
            "nin",
        ]
        out = (folder / f"{party}.json").open("w")
        running.append(
            (
                subprocess.Popen(
                    [*command, "--group", group, "--json", "-q"], cwd=folder, stdout=out
                ),
                out,
            )
        )
    peaks = []
    for process, out in running:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.close()
        if process.returncode:
            sys.exit("tacit psi failed")
        peaks.append(used.ru_maxrss / 1e3)
    whole = time.perf_counter() - start
    both: list[dict[str, Any]] = [
        json.loads((folder / f"{party}.json").read_text())[0] for party in ("alice", "bob")
    ]
    sent = sum(one["sent"] for one in both)
    return Turn(max(one["seconds"] for one in both), whole, sent, max(peaks), both[0]["size"])


def compute(group: str, size: int) -> float:
    """The same group operations and nothing else, in two processes at once."""
    command = [sys.executable, "-c", BARE, group, str(size)]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in range(2)]
    time.sleep(2)  # both have started
    start = time.perf_counter()
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.close()
    for process in running:
        process.wait()
    return (time.perf_counter() - start) * size / (size // 4096 * 4096)


def openmined(peer: Peer, folder: Path) -> dict[str, Any]:
    script = HERE / "peers" / f"{peer.script}.py"
    done = subprocess.run(
        [peer.python, script, "alice.csv", "bob.csv"], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"openmined-psi failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def take_turns(folder: Path, size: int, repeats: int, group: str) -> None:
    peer = Peer("openmined_psi", own=True)
    installed = peer.prepare()
    ours, bare, theirs = [], [], []
    for _ in range(repeats):
        ours.append(compare(folder, group))
        bare.append(compute(group, size))
        theirs += [openmined(peer, folder)] if installed else []
        if any(one["common"] != ours[-1].common for one in theirs) or ours[-1].common != size // 2:
            sys.exit("the results differ")
    session, whole = (
        statistics.median(getattr(one, key) for one in ours) for key in ("seconds", "whole")
    )
    floor = statistics.median(bare)
    print(
        f"{size:,} x {size:,}, {group}, {len(os.sched_getaffinity(0))} cores, medians of {repeats}; seconds"
    )
    print(f"  tacit, mutual TLS, two processes   {session:7.1f}   whole {whole:.1f}")
    print(f"  bare group operations              {floor:7.1f}   tacit / bare {session / floor:.2f}")
    if theirs:
        other = statistics.median(one["seconds"] for one in theirs)
        name = f"openmined-psi {theirs[0]['version']}"
        ratios = f"tacit / openmined {session / other:.2f}, whole {whole / other:.2f}"
        print(f"  {name}, one process {other:9.1f}   {ratios}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="private set intersection, as ratios")
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=1_000_000, help="0 leaves the large run out")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--group", default="ristretto255")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_consortium(folder)
        for size in (given.size, given.large):
            if not size:
                continue
            for party in ("alice", "bob"):
                write_table(folder / f"{party}.csv", size, party[0])
            if size == given.size:
                take_turns(folder, size, given.repeats, given.group)
            else:
                turn = compare(folder, given.group)
                each = turn.bytes / (2 * size)
                print(
                    f"{size:,} x {size:,}: {turn.seconds:.1f} s, whole {turn.whole:.1f} s, {turn.common:,} in common"
                )
                print(
                    f"  {each:.1f} bytes per element, peak memory of a party {turn.memory:.0f} MB"
                )


if __name__ == "__main__":
    main()
