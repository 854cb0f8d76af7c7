"""Two processes run `tacit psi`; one is killed and started again, and both get the right rows.

It is killed while it pauses at a moment that `party_that_pauses.py` describes. TACIT_KILLS says how
many deaths there are after a random number of batches; from 10 on, both parties die at all other
moments too.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
from pathlib import Path

import pandas as pd
import pytest
from processes import Process, aligned, dialling, listening, tables

from tacit.vertical.session_file import check_one_session

ROWS = 2048  # 32 batches of 64 in each of the two sets
BATCHES = 64  # that each party encrypts
DRIVER = Path(__file__).with_name("party_that_pauses.py")
COMMAND = [str(DRIVER), "psi"]
PATIENCE = ["--patience", "60"]
KILLS = int(os.environ.get("TACIT_KILLS", "3"))
IS_SOAK = KILLS >= 10


def start(folder: Path, victim: str = "", moment: str = "") -> dict[str, Process]:
    """Both parties. The victim pauses at the moment, and so the other waits for it."""
    pause = {"TACIT_TEST_PAUSE_AT": moment}

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


def kill(victim: Process) -> None:
    """Kills it where it pauses."""
    victim.wait_until("paused")
    victim.process.kill()
    assert victim.result() == -signal.SIGKILL


def kill_and_restart(folder: Path, victim: str, moment: str) -> str:
    """What the survivor said, once both have ended well."""
    parties = start(folder, victim, moment)
    survivor = parties[the_other(victim)]
    port = parties["alice"].port()
    try:
        survivor.wait_until(f"connected to {victim}")
        kill(parties[victim])
        survivor.wait_until(f"lost the connection to {victim}")
        parties[victim] = restart(parties[victim], port)
        codes = parties["alice"].result(), parties["bob"].result()
    finally:
        for party in parties.values():
            party.end()
    assert codes == (0, 0), survivor.said + parties[victim].said
    return survivor.said


def deaths() -> list[tuple[str, str]]:
    """Who is killed, and when: in turns after random numbers of batches, then at other moments."""
    chance = random.Random(7)
    chosen = []
    for number in range(KILLS):
        victim = ("alice", "bob")[number % 2]
        chosen.append((victim, f"batch {chance.randrange(1, BATCHES)}"))
    chosen += [("bob", "terms 1"), ("bob", "tags 32"), ("bob", "done 1")]
    if IS_SOAK:
        chosen += [("alice", "terms 1"), ("alice", "tags 32"), ("alice", "done 1")]
        chosen += [("alice", "tags 1"), ("bob", "tags 1")]
    return chosen


@pytest.mark.parametrize(("victim", "moment"), deaths())
def test_a_party_that_is_killed_and_started_again_gets_the_right_rows(
    victim: str, moment: str, tmp_path: Path
) -> None:
    truth = tables(tmp_path, ROWS, seed=1)
    said = kill_and_restart(tmp_path, victim, moment)
    assert sorted_rows(aligned(tmp_path)).equals(truth)
    notes = " / ".join(re.findall(r"note: ((?:lost|\w+ has started again).*)", said))
    lost = rf"lost the connection to {victim} \(.+\); waiting up to 60 s for it to come back"
    assert re.match(lost, notes)
    assert f"{victim} has started again; starting over with it" in notes
    killed = [] if moment == "terms 1" else ["not ended"]  # before it had heard of the other
    assert outcomes(tmp_path, victim) == [*killed, "completed"]
    assert outcomes(tmp_path, the_other(victim)) == ["failed", "completed"]
    check_one_session([tmp_path / f"{name}-common.csv" for name in ("alice", "bob")])


def outcomes(folder: Path, party: str) -> list[str]:
    """How the party's sessions ended, by its log."""
    lines = (folder / f"{party}-sessions.jsonl").read_text().splitlines()
    return [json.loads(line)["outcome"]["status"] for line in lines]


@pytest.mark.parametrize("victim", ["alice", "bob"] if IS_SOAK else ["bob"])
def test_a_party_that_dies_before_its_file_is_in_place_has_none_and_the_other_has_its_rows(
    victim: str, tmp_path: Path
) -> None:
    """Both had said that they were done, so nobody waits; both have to start again."""
    truth = tables(tmp_path, ROWS)
    parties = start(tmp_path, victim, "file 1")
    survivor = parties[the_other(victim)]
    try:
        kill(parties[victim])
        assert survivor.result() == 0, survivor.said
    finally:
        for party in parties.values():
            party.end()
    assert not (tmp_path / f"{victim}-common.csv").exists()
    rows = pd.read_csv(tmp_path / f"{survivor.name}-common.csv")
    assert sorted_rows(rows).equals(truth[["nin", survivor.name]])
    if IS_SOAK:
        again = start(tmp_path)
        assert [party.result() for party in again.values()] == [0, 0]
        assert sorted_rows(aligned(tmp_path)).equals(truth)


def sorted_rows(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values("nin", ignore_index=True)


@pytest.mark.parametrize(
    ("victim", "number", "code"), [("alice", signal.SIGTERM, 143), ("bob", signal.SIGINT, 130)]
)
def test_a_party_that_is_stopped_tells_the_other(
    victim: str, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    """Else the other would wait for it as long as its patience lasts."""
    tables(tmp_path, ROWS)
    parties = start(tmp_path, victim, "batch 5")
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
