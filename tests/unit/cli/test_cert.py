from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.channel.certificates import create_authority, issue
from tacit.channel.consortium import Address, Consortium
from tacit.channel.credentials import check_identity, describe
from tacit.cli.main import main


class Shell:
    """`tacit cert` in a folder, without a process of its own."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]
    ) -> None:
        self.monkeypatch, self.captured = monkeypatch, captured

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        self.monkeypatch.setattr(sys, "argv", ["tacit", "cert", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = self.captured.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    def done(self, *arguments: str) -> str:
        code, out, err = self(*arguments)
        assert (code, err) == (0, "")
        return out


@pytest.fixture
def cert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(monkeypatch, capsys)


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def test_a_consortium_is_made_in_three_commands(cert: Shell, tmp_path: Path) -> None:
    said = cert.done("init", "heart-study")
    assert "keep consortium/ca.key to yourself" in said
    assert "each party runs: tacit cert request PARTY" in said
    assert "tacit cert issue PARTY --request PARTY.csr --address HOST:PORT" in said
    said = cert.done("issue", "alice", "--address", "alice.example:7050", "--with-key")
    handed = next(line for line in said.splitlines() if line.startswith("give alice"))
    assert [Path(file).name for file in handed.partition(": ")[2].split(", ")] == [
        "consortium.yaml",
        "ca.pem",
        "alice.pem",
        "alice.key",
    ]
    assert "never give ca.key to anybody" in said
    cert.done("issue", "bob", "--days", "30", "--with-key")
    found = Consortium.find(tmp_path / "consortium")
    assert found.member("alice").address == Address("alice.example", 7050)
    assert found.member("bob").address is None
    for name, member in found.members.items():
        identity = check_identity(found.ca, member.certificate, member.key, name)
        assert identity.consortium == "heart-study"


def test_a_key_made_by_its_party_is_not_handed_over(cert: Shell, tmp_path: Path) -> None:
    said = cert.done("request", "carol", "--folder", "at_carol")
    assert "keep at_carol/carol.key to yourself" in said
    cert.done("init")
    said = cert.done("issue", "carol", "--request", "at_carol/carol.csr")
    assert "carol.key" not in said
    assert not (tmp_path / "consortium" / "carol.key").exists()
    found = Consortium.find()
    assert found.name == "consortium"
    certificate = found.member("carol").certificate
    assert check_identity(found.ca, certificate, Path("at_carol/carol.key"), "carol")


def test_renewing_keeps_key_address_and_the_comments_of_the_file(cert: Shell) -> None:
    cert.done("init", "heart-study")
    cert.done("issue", "alice", "--address", "alice.example:7050", "--days", "5", "--with-key")
    file, key = Path("consortium/consortium.yaml"), Path("consortium/alice.key")
    file.write_text(file.read_text() + "# by hand\n")
    before = file.read_text(), key.read_bytes()
    said = cert.done("issue", "alice")
    assert "for its key" in said
    assert "the other parties" not in said
    assert (file.read_text(), key.read_bytes()) == before
    assert describe(Path("consortium/alice.pem")).days_left() > 300
    cert.done("issue", "alice", "--address", "new.example:1")
    assert Consortium.find().member("alice").address == Address("new.example", 1)


def test_the_fingerprint_of_a_key_is_the_same_at_both_sides(cert: Shell) -> None:
    cert.done("init", "heart-study")
    requested = cert.done("request", "carol", "--folder", "at_carol")
    issued = cert.done("issue", "carol", "--request", "at_carol/carol.csr")
    fingerprint = describe(Path("consortium/carol.pem")).key_fingerprint
    line = f"its key fingerprint is {fingerprint}\n"
    assert line in requested
    assert line in issued
    assert "let carol read its fingerprint out, by telephone" in issued
    assert f"carol: {{key_fingerprint: {fingerprint}}}" in Path(
        "consortium/consortium.yaml"
    ).read_text(encoding="utf-8")
    assert fingerprint in cert.done("show")
    for arguments in (
        ("request", "carol", "--folder", "at_carol"),
        ("issue", "carol", "--request", "at_carol/carol.csr"),
    ):
        assert json.loads(cert.done(*arguments, "--json"))["key_fingerprint"] == fingerprint
    Path("consortium/carol.pem").unlink()
    assert fingerprint in cert.done("show")  # as the other parties see it


def test_a_new_key_takes_the_place_of_a_stolen_one(cert: Shell) -> None:
    cert.done("init", "heart-study")
    cert.done("request", "carol", "--folder", "old")
    cert.done("issue", "carol", "--request", "old/carol.csr")
    stolen = Path("consortium/carol.pem").read_bytes()
    before = describe(Path("consortium/carol.pem")).key_fingerprint
    cert.done("request", "carol", "--folder", "new")
    said = cert.done("issue", "carol", "--request", "new/carol.csr")
    assert f"the earlier key of carol, {before}, is refused" in said
    assert "the other parties need the new consortium/consortium.yaml too" in said
    assert Consortium.find().pins == {
        "carol": describe(Path("consortium/carol.pem")).key_fingerprint
    }
    Path("consortium/carol.pem").write_bytes(stolen)
    assert "is for another key than consortium.yaml has for carol" in cert.done("show")
    code, _, err = cert("issue", "carol")  # by mistake: it would renew what was stolen
    assert code == 2
    assert "is for another key of carol than consortium.yaml has; name the party's request" in err
    assert Path("consortium/carol.pem").read_bytes() == stolen


def test_inside_the_folder_no_folder_is_named(
    cert: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert.done("init", "heart-study", "--folder", "deep/one")
    monkeypatch.chdir(tmp_path / "deep" / "one")
    cert.done("issue", "alice", "--with-key")
    cert.done("request", "bob")
    assert {path.name for path in Path().iterdir()} == {
        "consortium.yaml",
        *("ca.pem", "ca.key", "alice.pem", "alice.key", "bob.key", "bob.csr"),
    }
    assert cert.done("show", "--quiet").splitlines() == ["certificate authority", "alice"]


def test_show_tells_addresses_validity_and_fingerprints(cert: Shell) -> None:
    cert.done("init", "heart-study")
    cert.done("issue", "alice", "--address", "[::1]:7050", "--with-key")
    cert.done("issue", "bob", "--with-key")
    cert.done("issue", "carol", "--with-key")
    Path("consortium/bob.pem").unlink()
    create_authority(Path("other"), "heart-study")
    issue(Path("other"), "carol", with_key=True)
    Path("consortium/carol.pem").write_bytes(Path("other/carol.pem").read_bytes())
    shown = cert.done("show").splitlines()
    alices = describe(Path("consortium/alice.pem"))
    assert [line.split()[0] for line in shown] == ["party", "certificate", "alice", "bob", "carol"]
    assert shown[2].split()[2:3] == ["[::1]:7050"]
    assert shown[2].rstrip().endswith(f" {alices.key_fingerprint}")
    assert shown[3].rstrip().endswith("not here")
    assert "is not signed by" in shown[4]
    found = json.loads(cert.done("show", "--json"))
    assert [row["party"] for row in found] == ["certificate authority", "alice", "bob", "carol"]
    assert found[1]["fingerprint"] == alices.fingerprint
    assert found[1]["key_fingerprint"] == alices.key_fingerprint
    assert found[1]["days_left"] in (364, 365)
    alice = json.loads(cert.done("show", "consortium/alice.pem", "--json"))[0]
    assert alice["issuer"].endswith("O=heart-study")
    assert len(cert.done("show", "consortium/alice.pem", "consortium/ca.pem").splitlines()) == 3
    assert cert.done("show", "consortium").splitlines() == shown


def test_certificates_that_are_issued_at_the_same_time_are_all_in_the_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tacit", "cert"]
    subprocess.run([*command, "init", "heart-study", "-q"], cwd=tmp_path, check=True)
    names = ["alice", "bob", "carol", "dora"]
    issuing = [
        subprocess.Popen([*command, "issue", name, "--with-key", "-q"], cwd=tmp_path)
        for name in names
    ]
    assert [process.wait() for process in issuing] == [0] * 4
    assert sorted(Consortium.find(tmp_path / "consortium").members) == names


def test_json_output_is_json_and_quiet_is_quiet(cert: Shell) -> None:
    made = json.loads(cert.done("init", "heart-study", "--json"))
    assert made["file"] == "consortium/consortium.yaml"
    issued = json.loads(cert.done("issue", "alice", "--with-key", "--json"))
    assert issued["new_key"]
    assert issued["hand_over"][-1] == "consortium/alice.key"
    assert json.loads(cert.done("request", "bob", "--json"))["request"] == "consortium/bob.csr"
    assert cert.done("issue", "bob", "-q") == cert.done("request", "dora", "-q") == ""
    assert cert.done("init", "other", "--folder", "other", "-q") == ""


def test_without_a_command_help_is_shown(cert: Shell) -> None:
    assert all(name in cert.done() for name in ("init", "request", "issue", "show"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["init"], "consortium/consortium.yaml exists already"),
        (["init", "x", "--folder", "only_ca"], "only_ca/ca.pem exists already"),
        (["init", "x" * 65, "--folder", "new"], "cannot name a consortium"),
        (["init", "x", "--folder", "new", "--days", "0"], "days: expected 1 to 36500, got 0"),
        (["init", "x", "--folder", "consortium/ca.pem/new"], "Not a directory"),
        (["issue"], "missing argument 'PARTY'; see tacit cert issue --help"),
        (["issue", "Alice"], "'Alice' cannot name a party"),
        (["issue", "ca"], "'ca' cannot name a party"),
        (["issue", "all"], "'all' cannot name a party: where a party can be named, all means"),
        (["issue", "bob", "--address", "bob"], "'bob': expected host:port"),
        (["issue", "bob", "--address", "bob.example:0"], "nobody can connect to port 0"),
        (["issue", "bob", "--request", "bob.csr", "--with-key"], "leave out --with-key"),
        (["issue", "bob", "--days", "-3"], "days: expected 1 to 36500, got -3"),
        (["issue", "bob"], "who runs: tacit cert request bob, and sends bob.csr; only to try"),
        (["issue", "bob", "--request", "none.csr"], "none.csr: there is no such file"),
        (["issue", "bob", "--request", "consortium/ca.pem"], "not a certificate request"),
        (["issue", "bob", "--folder", "nowhere"], "tacit cert init makes one"),
        (["issue", "bob", "--folder", "party"], "there is no party/ca.key"),
        (["issue", "bob", "--folder", "elsewhere"], "certificates are signed by elsewhere/ca.pem"),
        (["request", "a b"], "'a b' cannot name a party; expected"),
        (["request", "dora", "--passphrase"], "no terminal to ask for the new passphrase for"),
        (["init", "x", "--folder", "new", "--passphrase"], "set TACIT_PASSPHRASE (--passphrase)"),
        (["show", "none.pem"], "none.pem: there is no such file"),
        (["show", "consortium/ca.key"], "it holds a private key"),
        (["show", "nowhere.yaml"], "tacit cert init makes one"),
        (["shw"], "tacit cert has no command 'shw'; did you mean show? see tacit cert --help"),
        (["issue", "bob", "--adress", "x:1"], "did you mean --address?"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(
    cert: Shell, tmp_path: Path, arguments: list[str], said: str
) -> None:
    cert.done("init", "heart-study")
    create_authority(Path("only_ca"), "x")
    for folder, ca in (("party", "ca.pem"), ("elsewhere", "certs/ca.pem")):
        Path(folder).mkdir()
        Path(folder, "consortium.yaml").write_text(f"consortium: x\nca: {ca}\n")
        Path(folder, "ca.pem").write_bytes(Path("only_ca/ca.pem").read_bytes())
    before = contents(tmp_path)
    code, out, err = cert(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert contents(tmp_path) == before


def test_a_certificate_that_cannot_be_written_leaves_the_file_of_parties_alone(
    cert: Shell, tmp_path: Path
) -> None:
    cert.done("init", "heart-study")
    Path("consortium/bob.key").mkdir()
    before = contents(tmp_path)
    code, _, err = cert("issue", "bob", "--address", "bob.example:1")
    assert (code, err.count("\n")) == (2, 1)
    assert contents(tmp_path) == before


def test_without_the_package_nothing_is_left_behind(cert: Shell, tmp_path: Path) -> None:
    cert.monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    code, _, err = cert("init", "heart-study")
    assert (code, err) == (2, 'error: certificates need a package; run: pip install "tacit[psi]"\n')
    assert contents(tmp_path) == {}
