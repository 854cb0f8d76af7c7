"""Certificates hold in a real TLS handshake, and keys are their owner's alone.

What is wrong is said in one line.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from tacit.channel import certificates
from tacit.channel.certificates import create_authority, create_request, issue
from tacit.channel.credentials import check_identity, describe
from tacit.channel.party_names import check_consortium_name, check_party_name
from tacit.channel.x509_files import read_certificate
from tacit.core.errors import DataError, MissingDependencyError

LONG_AGO = datetime.now(UTC) - timedelta(days=1000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A consortium with alice and bob."""
    folder = tmp_path / "consortium"
    create_authority(folder, "heart-study")
    issue(folder, "alice", with_key=True)
    issue(folder, "bob", with_key=True)
    return folder


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def context(purpose: int, folder: Path, party: str, ca: Path | None = None) -> ssl.SSLContext:
    side = ssl.SSLContext(purpose)
    side.minimum_version = ssl.TLSVersion.TLSv1_3
    side.verify_mode = ssl.CERT_REQUIRED
    side.verify_flags |= ssl.VERIFY_X509_STRICT
    side.load_verify_locations(ca or folder / "ca.pem")
    side.load_cert_chain(folder / f"{party}.pem", folder / f"{party}.key")
    return side


def shake_hands(
    server: ssl.SSLContext, client: ssl.SSLContext, expected: str
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Server and client after their handshake, over memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=expected),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[1], ends[0]


def meet(
    folder: Path, expected: str = "alice", *, guest: Path | None = None, server: str = "alice"
) -> ssl.SSLObject:
    """Bob dials a server whom he believes to be `expected`; the server's end."""
    listening = context(ssl.PROTOCOL_TLS_SERVER, folder, server)
    dialling = context(ssl.PROTOCOL_TLS_CLIENT, guest or folder, "bob", folder / "ca.pem")
    return shake_hands(listening, dialling, expected)[0]


def test_two_parties_shake_hands_by_their_names(folder: Path) -> None:
    met = meet(folder)
    assert met.version() == "TLSv1.3"
    peer = met.getpeercert()
    assert peer is not None
    assert peer["subjectAltName"] == (("DNS", "bob"),)


