from __future__ import annotations

import hashlib
import json
import socket
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

import tacit
from tacit.channel.audit import Audit, SessionLog
from tacit.channel.certificates import create_authority, issue
from tacit.channel.consortium import Address, Consortium, default_member
from tacit.cli.main import main
from tacit.cli.psi_files import RowFiles
from tacit.vertical.intersection import take_part
from tacit.vertical.session_file import check_one_session, session_path

ALICE = "nin,age\n007,30\n8B,41\n9c,52\n,63\n9C,74\n"
BOB = "nin;income\n9c;10,5\nx;20\n007;30\n"


class Done(NamedTuple):
    code: int
    out: str
    err: str


Tacit = Callable[..., Done]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tables, which is the current one."""
    (tmp_path / "a.csv").write_text(ALICE)
    (tmp_path / "b.csv").write_text(BOB)
    (tmp_path / "c.tsv").write_text("nin\tcity\n007\tRome\n9C\tOslo\n")
    for year in ("2023", "2024"):
        (tmp_path / year).mkdir()
        (tmp_path / year / "all.csv").write_text(f"nin\n007\n{year}\n")
    pd.DataFrame({"nin": ["007", "9c"], "x": [1, 2]}).to_parquet(tmp_path / "d.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def psi(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tacit:
    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["tacit", "psi", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return run


def content(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_common_rows_are_written_aligned_and_as_they_were(folder: Path, psi: Tacit) -> None:
    done = psi("--local", "a.csv", "b.csv", "--key", "nin")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "a and b have 2 in common"
    assert lines[1].startswith("a: 3 identifiers in 5 rows (1 without, 1 repeated); sent ")
    assert (
        lines[2]
        == "a: a-tryout.csv holds its rows of these people, in the same order as the others'"
    )
    assert lines[3].startswith("b: 3 identifiers in 3 rows; sent ")
    assert (
        lines[4]
        == "b: b-tryout.csv holds its rows of these people, in the same order as the others'"
    )
    assert lines[5].startswith("session ")
    learnt = "each party has learnt which of its rows all parties have"
    assert lines[5].endswith(f"s; {learnt}, and all know how many identifiers each brought")
    assert len(lines) == 6
    ages = (folder / "a-tryout.csv").read_text().splitlines()
    incomes = (folder / "b-tryout.csv").read_text().splitlines()
    assert (ages[0], incomes[0]) == ("nin,age", "nin,income")
    assert sorted(ages[1:]) == ["007,30", "9c,52"]
    assert sorted(incomes[1:]) == ["007,30", '9c,"10,5"']
    assert [row.split(",")[0] for row in ages] == [row.split(",")[0] for row in incomes]


def test_a_folder_for_the_rows_is_made(folder: Path, psi: Tacit) -> None:
    tables = ("a.csv", "b.csv", "c.tsv", "d.parquet")
    assert psi("--local", *tables, "--key", "nin", "--out", "new/one").code == 0
    written = sorted((folder / "new" / "one").iterdir())
    assert [path.name for path in written] == [f"{name}-tryout.csv" for name in "abcd"]
    columns = [pd.read_csv(path, dtype=str)["nin"].str.lower().tolist() for path in written]
    assert sorted(columns[0]) == ["007", "9c"]
    assert all(column == columns[0] for column in columns)
    assert not (folder / "a-tryout.csv").exists()


def test_json_output_has_an_object_for_each_party(folder: Path, psi: Tacit) -> None:
    parties = json.loads(psi("--local", "a.csv", "b.csv", "--key", "nin", "--json").out)
    assert [party["party"] for party in parties] == ["a", "b"]
    keys = ("size", "total", "missing", "repeated")
    counts = [tuple(party[key] for key in keys) for party in parties]
    assert counts == [(2, 5, 1, 1), (2, 3, 0, 0)]
    assert [party["sizes"] for party in parties] == [{"a": 3, "b": 3}] * 2
    assert [party["file"] for party in parties] == ["a-tryout.csv", "b-tryout.csv"]
    assert parties[0]["session"] == parties[1]["session"]
    for party in parties:
        assert party["sent"] > 0
        assert party["received"] > 0
        assert party["seconds"] >= 0
        assert "rows" not in party


def test_quiet_says_nothing_and_writes(folder: Path, psi: Tacit) -> None:
    assert psi("--local", "a.csv", "b.csv", "--key", "nin", "-q") == (0, "", "")
    assert (folder / "a-tryout.csv").exists()
    assert psi("--local", "a.csv", "b.csv", "--key", "nin", "-q", "--json").out.startswith("[")


def test_the_size_alone_leaves_no_files(folder: Path, psi: Tacit) -> None:
    before = content(folder)
    done = psi("--local", "a.csv", "b.csv", "--key", "nin", "--size-only")
    assert done.out.startswith("a and b have 2 in common\n")
    assert "each party has learnt how many all parties have" in done.out
    assert content(folder) == before
    done = psi("--local", "a.csv", "b.csv", "c.tsv", "--key", "nin", "--size-only", "--json")
    parties = json.loads(done.out)
    assert [(party["size"], party["file"]) for party in parties] == [(2, None)] * 3


def test_only_who_learns_gets_a_file(folder: Path, psi: Tacit) -> None:
    done = psi("--local", "a.csv", "b.csv", "c.tsv", "--key", "nin", "--learns", "b")
    assert done.out.startswith("a, b, c have 2 in common\n")
    assert "b has learnt which of its rows all parties have" in done.out
    assert "b, which compared, also knows how many any of them have in common" in done.out
    assert "and a knows how many all have in common" in done.out
    assert [path.name for path in folder.glob("*-tryout*")] == ["b-tryout.csv"]
    done = psi("--local", "a.csv", "b.csv", "--key", "nin", "--learns", "b", "--json")
    sizes = [(party["size"], party["file"]) for party in json.loads(done.out)]
    assert sizes == [(None, None), (2, "b-tryout.csv")]


def test_files_of_one_name_are_told_apart(folder: Path, psi: Tacit) -> None:
    done = psi("--local", "2023/all.csv", "2024/all.csv", "--key", "nin", "--out", "o")
    assert done.out.startswith("all-1 and all-2 have 1 in common\n")
    assert (folder / "o" / "all-1-tryout.csv").read_text() == "nin\n007\n"
    assert (folder / "o" / "all-2-tryout.csv").read_text() == "nin\n007\n"


def test_a_table_with_itself_has_all_in_common(folder: Path, psi: Tacit) -> None:
    done = psi("--local", "a.csv", "a.csv", "--key", "nin")
    assert done.out.startswith("a-1 and a-2 have 3 in common\n")


def test_spelling_and_other_settings_are_passed_on(psi: Tacit) -> None:
    common = ("--local", "a.csv", "c.tsv", "--key", "nin", "--size-only")
    assert psi(*common, "--case", "keep").out.startswith("a and c have 2 in common")
    apart = ("--local", "b.csv", "c.tsv", "--key", "nin", "--size-only")
    assert psi(*apart, "--case", "keep").out.startswith("b and c have 1")
    assert psi(*common, "--group", "thesis", "--threads", "1", "--as", "number").code == 0
    both = ("--local", "a.csv", "a.csv", "--key", "nin", "--key", "age", "--size-only")
    assert psi(*both).out.startswith("a-1 and a-2 have 4 in common")


def test_tables_that_share_nobody_give_files_without_rows(folder: Path, psi: Tacit) -> None:
    (folder / "e.csv").write_text("nin\n")
    done = psi("--local", "a.csv", "e.csv", "--key", "nin")
    assert done.out.startswith("a and e have 0 in common\n")
    assert "written the same way on all sides? 007 and 7 differ" in done.out
    assert (folder / "a-tryout.csv").read_text() == "nin,age\n"
    assert (folder / "e-tryout.csv").read_text() == "nin\n"


@pytest.fixture
def consortium(folder: Path) -> Path:
    """Its file, of two parties of this machine, of which alice listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", free.getsockname()[1])
    create_authority(folder, "friends")
    members = {
        name: default_member(name, folder, address if name == "alice" else None)
        for name in ("alice", "bob")
    }
    for name in members:
        issue(folder, name, with_key=True)
    Consortium("friends", folder / "ca.pem", members).write(folder / "consortium.yaml")
    return folder / "consortium.yaml"


