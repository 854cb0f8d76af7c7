"""Private set intersection: tacit between two processes, OpenMined's in one, the bare arithmetic.

Two tables of identifiers are compared; half of the identifiers are in both. They take turns, and
medians are shown:
- "session" is tacit over mutual TLS between two processes on this machine, from the agreement to
  the result on both sides; "whole" also counts starting Python, reading the tables and writing the
  rows of people known to both;
- "bare group operations" are what no protocol of this kind can do without, by the same library.
  Two processes at once, with one thread each, hash and multiply their own elements and multiply
  the other's. So the ratio is meant for two cores, where tacit has no more either;
- OpenMined's library is installed the first time, in a virtual environment of its own.
Then comes one large run: time, bytes, memory.

Usage: python benchmarks/psi.py [--size 100000] [--large 1000000] [--repeats 3]
    [--group x25519]
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
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from against_peers import Peer  # noqa: E402

from tacit.channel.certificates import create_authority, issue  # noqa: E402
from tacit.channel.consortium import Address, Consortium, default_member  # noqa: E402

PARTIES = ("alice", "bob")
BARE = """
import os, sys
from tacit.vertical.groups.group import Group
group = Group.build(sys.argv[1])
count = int(sys.argv[2])
key = group.draw_key()
values = [b"%012d" % number for number in range(4096)]
hashed = group.hash(values, b"bare")
if group.name == "ristretto255":
    from tacit.vertical.groups.sodium import sodium
    uniform = os.urandom(64 * 4096)
    library = sodium()
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
    """What one comparison by tacit took."""

    session: float  # seconds, of the slower party
    whole: float  # seconds
    bytes: int  # sent by both parties together
    memory: float  # of the larger process at its peak, in MB
    common: int  # identifiers in both tables


def write_table(path: Path, size: int, prefix: str) -> None:
    """Writes identifiers like national numbers with a value each; half are in every table."""
    half = size // 2
    shared = [f"{number:08d}A" for number in range(half)]
    unshared = [f"{prefix}{number:08d}" for number in range(half)]
    names = shared + unshared
    random.Random(prefix).shuffle(names)
    lines = [f"{name},{value}\n" for value, name in enumerate(names)]
    path.write_text("nin,value\n" + "".join(lines))


def make_consortium(folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", free.getsockname()[1])
    create_authority(folder, "benchmark")
    for party in PARTIES:
        issue(folder, party, with_key=True)
    members = {
        "alice": default_member("alice", folder, address),
        "bob": default_member("bob", folder, None),
    }
    Consortium("benchmark", folder / "ca.pem", members).write(folder / "consortium.yaml")


def compare(folder: Path, group: str) -> Turn:
    """tacit: both parties at once, each in a process of its own."""
    start = time.perf_counter()
    processes = [start_party(folder, party, group) for party in PARTIES]
    peaks = [peak_memory(process) for process in processes]
    whole = time.perf_counter() - start
    reports = [read_report(folder, party) for party in PARTIES]
    return Turn(
        session=max(report["seconds"] for report in reports),
        whole=whole,
        bytes=sum(report["sent"] for report in reports),
        memory=max(peaks),
        common=reports[0]["size"],
    )


def start_party(folder: Path, party: str, group: str) -> subprocess.Popen[bytes]:
    data = ["--data", f"{party}.csv", "--key", "nin"]
    options = ["--group", group, "--json", "-q"]
    command = [sys.executable, "-m", "tacit", "psi", "--party", party, *data, *options]
    with (folder / f"{party}.json").open("w") as report:
        return subprocess.Popen(command, cwd=folder, stdout=report)


def peak_memory(process: subprocess.Popen[bytes]) -> float:
    """Waits for the end of a process; returns its peak in MB."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit("tacit psi failed")
    return used.ru_maxrss / 1e3


def read_report(folder: Path, party: str) -> dict[str, Any]:
    reports = json.loads((folder / f"{party}.json").read_text())
    report: dict[str, Any] = reports[0]
    return report


def compute(group: str, size: int) -> float:
    """The same group operations and nothing else, in two processes at once."""
    command = [sys.executable, "-c", BARE, group, str(size)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in range(2)]
    time.sleep(2)  # until both have started
    start = time.perf_counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.close()
    for process in processes:
        process.wait()
    seconds = time.perf_counter() - start
    computed = size // 4096 * 4096  # whole batches only
    return seconds * size / computed


def openmined(peer: Peer, folder: Path) -> dict[str, Any]:
    script = HERE / "peers" / f"{peer.script}.py"
    command = [peer.python, script, "alice.csv", "bob.csv"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"openmined-psi failed: {done.stderr[-2000:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def take_turns(folder: Path, size: int, repeats: int, group: str) -> None:
    peer = Peer("openmined_psi", isolated=True)
    installed = peer.prepare()
    ours: list[Turn] = []
    bare: list[float] = []
    theirs: list[dict[str, Any]] = []
    for _ in range(repeats):
        ours.append(compare(folder, group))
        bare.append(compute(group, size))
        if installed:
            theirs.append(openmined(peer, folder))
    sizes = {turn.common for turn in ours} | {report["common"] for report in theirs}
    if sizes != {size // 2}:
        sys.exit(f"the results differ: {sizes} identifiers in both tables, not {size // 2}")
    cores = len(os.sched_getaffinity(0))
    print(f"{size:,} x {size:,}, {group}, {cores} cores, medians of {repeats}; seconds")
    show(ours, statistics.median(bare), theirs)


def show(ours: list[Turn], bare: float, theirs: list[dict[str, Any]]) -> None:
    session = statistics.median(turn.session for turn in ours)
    whole = statistics.median(turn.whole for turn in ours)
    print(f"  tacit, session between two processes {session:7.1f}   whole {whole:.1f}")
    print(
        f"  bare group operations                {bare:7.1f}   session / bare {session / bare:.2f}"
    )
    if theirs:
        openmined = statistics.median(report["seconds"] for report in theirs)
        name = f"openmined-psi {theirs[0]['version']}, one process"
        ratios = f"session / openmined {session / openmined:.2f}, whole {whole / openmined:.2f}"
        print(f"  {name:36} {openmined:7.1f}   {ratios}", flush=True)


def large_run(folder: Path, size: int, group: str) -> None:
    turn = compare(folder, group)
    times = f"session {turn.session:.1f} s, whole {turn.whole:.1f} s"
    print(f"{size:,} x {size:,}: {times}, {turn.common:,} in both tables")
    per_element = turn.bytes / (2 * size)
    print(f"  {per_element:.1f} bytes per element, peak memory of a party {turn.memory:.0f} MB")


def write_tables(folder: Path, size: int) -> None:
    """Writes both tables, in another process: a party's peak begins with the memory of this one."""
    with ProcessPoolExecutor(1) as pool:
        for party in PARTIES:
            pool.submit(write_table, folder / f"{party}.csv", size, prefix=party[0]).result()


def main() -> None:
    parser = argparse.ArgumentParser(description="private set intersection, as ratios")
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=1_000_000, help="0 leaves the large run out")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--group", default="x25519")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_consortium(folder)
        if arguments.size:
            write_tables(folder, arguments.size)
            take_turns(folder, arguments.size, arguments.repeats, arguments.group)
        if arguments.large:
            write_tables(folder, arguments.large)
            large_run(folder, arguments.large, arguments.group)


if __name__ == "__main__":
    main()
