"""Certificates of a consortium: its authority, its parties' keys and requests, and what may be wrong with them.

X.509 with keys on the curve P-256. A party's name is the DNS name in its certificate, so that TLS checks a party as it
checks a web server; the organisation is the consortium.
"""

from __future__ import annotations

import os
import shlex
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.channel.party_names import check_consortium_name, check_party_name
from tacit.core.errors import DataError, MissingDependencyError, shown
from tacit.core.files import created, replacing

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

AUTHORITY = "certificate authority"  # the authority's common name; no party's, which has no blanks
BACKDATED = timedelta(minutes=5)  # clocks differ
LONGEST = 36_500  # days
BITS = 2048  # of an RSA key that comes in a request, at least
CURVES = ("secp256r1", "secp384r1", "secp521r1")


@dataclass(frozen=True)
class Certificate:
    """What a certificate says; `fingerprint` is the SHA-256 of the whole, in hex."""

    party: str
    consortium: str
    issuer: str
    not_before: datetime
    not_after: datetime
    fingerprint: str
    authority: bool = False

    def days_left(self, now: datetime | None = None) -> int:
        """Whole days until it expires; negative once it has.

        >>> june = datetime(2030, 6, 1, tzinfo=UTC)
        >>> Certificate("alice", "heart-study", "", june, june + timedelta(days=9), "").days_left(june)
        9
        """
        return (self.not_after - (now or datetime.now(UTC))).days


def create_authority(
    folder: Path, name: str, *, days: int = 3650, now: datetime | None = None
) -> Path:
    """The consortium's authority, `ca.pem` and `ca.key`; whoever has the key decides who belongs to the consortium."""
    _need_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    check_consortium_name(name)
    certificate, key_file = folder / "ca.pem", folder / "ca.key"
    for path in (certificate, key_file):
        if path.exists():
            raise DataError(f"{path} exists already; nothing is overwritten: name another folder")
    begin, end = _validity(days, now)
    key = ec.generate_private_key(ec.SECP256R1())
    subject, public = _subject(name, AUTHORITY), key.public_key()
    builder = _builder(subject, subject, public, begin, end)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False
    )
    pem = _signed(builder, key)
    with created(key_file, _private_pem(key), private=True), created(certificate, pem):
        return certificate


def create_request(folder: Path, party: str) -> Path:
    """The party's own key, `party.key`, and its request for a certificate, `party.csr`: the key stays where it is made.

    A key that is there already is kept, and a request for it written anew.
    """
    _need_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    check_party_name(party)
    key_file, request = folder / f"{party}.key", folder / f"{party}.csr"
    fresh = not key_file.exists()
    if fresh and request.exists():
        raise DataError(
            f"{request} is there, but not its key {key_file}; remove it, or name another folder"
        )
    key: Any = ec.generate_private_key(ec.SECP256R1()) if fresh else _read_key(key_file)
    builder = x509.CertificateSigningRequestBuilder(_subject(None, party))
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName(party)]), critical=False
    )
    pem = _signed(builder, key)
    with (
        created(key_file, _private_pem(key), private=True) if fresh else nullcontext(),
        replacing(request, "wb") as file,
    ):
        file.write(pem)
    return request


def issue(
    folder: Path,
    party: str,
    *,
    days: int = 365,
    request: Path | None = None,
    now: datetime | None = None,
) -> Path:
    """The party's certificate, `party.pem`, signed by the folder's authority.

    It is for the key in `request` or in the folder's `party.csr`; else, renewed, for the key in `party.key` or in the
    `party.pem` that is there; else for a new key, `party.key`. `now` is when it begins, if that is not today.
    """
    _need_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    check_party_name(party)
    authority, signer = _read_authority(folder)
    begin, end = _validity(days, now)
    if authority.not_valid_after_utc <= begin:
        raise DataError(
            f"{folder / 'ca.pem'} expired on {_day(authority.not_valid_after_utc)}; make a new authority"
        )
    known = _known_key(folder, party, request, authority)
    fresh = ec.generate_private_key(ec.SECP256R1()) if known is None else None
    public: Any = known or (fresh and fresh.public_key())
    subject = _subject(describe(folder / "ca.pem").consortium, party)
    builder = _builder(
        subject, authority.subject, public, begin, min(end, authority.not_valid_after_utc)
    )
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(_usage("digital_signature"), critical=True)
    uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
    builder = builder.add_extension(uses, critical=False)
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName(party)]), critical=False
    )
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    pem = _signed(builder.add_extension(signed_by, critical=False), signer)
    place = folder / f"{party}.pem"
    with (
        created(folder / f"{party}.key", _private_pem(fresh), private=True)
        if fresh
        else nullcontext(),
        replacing(place, "wb") as file,
    ):
        file.write(pem)
    return place


