"""A file holds one certificate, and TLS shows and trusts what was read and checked."""

from __future__ import annotations

import os
import ssl
import stat
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tacit.channel.certificates import create_authority, issue
from tacit.channel.credentials import (
    Credentials,
    check_certificate,
    check_identity,
    describe,
)
from tacit.channel.fingerprints import parse_fingerprint
from tacit.channel.tls import make_context
from tacit.channel.x509_files import read_certificate
from tacit.core.errors import DataError

PEM = serialization.Encoding.PEM


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A consortium with alice."""
    create_authority(tmp_path, "heart-study")
    issue(tmp_path, "alice", with_key=True)
    return tmp_path


@pytest.fixture
def other(folder: Path) -> Path:
    """Another authority's folder, also with an alice."""
    create_authority(folder / "other", "heart-study")
    issue(folder / "other", "alice", with_key=True)
    return folder / "other"


def credentials(folder: Path) -> Credentials:
    return Credentials.read(folder / "ca.pem", folder / "alice.pem", folder / "alice.key")


def append(file: Path, content: bytes) -> None:
    file.write_bytes(file.read_bytes() + content)


def revocations(folder: Path) -> bytes:
    """A list of revoked certificates, as authorities publish it."""
    ca = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder(ca.subject, now, now + timedelta(days=1))
    return builder.sign(key, hashes.SHA256()).public_bytes(PEM)


ADDED: dict[str, Callable[[Path], bytes]] = {
    "a second authority": lambda folder: (folder / "other" / "ca.pem").read_bytes(),
    "the same again": lambda folder: (folder / "ca.pem").read_bytes(),
    "a trusted certificate": lambda folder: (
        (folder / "other" / "ca.pem").read_bytes().replace(b"CERTIFICATE", b"TRUSTED CERTIFICATE")
    ),
    "revocations": revocations,
    "a key": lambda folder: (folder / "ca.key").read_bytes(),
    "the beginning of a block": lambda _: b"-----BEGIN CERTIFICATE",
}
USES: dict[str, Callable[[Path], object]] = {
    "show": lambda folder: describe(folder / "ca.pem"),
    "check": lambda folder: check_certificate(folder / "ca.pem", folder / "alice.pem", "alice"),
    "issue": lambda folder: issue(folder, "bob", with_key=True),
    "connect": credentials,
}


@pytest.mark.usefixtures("other")
@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("before", [False, True])
def test_a_second_authority_is_refused_wherever_it_is_used(
    added: str, before: bool, folder: Path
) -> None:
    file = folder / "ca.pem"
    parts = [file.read_bytes(), ADDED[added](folder)]
    file.write_bytes(b"\n".join(reversed(parts) if before else parts))
    for use in USES.values():
        with pytest.raises(DataError) as caught:
            use(folder)
        assert "ca.pem holds 2 PEM blocks; expected one certificate" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not (folder / "bob.key").exists()


def test_a_second_certificate_of_a_party_is_refused(folder: Path, other: Path) -> None:
    append(folder / "alice.pem", (other / "alice.pem").read_bytes())
    with pytest.raises(DataError, match=r"alice\.pem holds 2 PEM blocks"):
        credentials(folder)


@pytest.mark.parametrize("label", [b"TRUSTED CERTIFICATE", b"X509 CRL", b"CERTIFICATE REQUEST"])
def test_another_kind_of_block_is_no_certificate(label: bytes, folder: Path) -> None:
    file = folder / "ca.pem"
    file.write_bytes(file.read_bytes().replace(b"CERTIFICATE", label))
    with pytest.raises(DataError, match="damaged, or not a certificate") as caught:
        credentials(folder)
    assert f"it holds a {label.decode().lower()}" in str(caught.value)


def test_text_around_a_certificate_counts_for_nothing(folder: Path) -> None:
    """As openssl x509 -text writes it."""
    file = folder / "ca.pem"
    file.write_bytes(b"Certificate:\n    Data:\xff\n" + file.read_bytes() + b"the end\n")
    assert credentials(folder).check("alice").party == "alice"


def trusted(context: ssl.SSLContext) -> list[bytes]:
    return context.get_ca_certs(binary_form=True)


