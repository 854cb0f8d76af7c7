"""Certificates of a consortium: its authority, its parties' keys and requests, and their checks.

X.509 with keys on the curve P-256. A party's name is the DNS name in its certificate, so that TLS
checks a party as it checks a web server; the organisation is the consortium.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.channel.party_names import check_consortium_name, check_party_name
from tacit.channel.x509_files import (
    Issuer,
    Validity,
    authority_pem,
    dns_names,
    fingerprint,
    generate_key,
    is_authority,
    is_same_key,
    is_signed_by,
    need_cryptography,
    organisation,
    party_name,
    private_pem,
    read_certificate,
    read_key,
    read_request,
    request_pem,
)
from tacit.core.errors import DataError
from tacit.core.files import created, replacing

if TYPE_CHECKING:
    from tacit.channel.x509_files import PublicKey, X509Certificate

AUTHORITY = "certificate authority"  # the authority's common name; no party's, which has no blanks
BACKDATED = timedelta(minutes=5)  # clocks differ
LONGEST = 36_500  # days


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
        >>> later = june + timedelta(days=9)
        >>> Certificate("alice", "heart-study", "", june, later, "").days_left(june)
        9
        """
        return (self.not_after - (now or datetime.now(UTC))).days


def create_authority(
    folder: Path, name: str, *, days: int = 3650, now: datetime | None = None
) -> Path:
    """Makes the consortium's authority, `ca.pem` and `ca.key`.

    Whoever has the key decides who belongs to the consortium.
    """
    need_cryptography()
    check_consortium_name(name)
    certificate_file = folder / "ca.pem"
    key_file = folder / "ca.key"
    for path in (certificate_file, key_file):
        if path.exists():
            raise DataError(f"{path} exists already; nothing is overwritten: name another folder")
    validity = _validity(days, now)
    key = generate_key()
    pem = authority_pem(name, AUTHORITY, key, validity)
    with created(key_file, private_pem(key), private=True), created(certificate_file, pem):
        return certificate_file


def create_request(folder: Path, party: str) -> Path:
    """Makes the party's key, `party.key`, and its request for a certificate, `party.csr`.

    The key stays where it is made. If there is one already, it gets a new request.
    """
    need_cryptography()
    check_party_name(party)
    key_file = folder / f"{party}.key"
    request_file = folder / f"{party}.csr"
    new_key = None
    if key_file.exists():
        key = read_key(key_file)
    elif request_file.exists():
        raise DataError(
            f"{request_file} is there, but not its key {key_file}; remove it, "
            "or name another folder"
        )
    else:
        key = new_key = generate_key()
    _write(request_file, request_pem(party, key), key_file, new_key)
    return request_file


def issue(
    folder: Path,
    party: str,
    *,
    days: int = 365,
    request: Path | None = None,
    now: datetime | None = None,
) -> Path:
    """Makes the party's certificate, `party.pem`, signed by the folder's authority.

    It is for the key in `request` or in the folder's `party.csr`. Where there is neither, it is a
    renewal for the key in `party.key` or in the `party.pem` that is there; else it is for a new
    key, `party.key`. `now` is when it begins, if that is not today.
    """
    need_cryptography()
    check_party_name(party)
    issuer = _read_issuer(folder)
    validity = _validity(days, now)
    last_day = issuer.certificate.not_valid_after_utc
    if last_day <= validity.begin:
        raise DataError(f"{folder / 'ca.pem'} expired on {_day(last_day)}; make a new authority")
    validity = Validity(validity.begin, min(validity.end, last_day))
    new_key = None
    public = _existing_key(folder, party, request, issuer.certificate)
    if public is None:
        new_key = generate_key()
        public = new_key.public_key()
    certificate_file = folder / f"{party}.pem"
    pem = issuer.party_pem(party, public, validity)
    _write(certificate_file, pem, folder / f"{party}.key", new_key)
    return certificate_file


def describe(path: Path) -> Certificate:
    """What the certificate in a file says."""
    certificate = read_certificate(path)
    return Certificate(
        party=party_name(certificate),
        consortium=organisation(certificate),
        issuer=certificate.issuer.rfc4514_string(),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        fingerprint=fingerprint(certificate),
        authority=is_authority(certificate),
    )


