"""Makes a consortium's certificates: its authority, its parties' keys and requests.

X.509 with keys on the curve P-256. A party's name is the DNS name in its certificate, so that TLS
checks a party as it checks a web server; the organisation is the consortium.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.channel.credentials import CertificateFile, check_authority, day
from tacit.channel.party_names import check_consortium_name, check_party_name
from tacit.channel.passphrases import Passphrase
from tacit.channel.x509_files import (
    generate_key,
    is_same_key,
    is_signed_by,
    is_strong,
    key_fingerprint,
    need_cryptography,
    private_pem,
    read_certificate,
    read_key,
    read_open_key,
    read_request,
    sole_name,
)
from tacit.channel.x509_making import Issuer, Validity, authority_pem, request_pem
from tacit.core.errors import DataError
from tacit.core.files import created, replacing

if TYPE_CHECKING:
    from tacit.channel.x509_files import PublicKey, X509Certificate

AUTHORITY = "certificate authority"  # the authority's common name; no party's, which has no blanks
BACKDATED = timedelta(minutes=5)  # clocks differ
LONGEST = 36_500  # days


def create_authority(
    folder: Path,
    name: str,
    *,
    days: int = 3650,
    passphrase: str | None = None,
    now: datetime | None = None,
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
    secret = private_pem(key, passphrase)
    with created(key_file, secret, private=True), created(certificate_file, pem):
        return certificate_file


def create_request(folder: Path, party: str, *, passphrase: str | None = None) -> Path:
    """Makes the party's key, `party.key`, and its request for a certificate, `party.csr`.

    The key stays where it is made. If there is one already, it gets a new request.
    """
    need_cryptography()
    check_party_name(party)
    key_file = folder / f"{party}.key"
    request_file = folder / f"{party}.csr"
    secret = None
    if key_file.exists():
        key = _key_for_request(key_file, passphrase)
    elif request_file.exists():
        raise DataError(
            f"{request_file} is there, but not its key {key_file}; remove it, "
            "or name another folder"
        )
    else:
        key = generate_key()
        secret = private_pem(key, passphrase)
    _write(request_file, request_pem(party, key), key_file, secret)
    return request_file


def requested_fingerprint(request: Path, party: str) -> str:
    """The fingerprint of the key in the party's request."""
    return key_fingerprint(read_request(request, party))


@dataclass(frozen=True)
class Issued:
    """A party's certificate that is not on disk yet.

    `requested` says whether it is for the key of a request; `key_pem` is a new key.
    """

    certificate_file: Path
    certificate_pem: bytes
    key_fingerprint: str
    key_file: Path
    key_pem: bytes | None
    requested: bool

    def write(self) -> Path:
        """Writes the certificate and the new key: both or neither."""
        _write(self.certificate_file, self.certificate_pem, self.key_file, self.key_pem)
        return self.certificate_file


def issue(
    folder: Path,
    party: str,
    *,
    days: int = 365,
    request: Path | None = None,
    with_key: bool = False,
    passphrase: Passphrase = None,
    now: datetime | None = None,
) -> Path:
    """Makes the party's certificate, `party.pem`, signed by the folder's authority.

    It is for the key in `request` or in the folder's `party.csr`. Where there is neither, it is a
    renewal for the key in `party.key` or in the `party.pem` that is there. Where there is no key
    yet, `with_key` makes `party.key` too, to try things out. `passphrase` is that of `ca.key`, and
    `now` is when the certificate begins, if that is not today.
    """
    issued = prepare(
        folder,
        party,
        days=days,
        request=request,
        with_key=with_key,
        passphrase=passphrase,
        now=now,
    )
    return issued.write()


def prepare(
    folder: Path,
    party: str,
    *,
    days: int = 365,
    request: Path | None = None,
    with_key: bool = False,
    passphrase: Passphrase = None,
    now: datetime | None = None,
) -> Issued:
    """What `issue` writes, without writing it."""
    need_cryptography()
    check_party_name(party)
    validity = _validity(days, now)
    authority = _authority(folder)
    requested = request is not None or (folder / f"{party}.csr").exists()
    public = _existing_key(folder, party, request, authority)
    if public is None and not with_key:
        raise DataError(
            f"there is no request by {party}, who runs: tacit cert request {party}, and sends "
            f"{party}.csr; only to try things out, its key can be made here too",
            parameters=("with_key",),
        )
    last_day = authority.not_valid_after_utc
    if last_day <= validity.begin:
        raise DataError(f"{folder / 'ca.pem'} expired on {day(last_day)}; make a new authority")
    issuer = _issuer(folder, authority, passphrase)
    key_file = folder / f"{party}.key"
    key_pem = None
    if public is None:
        new_key = generate_key()
        public = new_key.public_key()
        key_pem = private_pem(new_key)
    validity = Validity(validity.begin, min(validity.end, last_day))
    return Issued(
        certificate_file=folder / f"{party}.pem",
        certificate_pem=issuer.party_pem(party, public, validity),
        key_fingerprint=key_fingerprint(public),
        key_file=key_file,
        key_pem=key_pem,
        requested=requested,
    )