def shown_by(listening: ssl.SSLContext, dialling: ssl.SSLContext) -> bytes:
    """The certificate that the side that listens shows."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = dialling.wrap_bio(to_client, to_server, server_hostname="alice")
    server = listening.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client.getpeercert(binary_form=True) or b""


def test_tls_uses_what_was_checked_though_the_files_change(folder: Path, other: Path) -> None:
    ours = credentials(folder)
    ours.check("alice")
    before = {name: read_certificate(folder / name) for name in ("ca.pem", "alice.pem")}
    for name in ("ca.pem", "alice.pem", "alice.key"):
        os.replace(other / name, folder / name)
    listening = make_context(ssl.PROTOCOL_TLS_SERVER, ours)
    dialling = make_context(ssl.PROTOCOL_TLS_CLIENT, ours)
    der = serialization.Encoding.DER
    for context in (listening, dialling):
        assert trusted(context) == [before["ca.pem"].public_bytes(der)]
    assert shown_by(listening, dialling) == before["alice.pem"].public_bytes(der)


def test_no_readable_key_is_left_behind_or_on_its_way(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    seen: list[tuple[bytes, int]] = []

    class Watched(ssl.SSLContext):
        def load_cert_chain(self, certfile: Path, *rest: object, **more: object) -> None:  # type: ignore[override]
            seen.append((certfile.read_bytes(), stat.S_IMODE(certfile.stat().st_mode)))
            super().load_cert_chain(certfile, *rest, **more)  # type: ignore[arg-type]

    credentials(folder).load_into(Watched(ssl.PROTOCOL_TLS_SERVER))
    ((content, mode),) = seen
    assert mode == 0o600
    assert b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in content
    assert b"-----BEGIN PRIVATE KEY-----" not in content
    assert list(temporary.iterdir()) == []


def test_an_authority_is_signed_with_its_own_key(folder: Path, other: Path) -> None:
    good = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    key = serialization.load_pem_private_key((other / "ca.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateBuilder(
        good.issuer,
        good.subject,
        good.public_key(),
        good.serial_number,
        good.not_valid_before_utc,
        good.not_valid_after_utc,
    )
    forged = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
    (folder / "ca.pem").write_bytes(forged.sign(key, hashes.SHA256()).public_bytes(PEM))
    for use in (lambda: issue(folder, "alice"), lambda: credentials(folder).check("alice")):
        with pytest.raises(DataError, match=r"ca\.pem is not signed with its own key"):
            use()


def test_a_certificate_that_names_others_too_is_nobodys(folder: Path) -> None:
    certificate = x509.load_pem_x509_certificate((folder / "alice.pem").read_bytes())
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateBuilder(
        certificate.issuer,
        certificate.subject,
        certificate.public_key(),
        certificate.serial_number,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )
    names = x509.SubjectAlternativeName([x509.DNSName("alice"), x509.DNSName("bob")])
    signed = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    (folder / "alice.pem").write_bytes(signed.public_bytes(PEM))
    files = (folder / "ca.pem", folder / "alice.pem", folder / "alice.key")
    with pytest.raises(DataError, match=r"pem has no party's name, or several"):
        check_identity(*files, "alice")


def test_names_from_a_strangers_certificate_cannot_command_a_terminal(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "study\x1b]0;pwned\x07"),
            x509.NameAttribute(NameOID.COMMON_NAME, "al\x1b[2Jice\u202e"),
        ]
    )
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, now, now)
    (tmp_path / "x.pem").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(PEM))
    stranger = describe(tmp_path / "x.pem")
    assert stranger.party == "al\\x1b[2Jice\\u202e"
    assert stranger.consortium == "study\\x1b]0;pwned\\x07"
    assert stranger.issuer.isprintable()


def test_what_expires_soon_is_said(folder: Path) -> None:
    assert credentials(folder).expiries() == []
    issue(folder, "alice", days=12)
    (note,) = credentials(folder).expiries()
    assert "alice.pem expires on " in note
    assert note.endswith(" UTC, 11 days from now; renew it: tacit cert issue alice")
    ten_years = datetime.now(UTC) + timedelta(days=3640)
    assert [line.split(" expires")[0][-6:] for line in credentials(folder).expiries(ten_years)][
        1:
    ] == ["ca.pem"]


def test_the_fingerprint_of_a_key_is_that_of_its_public_key(folder: Path) -> None:
    public = read_certificate(folder / "alice.pem").public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    digest = hashes.Hash(hashes.SHA256())
    digest.update(public.public_bytes(serialization.Encoding.DER, form))
    fingerprint = describe(folder / "alice.pem").key_fingerprint
    assert fingerprint.replace(" ", "") == digest.finalize().hex()
    assert {len(group) for group in fingerprint.split(" ")} == {4}
    before = fingerprint
    issue(folder, "alice", days=5)
    assert describe(folder / "alice.pem").key_fingerprint == before


@pytest.mark.parametrize("typed", ["{}", "  {} ", "upper", "colons"])
def test_a_fingerprint_may_be_typed_in_other_ways(typed: str) -> None:
    shown = "0123 4567 89ab cdef " * 4
    shown = shown.strip()
    if typed == "upper":
        text = shown.upper().replace(" ", "")
    elif typed == "colons":
        text = shown.replace(" ", ":")
    else:
        text = typed.format(shown)
    assert parse_fingerprint(text) == shown


@pytest.mark.parametrize("text", ["", "xyz", "0123 4567", "01" * 33, "é" * 64, "0" * 63])
def test_what_is_no_fingerprint_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="expected 64 hexadecimal digits"):
        parse_fingerprint(text)
