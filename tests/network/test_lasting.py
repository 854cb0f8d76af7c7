"""A session of real processes that lasts, whatever is killed and cut meanwhile.

The parties that dial do so through an HTTP proxy, which breaks lines, refuses some, and forgets
those that were idle. TACIT_SOAK_MINUTES makes it a long one, of 10,000 exchanges among three.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from chains import Chain
from consortia import folder as consortia_folder
from loops import run
from processes import SOURCE
from proxies import HttpProxy

from tacit.channel.checkpoints import CheckpointFolder
from tacit.channel.loopback import converse
from tacit.channel.opening import in_session

MINUTES = float(os.environ.get("TACIT_SOAK_MINUTES", "0"))
IS_SOAK = MINUTES > 0
DRIVER = Path(__file__).with_name("party_that_lasts.py")
PARTIES = ("alice", "bob", "carol") if IS_SOAK else ("alice", "bob")
VICTIMS = ("alice", "carol") if IS_SOAK else ("alice", "bob")  # of three, one lives all the time
EXCHANGES = 10_000 if IS_SOAK else 200
EVERY = 20 if IS_SOAK else 10
KILLS, CUTS, REFUSALS = (10, 10, 3) if IS_SOAK else (4, 3, 1)
PAUSE = 60 * MINUTES / EXCHANGES if IS_SOAK else 0.005
BEAT, IDLE, REST = (2.0, 6.0, 20.0) if IS_SOAK else (0.3, 2.0, 3.0)  # seconds
LIMIT = 120 + 3 * 60 * MINUTES
SEED = 11
GLANCE = 0.02  # seconds
YOUNG = 120.0  # seconds after which a process has what it needs
GROWTH = 6 << 20  # bytes that a process may have more then; messages differ in size
MORE_FILES = 4  # a line that is made while another one ends, and a checkpoint that is written
CHECKPOINT = re.compile(r"checkpoints/\.?checkpoint-\d+(\.\w+)?")
# Python tries whether it can write there; TLS takes a key from a file only, and that is encrypted.
PASSING = re.compile(r"tmp/(\w{8}|\w+/own\.pem)")


@dataclass(frozen=True)
class Note:
    """What a process says after an exchange."""

    when: float
    exchange: int
    memory: int
    files: int
    sent: int


@dataclass
class Life:
    """A process of a party, and what it has said."""

    process: asyncio.subprocess.Process
    reading: asyncio.Task[None]
    notes: list[Note]
    digests: list[str]
    begin: float = field(default_factory=time.monotonic)


@dataclass
class Party:
    """A party, which may have several lives; its folder holds whatever it writes."""

    part: dict[str, Any]
    folder: Path
    log: Path
    lives: list[Life] = field(default_factory=list)

    async def start(self) -> None:
        temporary = self.folder / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        paths = os.pathsep.join([str(SOURCE), str(SOURCE.parent / "tests")])
        own = {"HOME": str(self.folder), "TMPDIR": str(temporary)}
        usual = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(DRIVER), json.dumps(self.part)),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **usual, **own},
            )
        notes: list[Note] = []
        digests: list[str] = []
        reading = asyncio.create_task(_read(process, notes, digests))
        self.lives.append(Life(process, reading, notes, digests))

    async def die(self) -> None:
        life = self.lives[-1]
        assert life.process.returncode is None, self.log.read_text()
        life.process.kill()
        await life.process.wait()
        await life.reading

    @property
    def reached(self) -> int:
        """The furthest exchange of all its lives."""
        return max((life.notes[-1].exchange for life in self.lives if life.notes), default=0)

    def is_going_on(self) -> bool:
        """Whether it runs; it must not have failed."""
        code = self.lives[-1].process.returncode
        assert not code, self.log.read_text()
        return code is None

    def files(self) -> Iterator[str]:
        """What is in its folder, by its path there."""
        for folder, _, names in os.walk(self.folder):
            for name in names:
                yield str(Path(folder, name).relative_to(self.folder))


async def _read(process: asyncio.subprocess.Process, notes: list[Note], digests: list[str]) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        with suppress(ValueError):  # the half line of one that was killed
            values = json.loads(line)
            if "digest" in values:
                digests.append(values["digest"])
            else:
                notes.append(Note(time.monotonic(), **values))


@dataclass(frozen=True)
class Blow:
    """What happens at an exchange: the death of a party or, without one, the cut of all lines."""

    exchange: int
    victim: str = ""
    refusals: int = 0  # of the proxy, after the cut


def blows() -> list[Blow]:
    """At random moments, but not in the first and last ones, when there is nothing to lose."""
    chance = random.Random(SEED)
    moments = chance.sample(range(EXCHANGES // 20, EXCHANGES * 19 // 20), KILLS + CUTS)
    deaths = [
        Blow(moment, VICTIMS[number % len(VICTIMS)])
        for number, moment in enumerate(moments[:KILLS])
    ]
    cuts = [
        Blow(moment, refusals=int(number < REFUSALS))
        for number, moment in enumerate(moments[KILLS:])
    ]
    return sorted([*deaths, *cuts], key=lambda blow: blow.exchange)


def free_ports(count: int) -> list[int]:
    """Ports that the system gives to nobody by itself, so that they stay free after a death."""
    chance = random.Random()
    ports: list[int] = []
    while len(ports) < count:
        port = chance.randrange(20_000, 32_000)
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            ports.append(port)
    return ports


def make_parties(chain: Chain, proxy: HttpProxy, folder: Path) -> dict[str, Party]:
    """Everybody dials those before, through the proxy; the first one only listens."""
    ports = dict(zip(PARTIES, free_ports(len(PARTIES)), strict=True))
    parties = {}
    for number, name in enumerate(PARTIES):
        part = {
            "me": name,
            "parties": PARTIES,
            "certificates": str(consortia_folder() / "good"),
            "listen": ports[name] if name != PARTIES[-1] else None,
            "connect": {peer: ports[peer] for peer in PARTIES[:number]},
            "proxy": proxy.url,
            "beat": BEAT,
            "chain": asdict(chain),
        }
        parties[name] = Party(part, folder / name, folder / f"{name}.log")
    return parties


class Soak:
    """A session, what is done to it, and what is seen of it."""

    def __init__(self, chain: Chain, proxy: HttpProxy, folder: Path) -> None:
        self.chain = chain
        self.proxy = proxy
        self.parties = make_parties(chain, proxy, folder)
        self.written: set[str] = set()  # files that were seen
        self.chance = random.Random(SEED)

    async def run(self) -> set[str]:
        """The digests of all parties."""
        try:
            for party in self.parties.values():
                await party.start()
            for blow in blows():
                await self._wait_for(blow.exchange)
                await asyncio.sleep(self.chance.uniform(0, self.chain.pause))
                await self._strike(blow)
            await self._wait_for(None)
        finally:
            await self._end()
        return {digest for party in self.parties.values() for digest in party.lives[-1].digests}

    async def _wait_for(self, exchange: int | None) -> None:
        """Until somebody is that far, or all have ended."""
        parties = self.parties.values()
        while True:
            going_on = [party.is_going_on() for party in parties]
            for party in parties:
                self.written.update(party.files())
            if not any(going_on):
                return
            if exchange is not None and any(party.reached >= exchange for party in parties):
                return
            await asyncio.sleep(GLANCE)

    async def _strike(self, blow: Blow) -> None:
        if not blow.victim:
            self.proxy.refusals += blow.refusals
            self.proxy.cut()
        else:
            victim = self.parties[blow.victim]
            await victim.die()
            await asyncio.sleep(self.chance.uniform(0, 0.5))
            await victim.start()

    async def _end(self) -> None:
        for party in self.parties.values():
            for life in party.lives:
                if life.process.returncode is None:
                    life.process.kill()
                await life.process.wait()
                await life.reading
                transport: Any = vars(life.process)["_transport"]
                transport.close()

    # figures

    def lives(self) -> list[Life]:
        return [life for party in self.parties.values() for life in party.lives]

    def recoveries(self) -> list[float]:
        """Seconds from each death until the party, and so all of them, had done an exchange."""
        seconds = []
        for party in self.parties.values():
            for before, after in zip(party.lives, party.lives[1:], strict=False):
                if before.notes and after.notes:
                    seconds.append(after.notes[0].when - before.notes[-1].when)
        return seconds

    def figures(self) -> str:
        notes = [life.notes for life in self.lives() if life.notes]
        begin = min(life.begin for life in self.lives())
        longest = max(notes, key=lambda notes: notes[-1].when - notes[0].when)
        end = max(each[-1].when for each in notes)
        lines = [
            f"{(end - begin) / 60:.1f} minutes, "
            f"{self.chain.exchanges} exchanges among {len(self.parties)} parties, "
            f"{sum(map(len, notes))} done with those that were repeated",
            f"{sum(len(party.lives) - 1 for party in self.parties.values())} kills, {CUTS} cuts, "
            f"answers of the proxy: {[(s, self.proxy.answers.count(s)) for s in (200, 502, 503)]}, "
            f"idle lines forgotten: {self.proxy.forgotten}",
            f"{sum(each[-1].sent for each in notes) / 1e6:.0f} MB sent by all, "
            f"{self.proxy.passed / 1e6:.0f} MB through the proxy",
            f"from a kill to going on: longest {max(self.recoveries()):.1f} s, "
            f"median {median(self.recoveries()):.1f} s",
        ]
        last = (end - begin) / 60
        for minute in (*(minute for minute in (0.1, 1, 2, 5, 10, 15, 20) if minute < last), last):
            recent = [note for note in longest if note.when <= begin + 60 * minute][-100:]
            if recent:
                memory = median(note.memory for note in recent) / 1e6
                lines.append(f"minute {minute:.1f}: {memory:.1f} MB, {recent[-1].files} files")
        return "\n".join(lines)


def test_a_session_ends_with_the_same_bytes_whoever_is_killed_and_whatever_is_cut(
    tmp_path: Path,
) -> None:
    rests = (EXCHANGES // 4, EXCHANGES // 2)
    chain = Chain(SEED, EXCHANGES, EVERY, PAUSE, rests if IS_SOAK else rests[1:], REST)

    async def soak() -> tuple[Soak, set[str]]:
        async with HttpProxy(idle=IDLE) as proxy:
            soak = Soak(chain, proxy, tmp_path)
            return soak, await soak.run()

    soaked, digests = run(soak(), LIMIT)
    sys.stdout.write(f"{soaked.figures()}\n")
    assert digests == undisturbed(tmp_path)
    check_disk(soaked)
    check_proxy(soaked)
    for life in soaked.lives():
        check_flatness(life)


def undisturbed(folder: Path) -> set[str]:
    """The digest of the same program in memory, where nothing happens."""
    chain = Chain(SEED, EXCHANGES, EVERY)
    programs = {}
    for name in PARTIES:
        checkpoints = CheckpointFolder(folder / f"undisturbed-{name}")
        programs[name] = in_session(
            chain.run, name, PARTIES, chain.protocol, checkpoints=checkpoints
        )
    return set(run(converse(programs, purpose="undisturbed"), LIMIT).values())


def check_disk(soaked: Soak) -> None:
    """Nothing but checkpoints was on disk, and none is left."""
    files = {path for path in soaked.written if not PASSING.fullmatch(path)}
    checkpoints = {path for path in files if CHECKPOINT.fullmatch(path)}
    assert checkpoints
    assert files == checkpoints
    for party in soaked.parties.values():
        assert not (party.folder / "checkpoints").exists()
        assert all(PASSING.fullmatch(path) for path in party.files())


def check_proxy(soaked: Soak) -> None:
    """Everything went through it, and signs of life kept the lines while the parties rested."""
    proxy = soaked.proxy
    assert proxy.answers.count(502) == REFUSALS
    assert proxy.answers.count(200) > CUTS
    assert proxy.forgotten == 0
    assert sum(len(party.lives) - 1 for party in soaked.parties.values()) == KILLS


def check_flatness(life: Life) -> None:
    """Neither memory nor open files grow, once a process has what it needs."""
    if not life.notes:
        return
    files = [note.files for note in life.notes]
    assert max(files) <= min(files) + MORE_FILES
    later = [note.memory for note in life.notes if note.when > life.begin + YOUNG]
    if len(later) > 1000:
        assert median(later[-100:]) < median(later[:100]) + GROWTH


if not Path("/proc/self/status").exists():
    pytest.skip("the figures of a process are read from /proc", allow_module_level=True)
