"""Two processes run `tacit psi`; one is killed and started again, and both get the right rows.

`python tests/network/test_kill.py 10` does it ten times and prints what happened.
"""

from __future__ import annotations

import random
import re
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # as a script
from processes import Process, aligned, dialling, listening, tables

ROWS = 2048  # 32 batches of 64 in each of the two sets
BATCHES = 64  # that each party encrypts
DRIVER = Path(__file__).with_name("party_that_pauses.py")
COMMAND = [str(DRIVER), "psi"]
PATIENCE = ["--patience", "60"]
HEADER = (
    "| # | killed | after batches | survivor noticed after | survivor said | restart to end "
    "| codes | right rows |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


@dataclass
class Death:
    victim: str
    batches: int  # that the victim had encrypted
    noticed: float  # seconds after the kill until the survivor said so
    said: str
    seconds: float  # from the restart to both ends
    codes: tuple[int, int]
    right: bool

    def row(self, number: int) -> str:
        """A row of the table that the script prints."""
        cells = [
            number,
            self.victim,
            self.batches,
            f"{self.noticed:.2f} s",
            self.said,
            f"{self.seconds:.1f} s",
            f"{self.codes[0]}, {self.codes[1]}",
            "yes" if self.right else "NO",
        ]
        return f"| {' | '.join(map(str, cells))} |\n"


def start(folder: Path, victim: str, batches: int) -> dict[str, Process]:
    """Both parties. The victim pauses after so many batches, and so the other waits for it."""
    pause = {"TACIT_TEST_PAUSE_AFTER": str(batches)}

    def party(name: str, options: list[str]) -> Process:
        environment = pause if name == victim else {}
        return Process(name, folder, [*options, *PATIENCE], COMMAND, environment)

    alice = party("alice", listening())
    bob = party("bob", dialling(alice.port()))
    return {"alice": alice, "bob": bob}


def restart(victim: Process, port: int) -> Process:
    """The same party again; this time it does not pause."""
    options = listening(port) if victim.name == "alice" else dialling(port)
    return Process(victim.name, victim.folder, [*options, *PATIENCE], COMMAND)


def the_other(party: str) -> str:
    return "bob" if party == "alice" else "alice"


def kill_and_restart(folder: Path, victim: str, batches: int, seed: int) -> Death:
    truth = tables(folder, ROWS, seed)
    parties = start(folder, victim, batches)
    survivor = parties[the_other(victim)]
    port = parties["alice"].port()
    try:
        parties[victim].wait_until("paused")
        survivor.wait_until(f"connected to {victim}")
        parties[victim].process.kill()
        killed = time.monotonic()
        assert parties[victim].result() == -signal.SIGKILL
        noticed = survivor.wait_until(f"lost the connection to {victim}") - killed
        restarted = time.monotonic()
        parties[victim] = restart(parties[victim], port)
        codes = parties["alice"].result(), parties["bob"].result()
        seconds = time.monotonic() - restarted
        rows = aligned(folder).sort_values("nin", ignore_index=True)
    finally:
        for party in parties.values():
            party.end()
    notes = re.findall(r"note: ((?:lost|\w+ has started again).*)", survivor.said)
    said = " / ".join(notes)
    return Death(victim, batches, noticed, said, seconds, codes, rows.equals(truth))


def deaths(count: int) -> list[tuple[str, int]]:
    """Who is killed, in turns, and after how many batches."""
    chance = random.Random(7)
    victims = [("alice", "bob")[number % 2] for number in range(count)]
    return [(victim, chance.randrange(1, BATCHES)) for victim in victims]


@pytest.mark.parametrize(("victim", "batches"), deaths(3))
def test_a_party_that_is_killed_and_started_again_gets_the_right_rows(
    victim: str, batches: int, tmp_path: Path
) -> None:
    death = kill_and_restart(tmp_path, victim, batches, seed=1)
    assert death.codes == (0, 0)
    assert death.right
    lost = rf"lost the connection to {victim} \(.+\); waiting up to 60 s for it to come back"
    assert re.match(lost, death.said)
    assert f"{victim} has started again; starting over with it" in death.said


@pytest.mark.parametrize(
    ("victim", "number", "code"), [("alice", signal.SIGTERM, 143), ("bob", signal.SIGINT, 130)]
)
def test_a_party_that_is_stopped_tells_the_other(
    victim: str, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    """Else the other would wait for it as long as its patience lasts."""
    tables(tmp_path, ROWS)
    parties = start(tmp_path, victim, batches=5)
    survivor = parties[the_other(victim)]
    try:
        parties[victim].wait_until("paused")
        survivor.wait_until("connected to")
        parties[victim].process.send_signal(number)
        assert parties[victim].result() == code
        assert survivor.result() == 2
        line = rf"^error: {victim}( at [\d.:]+)? was stopped by its user$"
        assert re.search(line, survivor.said, re.MULTILINE)
        assert "Traceback" not in survivor.said + parties[victim].said
    finally:
        for party in parties.values():
            party.end()


def main(count: int) -> None:
    sys.stdout.write(HEADER)
    for number, (victim, batches) in enumerate(deaths(count), 1):
        with tempfile.TemporaryDirectory() as folder:
            death = kill_and_restart(Path(folder), victim, batches, seed=number)
        sys.stdout.write(death.row(number))


if __name__ == "__main__":
    main(int(sys.argv[1]))
