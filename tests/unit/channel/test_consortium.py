"""The consortium file is read as it was written, and what is wrong in it is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tacit.channel.consortium import Address, Consortium, default_member
from tacit.core.errors import DataError

TEXT = """
consortium: heart-study
ca: ca.pem
parties:
  alice: {address: "alice.example:7050"}
  bob: {address: "[::1]:7050", certificate: certs/b.pem, key: /keys/b.key}
  carol: {}
  dora:
"""


def written(folder: Path, text: str = TEXT) -> Path:
    path = folder / "consortium.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    consortium = Consortium.read(written(tmp_path))
    assert (consortium.name, consortium.ca) == ("heart-study", tmp_path / "ca.pem")
    assert list(consortium.members) == ["alice", "bob", "carol", "dora"]
    assert consortium.member("alice") == default_member(
        "alice", tmp_path, Address("alice.example", 7050)
    )
    bob = consortium.member("bob")
    assert (bob.address, bob.certificate, bob.key) == (
        Address("::1", 7050),
        tmp_path / "certs" / "b.pem",
        Path("/keys/b.key"),
    )
    assert consortium.member("carol").address is None


def test_a_key_may_be_pinned_as_it_was_typed(tmp_path: Path) -> None:
    typed = "0123:4567:89AB:CDEF" + ":0000" * 12
    text = f"consortium: a\nparties: {{alice: {{key_fingerprint: '{typed}'}}, bob: {{}}}}"
    consortium = Consortium.read(written(tmp_path, text))
    assert consortium.pins == {"alice": "0123 4567 89ab cdef" + " 0000" * 12}
    consortium.write(tmp_path / "again.yaml")
    assert Consortium.read(tmp_path / "again.yaml") == consortium


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    consortium = Consortium.read(written(tmp_path))
    consortium.write(tmp_path / "again.yaml")
    assert Consortium.read(tmp_path / "again.yaml") == consortium
    text = (tmp_path / "again.yaml").read_text()
    assert text.startswith("# ")
    assert "\n  alice: {address: 'alice.example:7050'}\n" in text
    Consortium.read(tmp_path / "again.yaml").write(tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_text() == text


def test_a_file_in_another_folder_names_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    consortium = Consortium.read(written(Path("in")))
    consortium.write(Path("out", "consortium.yaml"))
    again = Consortium.read(Path("out", "consortium.yaml"))
    assert again.ca.resolve() == (tmp_path / "in" / "ca.pem").resolve()
    assert again.member("carol").key.resolve() == (tmp_path / "in" / "carol.key").resolve()
    assert again.member("bob").key == Path("/keys/b.key")


@pytest.mark.parametrize("name", ["no", "7", "1e3", "null", "on"])
def test_names_that_yaml_takes_for_something_else_survive(tmp_path: Path, name: str) -> None:
    consortium = Consortium(name, tmp_path / "ca.pem", {name: default_member(name, tmp_path)})
    consortium.write(tmp_path / "c.yaml")
    assert Consortium.read(tmp_path / "c.yaml") == consortium


def test_a_consortium_without_parties_is_one_that_is_being_built(tmp_path: Path) -> None:
    consortium = Consortium("ünïon of many", tmp_path / "ca.pem", {})
    consortium.write(tmp_path / "consortium.yaml")
    assert Consortium.find(tmp_path) == consortium
    with pytest.raises(
        DataError, match="no party of ünïon of many is called 'alice'; it has none yet"
    ):
        consortium.member("alice")


def test_a_party_takes_its_place_or_the_last(tmp_path: Path) -> None:
    consortium = Consortium.read(written(tmp_path))
    moved = consortium.with_member(default_member("bob", tmp_path))
    moved = moved.with_member(default_member("eve", tmp_path))
    assert list(moved.members) == ["alice", "bob", "carol", "dora", "eve"]
    assert moved.member("bob").address is None
    assert consortium.member("bob").address is not None


def test_a_misspelt_party_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="did you mean alice"):
        Consortium.read(written(tmp_path)).member("alcie")


def test_the_file_is_found_here_or_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="tacit cert init makes one"):
        Consortium.find(None)
    (tmp_path / "consortium").mkdir()
    written(tmp_path / "consortium", "consortium: inside")
    assert Consortium.find(None).name == "inside"
    written(tmp_path, "consortium: here")
    assert Consortium.find(None).name == "here"
    assert Consortium.find(Path("consortium")).name == "inside"
    assert Consortium.find(Path("consortium/consortium.yaml")).ca == Path("consortium/ca.pem")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("heart-study", "expected settings such as 'consortium: heart-study', got something else"),
        ("parties: {}", "consortium is missing"),
        ("consortium: 5", "consortium: expected text in quotes, got 5"),
        ("consortium:", "consortium: expected text, got nothing (null)"),
        ("consortium: ' a'", "cannot name a consortium"),
        ("consortium: a\nca: [x]", "ca: expected text"),
        ("consortium: a\nca: ''", "ca: expected text, got ''"),
        ("consortium: a\npartys: {}", "there is no setting 'partys'; did you mean parties?"),
        ("consortium: a\nparties: [alice, bob]", "parties: expected a line per party"),
        (
            "consortium: a\nparties: {alice: {adress: 'a:1'}}",
            "there is no setting 'adress'; did you mean address?",
        ),
        ("consortium: a\nparties: {alice: 'a:1'}", 'alice: expected {address: "host:port"}'),
        ("consortium: a\nparties: {Alice: {}}", "'Alice' cannot name a party"),
        (
            "consortium: a\nparties: {no: {}}",
            "YAML does not read false as text; put the party's name in quotes",
        ),
        (
            "consortium: a\nparties: {alice: {address: 7050}}",
            "address: expected text in quotes, got 7050",
        ),
        (
            "consortium: a\nparties: {alice: {address: }}",
            "address: expected text, got nothing (null)",
        ),
        (
            "consortium: a\nparties: {alice: {address: alice}}",
            "parties: alice: address: 'alice': expected host:port",
        ),
        (
            "consortium: a\nparties: {alice: {key_fingerprint: 12ab}}",
            "parties: alice: key_fingerprint: expected 64 hexadecimal digits",
        ),
        (
            "consortium: a\nparties: {alice: {key_fingerprint: 123}}",
            "key_fingerprint: expected text in quotes",
        ),
        ('consortium: a\nca: "\\e[2J.pem"', "ca: expected text without control characters"),
        (
            'consortium: a\nparties: {alice: {certificate: "a\\u202e.pem"}}',
            "certificate: expected text without control characters",
        ),
        (
            'consortium: a\nparties: {alice: {address: "[fe80::1%\\a]:1"}}',
            "address: expected text without control characters",
        ),
        (
            "consortium: a\nparties: {alice: {address: '[fe80::1%a b]:1'}}",
            "is not a host",
        ),
        ("consortium: a\nca: ~nobody-here/ca.pem", "ca: '~nobody-here/ca.pem': nobody here has"),
        ("consortium: a\nparties: {alice: {key: 3}}", "key: expected text in quotes, got 3"),
        (
            "consortium: a\nparties:\n  alice: {}\n  alice: {}",
            "'alice' is set twice, in lines 3 and 4",
        ),
        ("consortium: [a", "is not valid YAML: line"),
        ("consortium: !!python/object/apply:os.getcwd []", "is not valid YAML"),
        ("consortium: \0", "it is not text"),
        ("consortium: " + "[" * 5000, "nested too deeply"),
    ],
)
def test_what_is_wrong_in_the_file_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DataError) as caught:
        Consortium.read(written(tmp_path, text))
    assert said in str(caught.value)
    assert "consortium.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file or directory; tacit cert init makes one"):
        Consortium.read(tmp_path / "none.yaml")
    with pytest.raises(DataError, match="Is a directory"):
        Consortium.read(tmp_path)
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match="it is not text"):
        Consortium.read(tmp_path / "b.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "alice.example:7050",
        "localhost:0",
        "127.0.0.1:65535",
        "[::1]:7050",
        "[fe80::1%eth0]:1",
        "my_host.:80",
    ],
)
def test_addresses_round_trip(text: str) -> None:
    assert str(Address.parse(text)) == text
    assert yaml.safe_load(yaml.safe_dump({"address": text})) == {"address": text}


@given(st.ip_addresses(), st.integers(0, 65535))
def test_every_ip_address_round_trips(host: object, port: int) -> None:
    address = Address(str(host), port)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected host:port, such as"),
        ("alice", "expected host:port, such as"),
        (":7050", "expected host:port, such as"),
        ("alice:", "expected a port from 1 to 65535 (0 for any free one), got ''"),
        ("alice:x", "got 'x'"),
        ("alice:-1", "got '-1'"),
        ("alice:65536", "got '65536'"),
        ("alice:٣", "expected a port"),
        ("alice:" + "9" * 5000, "expected a port"),
        ("https://alice:7050", "expected host:port without https://"),
        ("fe80::1:7050", "write an IPv6 address in brackets"),
        ("[alice]:7050", "is not a host"),
        ("al ice:7050", "is not a host"),
        ("alice/x:7050", "is not a host"),
        ("alice\n:7050", "is not a host"),
        ("a..b:7050", "is not a host"),
        (f"{'a' * 64}.example:7050", "is not a host"),
        ("\u00fc" * 60 + ".example:7050", "is not a host"),
    ],
)
def test_other_addresses_are_refused(text: str, said: str) -> None:
    with pytest.raises(DataError) as caught:
        Address.parse(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