def read_certificate(path: Path) -> x509.Certificate:
    """The certificate in a PEM file."""
    _need_cryptography()
    from cryptography import x509

    how = "" if path.stem == "ca" else f" (tacit cert issue {path.stem})"
    content = _read(path, f"ask whoever keeps the consortium's ca.key for it{how}")
    try:
        found = x509.load_pem_x509_certificate(content)
        _ = (
            found.extensions,
            found.subject,
            found.issuer,
            found.public_key(),
        )  # read when they are asked for
    except Exception as error:  # ValueError and several of the library's own
        hint = (
            "it holds a private key"
            if b"PRIVATE KEY" in content
            else f"({shown(str(error), most=60)})"
        )
        raise DataError(
            f"{path} is damaged, or no certificate {hint}; expected a PEM file"
        ) from None
    return found


def describe(path: Path) -> Certificate:
    """What the certificate in a file says."""
    found = read_certificate(path)
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    def entry(name: x509.Name, oid: Any) -> str:
        return next((str(one.value) for one in name.get_attributes_for_oid(oid)), "")

    names = _dns_names(found)
    return Certificate(
        names[0] if names else entry(found.subject, NameOID.COMMON_NAME),
        entry(found.subject, NameOID.ORGANIZATION_NAME),
        found.issuer.rfc4514_string(),
        found.not_valid_before_utc,
        found.not_valid_after_utc,
        found.fingerprint(hashes.SHA256()).hex(),
        _is_authority(found),
    )


def check_certificate(
    ca: Path, certificate: Path, party: str, *, now: datetime | None = None
) -> Certificate:
    """What the party's certificate says; a DataError says what is wrong with it, and what to do."""
    authority, found, now = (
        read_certificate(ca),
        read_certificate(certificate),
        now or datetime.now(UTC),
    )
    if not _is_authority(authority):
        raise DataError(
            f"{ca} is a party's certificate, not the authority's; name the consortium's ca.pem"
        )
    if _is_authority(found):
        raise DataError(
            f"{certificate} is an authority's certificate, not a party's; name {party}.pem"
        )
    if party not in _dns_names(found):
        other = describe(certificate).party
        raise DataError(
            f"{certificate} is the certificate of {other!r}, not of {party!r}; name {party}'s own"
        )
    if not _signed_by(found, authority):
        raise DataError(
            f"{certificate} is not signed by {ca}: another authority issued it; "
            f"get a ca.pem and {party}.pem of the same consortium"
        )
    for path, one, remedy in (
        (ca, authority, "make a new authority: tacit cert init"),
        (certificate, found, f"renew it: tacit cert issue {party}"),
    ):
        if now < one.not_valid_before_utc:
            raise DataError(
                f"{path} is not valid before {_day(one.not_valid_before_utc)}; check this machine's clock"
            )
        if now >= one.not_valid_after_utc:
            raise DataError(f"{path} expired on {_day(one.not_valid_after_utc)}; {remedy}")
    return describe(certificate)


def check_identity(
    ca: Path, certificate: Path, key: Path, party: str, *, now: datetime | None = None
) -> Certificate:
    """What the party's certificate says, if with this key it can show itself to the others; else a DataError."""
    found = check_certificate(ca, certificate, party, now=now)
    if _spki(_read_key(key).public_key()) != _spki(read_certificate(certificate).public_key()):
        raise DataError(
            f"{key} does not belong to {certificate}; take both from the same tacit cert issue or request"
        )
    return found


def _need_cryptography() -> None:
    try:
        import cryptography.x509  # noqa: F401
    except ImportError:
        raise MissingDependencyError(
            'certificates need a package; run: pip install "tacit[psi]"'
        ) from None


def _validity(days: int, now: datetime | None) -> tuple[datetime, datetime]:
    if not 1 <= days <= LONGEST:
        raise DataError(f"days: expected 1 to {LONGEST}, got {days}")
    now = now or datetime.now(UTC)
    return now - BACKDATED, now + timedelta(days=days)