def _validity(days: int, now: datetime | None) -> Validity:
    if not 1 <= days <= LONGEST:
        raise DataError(f"days: expected 1 to {LONGEST}, got {days}", parameters=("days",))
    now = now or datetime.now(UTC)
    return Validity(now - BACKDATED, now + timedelta(days=days))


def _write(path: Path, pem: bytes, key_file: Path, key_pem: bytes | None) -> None:
    """Writes the file and, if there is a new key, the key too: both or neither."""
    with ExitStack() as stack:
        if key_pem is not None:
            stack.enter_context(created(key_file, key_pem, private=True))
        file = stack.enter_context(replacing(path, "wb"))
        file.write(pem)


def _key_for_request(key_file: Path, passphrase: str | None) -> Any:
    """The party's key that is there already."""
    key = read_open_key(key_file)
    if key is None:
        key = read_key(key_file, passphrase)
    elif passphrase is not None:
        raise DataError(
            f"{key_file} is there already, without a passphrase; "
            "move it away to make a new key, or request without a passphrase",
            parameters=("passphrase",),
        )
    if not is_strong(key.public_key()):
        raise DataError(
            f"{key_file} is too weak, or of a kind that TLS does not take; move it away"
        )
    return key


def _authority(folder: Path) -> X509Certificate:
    """The folder's authority, where its key is too."""
    certificate_file = folder / "ca.pem"
    for path in (certificate_file, folder / "ca.key"):
        if not path.exists():
            raise DataError(
                f"there is no {path}; "
                "certificates are issued where tacit cert init made the authority"
            )
    authority = CertificateFile.read(certificate_file)
    check_authority(authority)
    return authority.certificate


def _issuer(folder: Path, authority: X509Certificate, passphrase: Passphrase) -> Issuer:
    """The folder's authority and the key that it signs with."""
    key_file = folder / "ca.key"
    key = read_key(key_file, passphrase)
    if not is_same_key(authority.public_key(), key.public_key()):
        raise DataError(
            f"{key_file} does not belong to the ca.pem next to it; "
            "restore the two files that tacit cert init made"
        )
    return Issuer(authority, key)


def _existing_key(
    folder: Path, party: str, request: Path | None, authority: X509Certificate
) -> PublicKey | None:
    """The public key that the party has already; None where it has none yet."""
    key_file = folder / f"{party}.key"
    request_file = folder / f"{party}.csr"
    certificate_file = folder / f"{party}.pem"
    if request is not None or request_file.exists():
        return _requested_key(request or request_file, party, key_file)
    if key_file.exists():
        key = read_open_key(key_file)
        if key is not None:
            return _public_key(key)
    if certificate_file.exists():
        return _certified_key(certificate_file, party, authority)
    if key_file.exists():
        raise DataError(
            f"{key_file} has a passphrase; make a request for it: tacit cert request {party}"
        )
    return None


def _public_key(key: Any) -> PublicKey:
    public: PublicKey = key.public_key()
    return public


def _certified_key(path: Path, party: str, authority: X509Certificate) -> PublicKey:
    """The key in the party's certificate, which is renewed."""
    certificate = read_certificate(path)
    if sole_name(certificate) != party or not is_signed_by(certificate, authority):
        raise DataError(
            f"{path} is not a certificate of {party} from this authority; "
            "move it away to issue a new one"
        )
    return certificate.public_key()


def _requested_key(request: Path, party: str, key_file: Path) -> PublicKey:
    """The key in a request, which the party's key file has to match if it can be read here."""
    public = read_request(request, party)
    key = read_open_key(key_file) if key_file.exists() else None
    if key is not None and not is_same_key(key.public_key(), public):
        raise DataError(
            f"{request} was not made with {key_file}; move away the one that {party} does not use"
        )
    return public
