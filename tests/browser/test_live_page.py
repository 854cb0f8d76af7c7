"""The live view of a study that is running."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import Visit

import tacit
from tacit.study.study import Study

SLOW = [
    "dataset=digits",
    "split=iid",
    "algorithm=[fedavg, {name: fedprox, mu: 0.1}]",
    "seed=0",
    "rounds=60",
]


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "tacit", *arguments], text=True, **options)


@pytest.fixture
def going(tmp_path: Path) -> Iterator[Path]:
    """The folder of a study that has just begun."""
    run = start("run", *SLOW, "--out", str(tmp_path / "live"), "--quiet")
    history = tmp_path / "live" / "history.jsonl"
    while run.poll() is None and not (history.exists() and history.stat().st_size):
        time.sleep(0.05)
    yield tmp_path / "live"
    run.wait(timeout=120)


def heed_interrupts() -> None:
    """Lets Ctrl-C end the process; a shell's background jobs would ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def watching(folder: Path) -> Iterator[str]:
    """Serves the live view of a folder; yields its address."""
    arguments = ["watch", str(folder), "--port", "0", "--json"]
    with start(*arguments, stdout=subprocess.PIPE, preexec_fn=heed_interrupts) as watch:
        assert watch.stdout
        try:
            yield json.loads(watch.stdout.readline())["address"]
        finally:
            watch.send_signal(signal.SIGINT)
        assert watch.wait(timeout=30) == 0


@pytest.fixture
def watched(going: Path) -> Iterator[str]:
    with watching(going) as address:
        yield address


def test_the_page_follows_the_study_and_keeps_the_reader_s_choices(
    visit: Visit, watched: str, going: Path
) -> None:
    page = visit.open(watched)
    progress = page.locator("#live").text_content() or ""
    assert "of 3 runs done" in progress  # two, and the centralised one
    rounds_done = "data.curves.reduce((sum, curve) => sum + curve.round.at(-1), 0)"  # of all runs
    before = page.evaluate(rounds_done)
    page.get_by_role("checkbox", name="fedprox").uncheck()
    page.wait_for_function(f"before => {rounds_done} > before", arg=before)
    assert not page.get_by_role("checkbox", name="fedprox").is_checked()
    assert page.locator("#chart-score path.line[data-name=fedprox]").count() == 0
    all_done = "() => document.getElementById('live').textContent === '3 of 3 runs done'"
    page.wait_for_function(all_done, timeout=90_000)
    assert page.evaluate("data.curves.map(curve => curve.round.at(-1))") == [60, 60, 60]
    violations = Axe().run(page).response["violations"]
    assert [(violation["id"], violation["impact"]) for violation in violations] == []
    assert visit.troubles == []
    assert set(visit.requests) == {watched}


def ask(address: str, **headers: str) -> tuple[int, str]:
    """The status and the tag of the answer."""
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["ETag"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def test_only_this_machine_is_served_and_only_one_page(tmp_path: Path) -> None:
    folder = tmp_path / "done"
    tacit.run(Study("small", dataset="iris", model="linear", rounds=1), folder)
    with watching(folder) as address:
        assert address.startswith("http://127.0.0.1:")
        port = int(address.rsplit(":", 1)[1].strip("/"))
        with socket.socket() as elsewhere:
            error_code = elsewhere.connect_ex(("127.0.0.2", port))
            assert error_code != 0  # it listens at one address, not at all of them
        status, tag = ask(address)
        assert status == 200
        assert ask(address, **{"If-None-Match": tag})[0] == 304
        assert ask(address, Host="evil.example")[0] == 403
        assert ask(f"{address}study.yaml")[0] == 404
        assert ask(f"{address}../../etc/passwd")[0] == 404
        arguments = ["watch", str(folder), "--port", str(port)]
        with start(*arguments, stderr=subprocess.PIPE) as second:
            _, error = second.communicate(timeout=60)
        assert second.returncode == 2
        assert error.startswith(f"error: cannot listen on port {port}")


def test_a_damaged_file_is_no_reason_to_end(tmp_path: Path) -> None:
    folder = tmp_path / "Größe"
    tacit.run(Study("small", dataset="iris", model="linear", rounds=1), folder)
    with watching(folder) as address:
        history = (folder / "history.jsonl").read_text()
        damages = (
            ("history.jsonl", history + "null\n"),
            ("splits.json", "{"),
            ("history.jsonl", "{broken}\n"),
        )
        for name, damaged in damages:
            sound = (folder / name).read_text()
            (folder / name).write_text(damaged)
            assert ask(address)[0] == 503
            (folder / name).write_text(sound)
        assert ask(address)[0] == 200