def check_certificate(
    ca: Path, certificate: Path, party: str, *, now: datetime | None = None
) -> Certificate:
    """What the party's certificate says.

    A DataError says what is wrong with it, and what to do.
    """
    authority = read_certificate(ca)
    x509_certificate = read_certificate(certificate)
    if not is_authority(authority):
        raise DataError(
            f"{ca} is a party's certificate, not the authority's; name the consortium's ca.pem"
        )
    if is_authority(x509_certificate):
        raise DataError(
            f"{certificate} is an authority's certificate, not a party's; name {party}.pem"
        )
    if party not in dns_names(x509_certificate):
        owner = party_name(x509_certificate)
        raise DataError(
            f"{certificate} is the certificate of {owner!r}, not of {party!r}; name {party}'s own"
        )
    if not is_signed_by(x509_certificate, authority):
        raise DataError(
            f"{certificate} is not signed by {ca}: another authority issued it; "
            f"get a ca.pem and {party}.pem of the same consortium"
        )
    now = now or datetime.now(UTC)
    _check_dates(ca, authority, now, "make a new authority: tacit cert init")
    _check_dates(certificate, x509_certificate, now, f"renew it: tacit cert issue {party}")
    return describe(certificate)


def check_identity(
    ca: Path, certificate: Path, key: Path, party: str, *, now: datetime | None = None
) -> Certificate:
    """What the party's certificate says, if this is the key for it; else a DataError."""
    description = check_certificate(ca, certificate, party, now=now)
    public = read_certificate(certificate).public_key()
    if not is_same_key(read_key(key).public_key(), public):
        raise DataError(
            f"{key} does not belong to {certificate}; "
            "take both from the same tacit cert issue or request"
        )
    return description


def _validity(days: int, now: datetime | None) -> Validity:
    if not 1 <= days <= LONGEST:
        raise DataError(f"days: expected 1 to {LONGEST}, got {days}", parameters=("days",))
    now = now or datetime.now(UTC)
    return Validity(now - BACKDATED, now + timedelta(days=days))


def _check_dates(path: Path, certificate: X509Certificate, now: datetime, remedy: str) -> None:
    begin = certificate.not_valid_before_utc
    end = certificate.not_valid_after_utc
    if now < begin:
        raise DataError(f"{path} is not valid before {_day(begin)}; check this machine's clock")
    if now >= end:
        raise DataError(f"{path} expired on {_day(end)}; {remedy}")


def _write(path: Path, pem: bytes, key_file: Path, new_key: Any) -> None:
    """Writes the file and, if there is a new key, the key too: both or neither."""
    with ExitStack() as stack:
        if new_key is not None:
            stack.enter_context(created(key_file, private_pem(new_key), private=True))
        file = stack.enter_context(replacing(path, "wb"))
        file.write(pem)


def _read_issuer(folder: Path) -> Issuer:
    """The folder's authority and the key that it signs with."""
    certificate_file = folder / "ca.pem"
    key_file = folder / "ca.key"
    for path in (certificate_file, key_file):
        if not path.exists():
            raise DataError(
                f"there is no {path}; "
                "certificates are issued where tacit cert init made the authority"
            )
    certificate = read_certificate(certificate_file)
    key = read_key(key_file)
    matches = is_same_key(certificate.public_key(), key.public_key())
    if not matches or not is_authority(certificate):
        raise DataError(
            f"{key_file} does not belong to the ca.pem next to it; "
            "restore the two files that tacit cert init made"
        )
    return Issuer(certificate, key)


def _existing_key(
    folder: Path, party: str, request: Path | None, authority: X509Certificate
) -> PublicKey | None:
    """The public key that the party has already; None where it gets a new one."""
    key_file = folder / f"{party}.key"
    request_file = folder / f"{party}.csr"
    certificate_file = folder / f"{party}.pem"
    if request is not None or request_file.exists():
        return _requested_key(request or request_file, party, key_file)
    if key_file.exists():
        public: PublicKey = read_key(key_file).public_key()
        return public
    if not certificate_file.exists():
        return None
    certificate = read_certificate(certificate_file)
    if party not in dns_names(certificate) or not is_signed_by(certificate, authority):
        raise DataError(
            f"{certificate_file} is not a certificate of {party} from this authority; "
            "move it away to issue a new one"
        )
    return certificate.public_key()


def _requested_key(request: Path, party: str, key_file: Path) -> PublicKey:
    """The key in a request, which the party's key file has to match if it is there."""
    public = read_request(request, party)
    if key_file.exists() and not is_same_key(read_key(key_file).public_key(), public):
        raise DataError(
            f"{request} was not made with {key_file}; move away the one that {party} does not use"
        )
    return public


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