def _subject(consortium: str | None, name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    organisation = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, consortium)] if consortium else []
    return x509.Name([*organisation, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: CertificatePublicKeyTypes,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    from cryptography import x509

    whose = x509.SubjectKeyIdentifier.from_public_key(public)
    builder = x509.CertificateBuilder(
        issuer, subject, public, x509.random_serial_number(), begin, end
    )
    return builder.add_extension(whose, critical=False)


def _usage(*wanted: str) -> x509.KeyUsage:
    from cryptography import x509

    known = "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign"
    return x509.KeyUsage(
        **{use: use in wanted for use in (*known.split(), "encipher_only", "decipher_only")}
    )


def _signed(
    builder: x509.CertificateBuilder | x509.CertificateSigningRequestBuilder, key: Any
) -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    digest = (
        None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    )  # that kind has one of its own
    return builder.sign(key, digest).public_bytes(serialization.Encoding.PEM)


def _private_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization as to

    content: bytes = key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption())
    return content


def _spki(public: CertificatePublicKeyTypes) -> bytes:
    """A public key as certificates hold it."""
    from cryptography.hazmat.primitives import serialization as to

    return public.public_bytes(to.Encoding.DER, to.PublicFormat.SubjectPublicKeyInfo)


def _read_authority(folder: Path) -> tuple[x509.Certificate, Any]:
    """The folder's authority and the key that it signs with."""
    for path in (folder / "ca.pem", folder / "ca.key"):
        if not path.exists():
            raise DataError(
                f"there is no {path}; certificates are issued where tacit cert init made the authority"
            )
    authority, key = read_certificate(folder / "ca.pem"), _read_key(folder / "ca.key")
    if _spki(authority.public_key()) != _spki(key.public_key()) or not _is_authority(authority):
        raise DataError(
            f"{folder / 'ca.key'} does not belong to ca.pem beside it; bring back what tacit cert init made"
        )
    return authority, key


def _known_key(
    folder: Path, party: str, request: Path | None, authority: x509.Certificate
) -> CertificatePublicKeyTypes | None:
    """The key that the party has already; none where it gets a new one."""
    own, asked, earlier = (folder / f"{party}.{ending}" for ending in ("key", "csr", "pem"))
    if request is not None or asked.exists():
        source = request or asked
        found: CertificatePublicKeyTypes = _read_request(source, party)
        if own.exists() and _spki(_read_key(own).public_key()) != _spki(found):
            raise DataError(
                f"{source} was not made with {own}; move away the one that {party} does not use"
            )
        return found
    if own.exists():
        kept: CertificatePublicKeyTypes = _read_key(own).public_key()
        return kept
    if not earlier.exists():
        return None
    before = read_certificate(earlier)
    if party not in _dns_names(before) or not _signed_by(before, authority):
        raise DataError(
            f"{earlier} is no certificate of {party} by this authority; move it away to issue a new one"
        )
    return before.public_key()


def _read_request(path: Path, party: str) -> CertificatePublicKeyTypes:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.x509.oid import NameOID

    content = _read(path, f"the party makes it: tacit cert request {party}")
    try:
        found = x509.load_pem_x509_csr(content)
        names = [
            str(one.value) for one in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        ]
        key, valid = found.public_key(), found.is_signature_valid
    except Exception:  # ValueError and several of the library's own
        raise DataError(
            f"{path} is damaged, or no certificate request; expected the .csr of a party"
        ) from None
    if not valid:
        raise DataError(
            f"{path} is not signed with the key it is for; have it made anew: tacit cert request {party}"
        )
    if names != [party]:
        asked = " and ".join(map(repr, names)) or "no name"
        raise DataError(
            f"{path} asks for {asked}, not for {party!r}; issue it so, or have it made anew"
        )
    strong = isinstance(key, rsa.RSAPublicKey) and key.key_size >= BITS
    strong |= isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in CURVES
    if not (strong or isinstance(key, ed25519.Ed25519PublicKey)):
        raise DataError(
            f"{path} is for a key that is too weak; have it made by tacit cert request {party}"
        )
    return key


def _read_key(path: Path) -> Any:
    """The private key in a file that is its owner's alone."""
    from cryptography.hazmat.primitives import serialization

    content = _read(path, "it stays where it was made, or is handed over with the certificate")
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise DataError(
            f"{path} is a private key, and not yours alone; run: chmod 600 {shlex.quote(str(path))}"
        )
    try:
        return serialization.load_pem_private_key(content, password=None)
    except TypeError:
        raise DataError(
            f"{path} is encrypted; decrypt it: openssl pkey -in {path} -out NEW.key"
        ) from None
    except Exception:  # ValueError and several of the library's own
        raise DataError(f"{path} is damaged, or no private key; expected a PEM file") from None


def _read(path: Path, hint: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; {hint}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None


def _dns_names(certificate: x509.Certificate) -> list[str]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.DNSName)


def _is_authority(certificate: x509.Certificate) -> bool:
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
