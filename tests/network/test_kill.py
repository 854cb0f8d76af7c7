"""Two processes run `tacit psi`; one is killed and started again, and both end with the right rows.

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
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # as a script
from processes import Process, aligned, pair, tables

ROWS, PACE = 2048, 0.08  # 32 batches of 64, so a comparison takes 2.5 s at least on any machine
DRIVER = Path(__file__).with_name("party_at_a_pace.py")
SLOWLY: dict[str, Any] = {
    "command": [str(DRIVER), "psi"],
    "environment": {"TACIT_TEST_PACE": str(PACE)},
}


@dataclass
class Death:
    victim: str
    moment: float  # seconds after the connection
    noticed: float  # seconds after the kill until the survivor said so
    said: str
    seconds: float  # from the restart to both ends
    codes: tuple[int, int]
    right: bool


def kill_and_restart(place: Path, victim: str, moment: float, seed: int) -> Death:
    truth = tables(place, ROWS, seed)
    parties = pair(place, "--patience", "60", **SLOWLY)
    survivor = parties["bob" if victim == "alice" else "alice"]
    try:
        survivor.wait_until(f"connected to {victim}")
        time.sleep(moment)
        parties[victim].process.kill()
        killed = time.monotonic()
        assert parties[victim].result() == -signal.SIGKILL, "it was done before it could be killed"
        noticed = survivor.wait_until(f"lost the connection to {victim}") - killed
        restarted = time.monotonic()
        parties[victim] = Process(victim, place, parties[victim].options, **SLOWLY)
        codes = parties["alice"].result(), parties["bob"].result()
        seconds = time.monotonic() - restarted
        right = aligned(place).sort_values("nin", ignore_index=True).equals(truth)
    finally:
        for party in parties.values():
            party.end()
    notes = re.findall(r"note: ((?:lost|\w+ has started anew).*)", survivor.said)
    return Death(victim, moment, noticed, " / ".join(notes), seconds, codes, right)


def moments(count: int) -> list[tuple[str, float]]:
    """Who is killed, in turns, and when."""
    chance = random.Random(7)
    return [(("alice", "bob")[number % 2], chance.random() * 1.5) for number in range(count)]


@pytest.mark.parametrize(("victim", "moment"), moments(3))
def test_a_party_that_is_killed_and_started_again_gets_the_right_rows(
    victim: str, moment: float, tmp_path: Path
) -> None:
    death = kill_and_restart(tmp_path, victim, moment, seed=1)
    assert death.codes == (0, 0)
    assert death.right
    lost = rf"lost the connection to {victim} \(.+\); waiting up to 60 s for it to come back"
    assert re.match(lost, death.said)
    assert f"{victim} has started anew; starting over with it" in death.said


@pytest.mark.parametrize(
    ("victim", "number", "code"), [("alice", signal.SIGTERM, 143), ("bob", signal.SIGINT, 130)]
)
def test_a_party_that_is_stopped_tells_the_other(
    victim: str, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    """Else the other would wait for it as long as its patience lasts."""
    tables(tmp_path, ROWS)
    parties = pair(tmp_path, "--patience", "60", **SLOWLY)
    other = parties["bob" if victim == "alice" else "alice"]
    try:
        for party in parties.values():
            party.wait_until("connected to")
        parties[victim].process.send_signal(number)
        assert parties[victim].result() == code
        assert other.result() == 2
        assert re.search(
            rf"^error: {victim}( at [\d.:]+)? was stopped by its user$", other.said, re.MULTILINE
        )
        assert "Traceback" not in other.said + parties[victim].said
    finally:
        for party in parties.values():
            party.end()


def main(count: int) -> None:
    rows = [
        "| # | killed | after | survivor noticed after | survivor said | restart to end | codes | right rows |"
    ]
    rows.append("|---|---|---|---|---|---|---|---|")
    for number, (victim, moment) in enumerate(moments(count), 1):
        with tempfile.TemporaryDirectory() as place:
            one = kill_and_restart(Path(place), victim, moment, seed=number)
        rows.append(
            f"| {number} | {one.victim} | {one.moment:.2f} s | {one.noticed:.2f} s | {one.said} | "
            f"{one.seconds:.1f} s | {one.codes[0]}, {one.codes[1]} | {'yes' if one.right else 'NO'} |"
        )
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