def test_a_party_of_another_name_is_refused(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        meet(folder, "carol")


def test_a_party_of_another_authority_is_refused(folder: Path, tmp_path: Path) -> None:
    create_authority(tmp_path / "other", "heart-study")
    issue(tmp_path / "other", "bob", with_key=True)
    with pytest.raises(ssl.SSLCertVerificationError):
        meet(folder, guest=tmp_path / "other")


def test_an_expired_certificate_is_refused(folder: Path) -> None:
    issue(folder, "alice", now=LONG_AGO)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        meet(folder)


def test_a_certificate_by_request_shakes_hands_and_its_key_never_leaves(
    folder: Path, tmp_path: Path
) -> None:
    request = create_request(tmp_path / "at_bob", "bob")
    (folder / "bob.key").unlink()
    issue(folder, "bob", request=request)
    assert not (folder / "bob.key").exists()
    shutil.copy(folder / "bob.pem", tmp_path / "at_bob")
    assert meet(folder, guest=tmp_path / "at_bob").version() == "TLSv1.3"


def test_clocks_that_differ_by_minutes_do_not_matter(folder: Path) -> None:
    behind = datetime.now(UTC) - timedelta(minutes=3)
    assert check_identity(*files(folder), "alice", now=behind).party == "alice"


def test_a_party_may_bear_the_consortiums_name(tmp_path: Path) -> None:
    create_authority(tmp_path, "alice")
    issue(tmp_path, "alice", with_key=True)
    issue(tmp_path, "bob", with_key=True)
    assert meet(tmp_path).version() == "TLSv1.3"


@pytest.mark.usefixtures("open_umask")
def test_keys_are_their_owners_alone_from_the_first_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, int]] = []
    plain = os.open

    def watched(path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        if flags & os.O_CREAT:  # it is not only read
            opened.append((str(path), mode if flags & os.O_EXCL else -1))
        return plain(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", watched)
    monkeypatch.setattr(os, "chmod", lambda *_: None)
    create_authority(tmp_path, "heart-study")
    issue(tmp_path, "alice", with_key=True)
    create_request(tmp_path, "bob")
    keys = {Path(path).name: mode for path, mode in opened if path.endswith(".key")}
    assert keys == {"ca.key": 0o600, "alice.key": 0o600, "bob.key": 0o600}
    assert all((tmp_path / name).stat().st_mode & 0o777 == 0o600 for name in keys)


def test_nothing_is_overwritten(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(DataError, match="exists already"):
        create_authority(folder, "another")
    issue(folder, "alice")
    create_request(folder, "bob")
    now = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name for name in before if before[name] != now[name]} == {"alice.pem"}
    assert now.keys() - before.keys() == {"bob.csr"}


def test_a_renewed_certificate_is_for_the_same_key(folder: Path) -> None:
    issue(folder, "alice", now=LONG_AGO)
    issue(folder, "alice", days=10)
    assert describe(folder / "alice.pem").days_left() in (9, 10)
    assert check_identity(*files(folder), "alice").party == "alice"


def test_a_certificate_is_renewed_where_the_key_never_was(folder: Path, tmp_path: Path) -> None:
    issue(folder, "carol", request=create_request(tmp_path / "at_carol", "carol"))
    before = read_certificate(folder / "carol.pem")
    issue(folder, "carol")
    after = read_certificate(folder / "carol.pem")
    assert after.public_key() == before.public_key()
    assert after.serial_number != before.serial_number
    assert not (folder / "carol.key").exists()


def test_a_request_that_lies_in_the_folder_is_used(folder: Path, tmp_path: Path) -> None:
    shutil.copy(create_request(tmp_path, "carol"), folder)
    issue(folder, "carol")
    assert not (folder / "carol.key").exists()
    ca, certificate, _ = files(folder, "carol")
    assert check_identity(ca, certificate, tmp_path / "carol.key", "carol").party == "carol"


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    create_authority(tmp_path, "heart-study", days=30)
    issue(tmp_path, "alice", days=365, with_key=True)
    assert describe(tmp_path / "alice.pem").not_after == describe(tmp_path / "ca.pem").not_after


def test_a_certificate_is_described(folder: Path) -> None:
    alice = describe(folder / "alice.pem")
    assert (alice.party, alice.consortium, alice.authority) == ("alice", "heart-study", False)
    assert alice.issuer == "CN=certificate authority,O=heart-study"
    certificate = read_certificate(folder / "alice.pem")
    assert alice.fingerprint == certificate.fingerprint(hashes.SHA256()).hex()
    assert describe(folder / "ca.pem").authority


@pytest.mark.parametrize(
    "make", [ed25519.Ed25519PrivateKey.generate, lambda: rsa.generate_private_key(65537, 2048)]
)
def test_a_key_made_elsewhere_is_certified(
    folder: Path, make: Callable[[], ed25519.Ed25519PrivateKey]
) -> None:
    content = make().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "carol.key").touch(mode=0o600)
    (folder / "carol.key").write_bytes(content)
    create_request(folder, "carol")
    issue(folder, "carol")
    assert (folder / "carol.key").read_bytes() == content
    assert meet(folder, "carol", server="carol").version() == "TLSv1.3"


def files(folder: Path, party: str = "alice") -> tuple[Path, Path, Path]:
    return folder / "ca.pem", folder / f"{party}.pem", folder / f"{party}.key"


def encrypt(path: Path) -> None:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


def foreign(folder: Path) -> None:
    create_authority(folder / "other", "heart-study")
    shutil.copy(folder / "other" / "ca.pem", folder)


WRONG: list[tuple[str, Callable[[Path], object], str]] = [
    (
        "no certificate",
        lambda f: (f / "alice.pem").unlink(),
        "there is no such file; ask the party that has",
    ),
    (
        "no key",
        lambda f: (f / "alice.key").unlink(),
        "there is no such file; it stays where it was made",
    ),
    ("no authority", lambda f: (f / "ca.pem").unlink(), "there is no such file"),
    ("a folder", lambda f: ((f / "alice.key").unlink(), (f / "alice.key").mkdir()), "cannot read"),
    (
        "damaged",
        lambda f: (f / "alice.pem").write_bytes((f / "alice.pem").read_bytes()[:300]),
        "damaged",
    ),
    (
        "not text",
        lambda f: (f / "alice.pem").write_bytes(bytes(range(256))),
        "damaged, or not a certificate",
    ),
    (
        "a key for a certificate",
        lambda f: shutil.copy(f / "alice.key", f / "alice.pem"),
        "it holds a private key",
    ),
    (
        "damaged key",
        lambda f: (f / "alice.key").write_text("-----BEGIN PRIVATE KEY-----\n"),
        "not a private key",
    ),
    (
        "encrypted key",
        lambda f: encrypt(f / "alice.key"),
        "there is no terminal to ask for the passphrase of ",
    ),
    (
        "key for all",
        lambda f: (f / "alice.key").chmod(0o640),
        "other users can open; run: chmod 600 ",
    ),
    (
        "other key",
        lambda f: shutil.copy(f / "bob.key", f / "alice.key"),
        "alice.key does not belong to ",
    ),
    (
        "other name",
        lambda f: shutil.copy(f / "bob.pem", f / "alice.pem"),
        "is the certificate of 'bob', not of 'alice'",
    ),
    ("other authority", foreign, "alice.pem is not signed by "),
    (
        "a party as authority",
        lambda f: shutil.copy(f / "bob.pem", f / "ca.pem"),
        "not the authority's",
    ),
    (
        "the authority as party",
        lambda f: shutil.copy(f / "ca.pem", f / "alice.pem"),
        "not a party's; name alice.pem",
    ),
    ("expired", lambda f: issue(f, "alice", now=LONG_AGO), "; renew it: tacit cert issue alice"),
    (
        "too early",
        lambda f: issue(f, "alice", now=datetime.now(UTC) + timedelta(days=2)),
        "is not valid before 20",
    ),
]


@pytest.mark.parametrize(
    ("spoil", "said"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_what_is_wrong_with_an_identity_is_one_line(
    folder: Path, spoil: Callable[[Path], object], said: str
) -> None:
    spoil(folder)
    with pytest.raises(DataError) as caught:
        check_identity(*files(folder), "alice")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_expired_authority_is_said_to_be_so(tmp_path: Path) -> None:
    create_authority(tmp_path, "heart-study", days=10, now=LONG_AGO)
    issue(tmp_path, "alice", days=365, now=LONG_AGO, with_key=True)
    with pytest.raises(DataError, match=r"ca\.pem expired on .*; make a new authority"):
        check_identity(*files(tmp_path), "alice")
    with pytest.raises(DataError, match=r"ca\.pem expired on .*; make a new authority"):
        issue(tmp_path, "bob", with_key=True)
    assert not (tmp_path / "bob.key").exists()


def csr(path: Path, name: str, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> Path:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder(subject).sign(key, hashes.SHA256())
    path.write_bytes(request.public_bytes(serialization.Encoding.PEM))
    return path


def forged(path: Path) -> Path:
    """A request whose name was changed after it was signed."""
    pem = csr(path, "alise", ec.generate_private_key(ec.SECP256R1()))
    der = x509.load_pem_x509_csr(pem.read_bytes()).public_bytes(serialization.Encoding.DER)
    changed = x509.load_der_x509_csr(der.replace(b"alise", b"alice"))
    path.write_bytes(changed.public_bytes(serialization.Encoding.PEM))
    return path


REQUESTS: list[tuple[str, Callable[[Path], object], str]] = [
    ("none", lambda p: p.exists(), "the party makes it: tacit cert request alice"),
    ("damaged", lambda p: p.write_text("-----BEGIN"), "damaged, or not a certificate request"),
    (
        "another's",
        lambda p: csr(p, "bob", ec.generate_private_key(ec.SECP256R1())),
        "asks for 'bob', not for 'alice'",
    ),
    ("forged", forged, "not signed with its own key"),
    ("weak", lambda p: csr(p, "alice", rsa.generate_private_key(65537, 1024)), "too weak"),
    (
        "unusual curve",
        lambda p: csr(p, "alice", ec.generate_private_key(ec.SECP256K1())),
        "too weak",
    ),
    (
        "other key",
        lambda p: csr(p, "alice", ec.generate_private_key(ec.SECP256R1())),
        "was not made with ",
    ),
]


@pytest.mark.parametrize(
    ("write", "said"), [case[1:] for case in REQUESTS], ids=[case[0] for case in REQUESTS]
)
def test_a_request_that_is_refused_changes_nothing(
    folder: Path, tmp_path: Path, write: Callable[[Path], object], said: str
) -> None:
    write(tmp_path / "in.csr")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(DataError) as caught:
        issue(folder, "alice", request=tmp_path / "in.csr")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.fixture
def second_write_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that is full after the first file."""
    plain, calls = os.fsync, []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) % 2 == 0:
            raise OSError(28, "No space left on device")
        plain(handle)

    monkeypatch.setattr(os, "fsync", full)


def test_a_certificate_that_cannot_be_written_leaves_no_key(
    folder: Path, second_write_fails: None
) -> None:
    before = sorted(folder.iterdir())
    with pytest.raises(OSError, match="No space"):
        issue(folder, "carol", with_key=True)
    assert sorted(folder.iterdir()) == before


def test_a_second_file_that_fails_takes_the_first_and_the_folder_with_it(
    tmp_path: Path, second_write_fails: None
) -> None:
    with pytest.raises(OSError, match="No space"):
        create_authority(tmp_path / "new" / "one", "heart-study")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="No space"):
        create_request(tmp_path / "new", "alice")
    assert list(tmp_path.iterdir()) == []


def test_the_authority_must_be_whole_to_sign(folder: Path) -> None:
    shutil.copy(folder / "bob.key", folder / "ca.key")
    with pytest.raises(DataError, match=r"does not belong to the ca\.pem next to it"):
        issue(folder, "carol", with_key=True)
    (folder / "ca.key").unlink()
    with pytest.raises(DataError, match="issued where tacit cert init made the authority"):
        issue(folder, "carol", with_key=True)


def test_a_request_without_its_key_is_not_replaced(tmp_path: Path) -> None:
    create_request(tmp_path, "alice")
    (tmp_path / "alice.key").unlink()
    with pytest.raises(DataError, match="not its key"):
        create_request(tmp_path, "alice")


@pytest.mark.parametrize("days", [0, -1, 10**9])
def test_a_validity_of_no_or_endless_days_is_refused(tmp_path: Path, days: int) -> None:
    with pytest.raises(DataError, match="days: expected 1 to"):
        create_authority(tmp_path, "heart-study", days=days)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "alice", "hospital-2", "9", "a" * 63])
def test_dns_labels_name_parties(name: str) -> None:
    assert check_party_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "a b", "a.b", "Alice", "a" * 64, "é", "../x", "a\n", "ca", "all"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(DataError, match="cannot name a party") as caught:
        check_party_name(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", " a", "a\nb", "ü" * 33, "x" * 65])
def test_a_consortiums_name_fits_a_certificate(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot name a consortium"):
        check_consortium_name(name)
    longest = "ü" * 32
    assert describe(create_authority(tmp_path, longest)).consortium == longest


def test_without_cryptography_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for call in (
        lambda: create_authority(tmp_path, "c"),
        lambda: create_request(tmp_path, "a"),
        lambda: describe(tmp_path),
    ):
        with pytest.raises(MissingDependencyError, match=r'pip install "tacit\[psi\]"'):
            call()


def test_importing_the_module_does_not_import_cryptography() -> None:
    code = f"import sys, {certificates.__name__}; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n"