def bobs_side(consortium: Path, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that alice has gone, where she has
        return take_part(
            "b.csv", "nin", "bob", consortium=consortium, threads=1, patience=20, **options
        )


@pytest.mark.parametrize("out", ["alice-common.csv", "deep/rows.parquet"])
def test_two_parties_that_dial_each_other_get_their_rows(
    out: str, folder: Path, psi: Tacit, consortium: Path
) -> None:
    concluded: list[tacit.Intersection] = []
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(bobs_side, consortium, conclude=concluded.append)
        options = ["--out", out]
        if out == "alice-common.csv":
            options = ["--listen", str(Consortium.read(consortium).members["alice"].address)]
        done = psi(
            "--party", "alice", "--data", "a.csv", "--key", "nin", "--patience", "20", *options
        )
        found = other.result()
    assert done.code == 0, done.err
    assert done.out.startswith(
        "alice and bob have 2 in common\nalice: 3 identifiers in 5 rows (1 without, 1 repeated)"
    )
    assert f"alice: {out} holds its rows of these people" in done.out
    assert found.party == "bob"
    assert concluded == [found]
    written = pd.read_parquet(out) if out.endswith("parquet") else pd.read_csv(out, dtype=str)
    theirs = found.of(pd.read_csv("b.csv", sep=";", dtype=str))
    assert written["nin"].tolist() == theirs["nin"].tolist()
    assert f"session {found.session[:16]}" in done.out


def test_who_does_not_learn_gets_no_file_over_the_network(
    folder: Path, psi: Tacit, consortium: Path
) -> None:
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(bobs_side, consortium, learns="bob")
        alice = ("--party", "alice", "--data", "a.csv", "--key", "nin")
        done = psi(*alice, "--learns", "bob", "--patience", "20")
        assert other.result().size == 2
    assert done.out.startswith("alice and bob were compared; bob has learnt the result\n")
    assert "bob has learnt which of its rows all parties have" in done.out
    assert not list(folder.glob("*-tryout*"))


def test_parties_that_want_other_things_are_told_so_and_nothing_is_written(
    folder: Path, psi: Tacit, consortium: Path
) -> None:
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(bobs_side, consortium, learns="bob")
        done = psi("--party", "alice", "--data", "a.csv", "--key", "nin", "--patience", "20")
        with pytest.raises(tacit.TacitError, match="differ in who learns"):
            other.result()
    assert (done.code, done.out) == (2, "")
    assert "note: bob brings 3 identifiers\n" in done.err
    assert "differ in who learns" in done.err
    assert not list(folder.glob("*-tryout*"))
    for party, peer in (("alice", "bob"), ("bob", "alice")):
        (entry,) = log_of(folder, party)
        assert (entry["party"], entry["peers"], entry["session"]) == (party, [peer], None)
        assert entry["sizes"] == {"alice": 3, "bob": 3}
        assert entry["outcome"]["status"] == "failed"
        assert "differ in who learns" in entry["outcome"]["reason"]


def log_of(folder: Path, party: str) -> list[dict[str, Any]]:
    lines = (folder / f"{party}-sessions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_each_party_has_a_line_for_the_session_and_says_what_the_other_brings(
    folder: Path, psi: Tacit, consortium: Path
) -> None:
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(bobs_side, consortium, log=folder / "bobs.jsonl")
        options = ("--party", "alice", "--data", "a.csv", "--key", "nin", "--patience", "20")
        done = psi(*options, "--json")
        found = other.result()
    assert done.err.count("note: bob brings 3 identifiers\n") == 1
    (printed,) = json.loads(done.out)
    assert printed["log"] == str(folder / "alice-sessions.jsonl")
    (entry,) = log_of(folder, "alice")
    assert entry["session"] == found.session
    assert entry["terms"] == found.agreed
    assert (entry["terms"]["column"], entry["terms"]["learner"]) == ("nin", "all")
    assert entry["sizes"] == {"alice": 3, "bob": 3}
    assert (entry["outcome"]["learnt"], entry["outcome"]["common"]) == ("rows", 2)
    assert found.log == folder / "bobs.jsonl"
    (theirs,) = map(json.loads, (folder / "bobs.jsonl").read_text().splitlines())
    assert theirs["session"] == entry["session"]
    identifiers = ("007", "8b", "9c", "8B", "9C", '"x"')
    text = (folder / "alice-sessions.jsonl").read_text().replace(found.session, "")
    assert not any(identifier in text for identifier in identifiers)


def bring_too_many(folder: Path) -> None:
    people = "".join(f"{number:07d}\n" for number in range(1001))
    (folder / "b.csv").write_text(f"nin\n{people}")


def test_a_party_that_brings_far_more_is_refused_and_the_error_says_what_to_set(
    folder: Path, psi: Tacit, consortium: Path
) -> None:
    bring_too_many(folder)
    alice = ("--party", "alice", "--data", "a.csv", "--key", "nin", "--patience", "20")
    said = "bob brings 1,001 identifiers; alice brings 3 and accepts at most 1,000"
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(bobs_side, consortium)
        done = psi(*alice)
        with pytest.raises(tacit.TacitError, match=said):
            other.result()
        assert done.code == 2
        assert done.err.endswith(
            "note: bob brings 1,001 identifiers\n"
            f"error: {said}; if this is right, alice can allow 1,001 (--accept-at-most)\n"
        )
        (refused,) = log_of(folder, "alice")
        assert (refused["session"], refused["sizes"]["bob"]) == (None, 1001)
        other = pool.submit(bobs_side, consortium)
        assert psi(*alice, "--accept-at-most", "1001", "-q").code == 0
        assert other.result().sizes["alice"] == 3


def test_what_a_party_brought_before_this_process_started_again_is_counted(
    folder: Path, psi: Tacit, consortium: Path
) -> None:
    alice = ("--party", "alice", "--data", "a.csv", "--key", "nin", "--patience", "20")
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(bobs_side, consortium)
        assert psi(*alice, "-q").code == 0
        terms = other.result().agreed
        log = SessionLog(folder / "alice-sessions.jsonl")
        audit = Audit(log, "alice", ["bob"], "psi", terms)
        audit.begin({"alice": 3, "bob": 998}, "5e55")  # this process ended there
        other = pool.submit(bobs_side, consortium)
        done = psi(*alice)
        with pytest.raises(tacit.TacitError):
            other.result()
    earlier = "after 998 in attempts of the last day that did not complete"
    assert f"bob brings 3 identifiers, {earlier}; alice brings 3" in done.err
    assert "alice can allow 1,001 (--accept-at-most)" in done.err


def test_a_file_that_no_session_has_written_is_not_replaced(folder: Path, psi: Tacit) -> None:
    (folder / "mine.csv").write_text("precious\n")
    done = psi("--party", "alice", "--data", "a.csv", "--key", "nin", "--out", "mine.csv")
    assert (done.code, done.err) == (
        2,
        "error: mine.csv is there already, and of no session; name another file with --out\n",
    )
    assert (folder / "mine.csv").read_text() == "precious\n"


def test_a_table_whose_rows_are_longer_than_its_header_is_refused(folder: Path, psi: Tacit) -> None:
    (folder / "long.csv").write_text("nin,name\n007,Ann,\n8B,Bob,\n")
    done = psi("--local", "long.csv", "b.csv", "--key", "nin")
    assert done.code == 2
    assert "long.csv: its rows have more cells than its header" in done.err


@pytest.mark.parametrize("option", ["--listen", "--connect"])
def test_an_address_that_is_none_is_told_with_its_option(
    option: str, psi: Tacit, consortium: Path
) -> None:
    party = ("--party", "alice", "--data", "a.csv", "--key", "nin")
    done = psi(*party, "--consortium", str(consortium), option, "here")
    assert done.code == 2
    assert f"({option})" in done.err


def test_a_log_that_cannot_be_written_is_told_before_anybody_is_called(
    folder: Path, psi: Tacit, consortium: Path
) -> None:
    alice = ("--party", "alice", "--data", "a.csv", "--key", "nin")
    done = psi(*alice, "--log", str(folder / "none" / "log.jsonl"))
    assert done.code == 2
    assert done.err.startswith("error: cannot write the log of sessions ")
    assert done.err.endswith("No such file or directory; name another (--log)\n")


# what session rows are of


def both_parties(folder: Path, psi: Tacit, consortium: Path) -> None:
    """A session after which both have their rows."""
    with ThreadPoolExecutor(1) as pool:
        table = pd.read_csv(folder / "b.csv", sep=";", dtype=str)
        with RowFiles(folder / "bob-common.csv", table) as files:
            other = pool.submit(
                bobs_side, consortium, conclude=files.conclude, publish=files.publish
            )
            alice = ("--party", "alice", "--data", "a.csv", "--key", "nin", "--patience", "20")
            assert psi(*alice, "-q").code == 0
            other.result()


def test_rows_come_with_a_file_that_names_their_session(
    folder: Path, psi: Tacit, consortium: Path
) -> None:
    both_parties(folder, psi, consortium)
    path = folder / "alice-common.csv.session.json"
    described = json.loads(path.read_text())
    content = (folder / "alice-common.csv").read_bytes()
    (entry,) = log_of(folder, "alice")
    assert described.pop("time") >= entry["begin"]
    assert described == {
        "session": entry["session"],
        "party": "alice",
        "parties": ["alice", "bob"],
        "sizes": {"alice": 3, "bob": 3},
        "compared": "nin",
        "learnt by": "all",
        "learnt": "rows",
        "common": 2,
        "rows": {"file": "alice-common.csv", "sha256": hashlib.sha256(content).hexdigest()},
    }
    assert path.stat().st_mode == (folder / "alice-common.csv").stat().st_mode


def test_private_rows_stay_private_in_the_next_session(
    folder: Path, psi: Tacit, consortium: Path
) -> None:
    both_parties(folder, psi, consortium)
    rows = folder / "alice-common.csv"
    rows.chmod(0o600)
    both_parties(folder, psi, consortium)
    for path in (rows, folder / "alice-common.csv.session.json"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_files_of_two_sessions_are_told_apart(folder: Path, psi: Tacit, consortium: Path) -> None:
    files = [folder / "alice-common.csv", folder / "bob-common.csv"]
    both_parties(folder, psi, consortium)
    first_bob = [path.read_bytes() for path in (files[1], session_path(files[1]))]
    assert check_one_session(files) == log_of(folder, "alice")[0]["session"]
    both_parties(folder, psi, consortium)
    assert check_one_session(files) == log_of(folder, "alice")[1]["session"]
    files[1].write_bytes(first_bob[0] + b"7,7\n")
    with pytest.raises(tacit.TacitError, match="it was changed or replaced"):
        check_one_session(files)
    files[1].write_bytes(first_bob[0])
    session_path(files[1]).write_bytes(first_bob[1])
    with pytest.raises(tacit.TacitError, match="are of different sessions"):
        check_one_session(files)
    for content in ("[]", "{}", '{"rows": {"sha256": 1}}', "\xff"):
        session_path(files[1]).write_text(content)
        with pytest.raises(tacit.TacitError, match="does not describe a session"):
            check_one_session(files)
    session_path(files[1]).unlink()
    with pytest.raises(tacit.TacitError, match="cannot read the session of"):
        check_one_session(files)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--local a.csv b.csv", "name the column that identifies people: --key nin"),
        (
            "--local a.csv --key nin",
            "name two tables or more: tacit psi --local a.csv b.csv --key nin",
        ),
        ("--local --key nin", "name two tables or more"),
        ("--local a.csv nowhere.csv --key nin", "nowhere.csv does not exist"),
        ("--local a.csv b.csv --key nim", "a: there is no column 'nim'; did you mean nin?"),
        ("--local a.csv b.csv --key nin --key age", "b: there is no column 'age'"),
        ("--local a.csv b.csv --key nin --party a", "--local takes only tables"),
        ("--local a.csv b.csv --key nin --data a.csv", "--local takes only tables"),
        ("--local a.csv b.csv --key nin --with b", "--local takes only tables"),
        ("--local a.csv b.csv --key nin --log log.jsonl", "--local takes only tables"),
        ("--local a.csv b.csv --key nin --listen localhost:7000", "--local takes only tables"),
        (
            "--local a.csv b.csv --key nin --learns c",
            "'c' cannot learn the result: the parties are a, b",
        ),
        ("--local a.csv b.csv --key nin --group rsa", "rsa"),
        ("--local a.csv b.csv --key nin --case upper", "case: expected fold or keep, got 'upper'"),
        (
            "--local a.csv b.csv --key nin --unicode nfd",
            "unicode: expected nfc or nfkc or keep, got 'nfd'",
        ),
        (
            "--local a.csv b.csv --key nin --spaces none",
            "spaces: expected collapse or remove or keep",
        ),
        ("--local a.csv b.csv --key nin --threads 0", "threads"),
        ("--local a.csv b.csv --key nin --out /proc/none", "/proc/none"),
        ("--local a.csv b.csv --key nin --out a.csv", "a.csv"),
        (
            "--local a.csv old/a-tryout.csv b.csv --key nin --out old",
            "old/a-tryout.csv is the table itself",
        ),
        (
            "--local a.csv b.csv --key nin --out taken",
            "taken/b-tryout.csv is a folder; name a file",
        ),
        (
            "--local a.csv picture.png --key nin",
            "picture.png is not a table, or is damaged: expected a name",
        ),
        ("a.csv b.csv --key nin", "a.csv: name your table with --data, or try it out with --local"),
        ("--key nin", "name your party and your table, --party alice --data a.csv"),
        ("--party a --key nin", "name your party and your table"),
        ("--data a.csv --key nin", "name your party and your table"),
        (
            "--party a --data a.csv --key nin --out a.csv",
            "a.csv is the table itself; name another file with --out",
        ),
        (
            "--party a --data a.csv --key nin --out rows.xlsx",
            "rows.xlsx: expected a name that ends in .csv or .parquet",
        ),
        ("--party a --data a.csv --key nin --out old.csv", "old.csv is a folder; name a file"),
        ("--party a --data a.csv --key nin --out b.parquet", "b.parquet.session.json is a folder"),
        ("--party a --data nowhere.csv --key nin", "nowhere.csv does not exist"),
        (
            "--party a --data a.csv --key nin --group thesis",
            "thesis is not secure, so it stays in one process",
        ),
        ("--party a --data a.csv --key nin", "consortium"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(
    arguments: str, said: str, folder: Path, psi: Tacit
) -> None:
    for made in ("old", "taken/b-tryout.csv", "old.csv", "b.parquet.session.json"):
        (folder / made).mkdir(parents=True)
    (folder / "old" / "a-tryout.csv").write_text(ALICE)
    (folder / "picture.png").write_text("x")
    before = content(folder)
    done = psi(*arguments.split())
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert content(folder) == before
