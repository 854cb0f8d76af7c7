"""Keys may have a passphrase, which is asked for on a terminal alone and never shown."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from tacit.channel.certificates import create_authority, create_request, issue
from tacit.channel.credentials import Credentials
from tacit.channel.passphrases import VARIABLE
from tacit.core.errors import DataError

SECRET = "five words: ñ are goöd"
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A consortium with alice, whose key has a passphrase, as the authority's has."""
    create_authority(tmp_path, "heart-study", passphrase=SECRET)
    create_request(tmp_path, "alice", passphrase=SECRET)
    issue(tmp_path, "alice", passphrase=SECRET)
    return tmp_path


def read(folder: Path, passphrase: object = None) -> Credentials:
    files = (folder / "ca.pem", folder / "alice.pem", folder / "alice.key")
    return Credentials.read(*files, passphrase)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["ca.key", "alice.key"])
def test_keys_are_encrypted_on_disk(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    assert content.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert (folder / name).stat().st_mode & 0o777 == 0o600
    serialization.load_pem_private_key(content, SECRET.encode())


def test_a_passphrase_comes_from_the_caller_or_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(folder, SECRET).check("alice").party == "alice"
    questions: list[str] = []

    def asked(question: str) -> str:
        questions.append(question)
        return SECRET

    assert read(folder, asked).check("alice").party == "alice"
    assert questions == [f"passphrase of {folder / 'alice.key'}: "]
    monkeypatch.setenv(VARIABLE, SECRET)
    assert read(folder).check("alice").party == "alice"
    issue(folder, "bob", with_key=True)


def test_a_key_without_a_passphrase_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_authority(tmp_path, "heart-study")
    issue(tmp_path, "alice", with_key=True)
    monkeypatch.setenv(VARIABLE, "of another key")
    assert read(tmp_path).check("alice").party == "alice"
    assert read(tmp_path, "not needed").check("alice").party == "alice"


@pytest.mark.parametrize("wrong", ["", "not this", SECRET.upper(), "\ud800", "x" * 1024, 7, None])
def test_a_wrong_or_missing_passphrase_is_one_line(folder: Path, wrong: object) -> None:
    with pytest.raises(DataError) as caught:
        read(folder, wrong)
    text = str(caught.value)
    assert "passphrase" in text
    assert "\n" not in text
    assert not isinstance(wrong, str) or not wrong or wrong not in text
    assert caught.value.__context__ is None


def test_the_authoritys_key_is_read_before_anything_is_written(folder: Path) -> None:
    before = sorted(folder.iterdir())
    for wrong in (None, "wrong"):
        with pytest.raises(DataError, match="passphrase"):
            issue(folder, "bob", with_key=True, passphrase=wrong)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("short", ["", "seven 7", "x" * 1024])
def test_a_new_passphrase_has_a_length(tmp_path: Path, short: str) -> None:
    for make in (create_authority, create_request):
        with pytest.raises(DataError, match="a passphrase has at"):
            make(tmp_path / "new", "alice", passphrase=short)
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_is_there_keeps_its_passphrase(folder: Path, tmp_path: Path) -> None:
    before = (folder / "alice.key").read_bytes()
    create_request(folder, "alice", passphrase=SECRET)
    assert (folder / "alice.key").read_bytes() == before
    with pytest.raises(DataError, match="passphrase"):
        create_request(folder, "alice")
    create_request(folder, "bob")
    with pytest.raises(DataError, match=r"bob\.key is there already, without a passphrase"):
        create_request(folder, "bob", passphrase=SECRET)


def test_a_certificate_is_renewed_without_the_partys_passphrase(folder: Path) -> None:
    (folder / "alice.csr").unlink()
    issue(folder, "alice", passphrase=SECRET)
    assert read(folder, SECRET).check("alice").party == "alice"
    (folder / "alice.pem").unlink()
    with pytest.raises(DataError, match="make a request for it: tacit cert request alice"):
        issue(folder, "alice", passphrase=SECRET)


# on a terminal


def on_terminal(folder: Path, typed: list[str], *arguments: str) -> tuple[int, str]:
    """Runs `tacit` on a terminal of its own; the exit code, and what the terminal showed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "dumb"}
        os.execve(sys.executable, [sys.executable, "-m", "tacit", *arguments], environment)
    shown = b""
    answers = list(typed)
    try:
        while chunk := os.read(terminal, 4096):
            shown += chunk
            if answers and shown.endswith(b": "):
                os.write(terminal, answers.pop(0).encode() + b"\n")
    except OSError:  # the terminal is closed
        pass
    finally:
        os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert not answers
    return os.waitstatus_to_exitcode(status), shown.decode()


def test_a_new_passphrase_is_asked_for_twice_and_not_shown(tmp_path: Path) -> None:
    code, shown = on_terminal(tmp_path, [SECRET, SECRET], "cert", "init", "x", "--passphrase")
    assert code == 0, shown
    assert "new passphrase for consortium/ca.key, of 8 characters or more: " in shown
    assert SECRET not in shown
    code, shown = on_terminal(tmp_path, [SECRET], "cert", "issue", "alice", "--with-key")
    assert code == 0, shown
    assert "passphrase of consortium/ca.key: " in shown
    assert SECRET not in shown
    code, shown = on_terminal(tmp_path, ["wrong one"], "cert", "issue", "bob", "--with-key")
    assert code == 2
    assert "wrong one" not in shown
    assert "error: consortium/ca.key has another passphrase, or is damaged\r\n" in shown


def test_two_passphrases_that_differ_make_nothing(tmp_path: Path) -> None:
    typed = [SECRET, SECRET + "."]
    code, shown = on_terminal(tmp_path, typed, "cert", "request", "alice", "--passphrase")
    assert code == 2
    assert "error: the two passphrases differ; nothing was made" in shown
    assert list(tmp_path.iterdir()) == []


def test_a_new_passphrase_that_is_too_short_is_not_asked_for_again(tmp_path: Path) -> None:
    code, shown = on_terminal(tmp_path, ["seven 7"], "cert", "init", "x", "--passphrase")
    assert code == 2
    assert shown.endswith("error: a passphrase has at least 8 characters; five words are good\r\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "code", "said"), [("\x03", 130, "stopped"), ("\x04", 2, "error: no passphrase could")]
)
def test_who_does_not_answer_gets_a_line_of_its_own(
    key: str, code: int, said: str, tmp_path: Path
) -> None:
    ended, shown = on_terminal(tmp_path, [key], "cert", "init", "x", "--passphrase")
    assert ended == code
    assert f"\n{said}" in shown
    assert list(tmp_path.iterdir()) == []


def test_a_session_asks_on_the_terminal_itself(folder: Path) -> None:
    """Not OpenSSL, whose prompt would ask anew; here nobody else takes part, which is said next."""
    (folder / "consortium.yaml").write_text(
        "consortium: x\nparties: {alice: {address: 'localhost:0'}, bob: {}}\n"
    )
    (folder / "a.csv").write_text("nin\n1\n")
    command = ("psi", "--party", "alice", "--data", "a.csv", "--key", "nin", "--patience", "1")
    code, shown = on_terminal(folder, [SECRET], *command)
    assert code == 2
    assert shown.count("passphrase of alice.key: ") == 1
    assert "PEM pass phrase" not in shown
    assert SECRET not in shown
    assert "error: bob " in shown


def test_without_a_terminal_the_variable_is_named(folder: Path) -> None:
    (folder / "consortium.yaml").write_text("consortium: x\n")
    command = [sys.executable, "-m", "tacit", "cert", "issue", "bob", "--with-key", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=folder,
            env={**environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    done = run()
    text = "error: there is no terminal to ask for the passphrase of ca.key; set TACIT_PASSPHRASE\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", text)
    done = run(**{VARIABLE: SECRET})
    assert done.returncode == 0
    assert json.loads(done.stdout)["party"] == "bob"
    assert SECRET not in done.stdout + done.stderr
