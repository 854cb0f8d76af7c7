"""What a party shows to others, and the authority that it trusts.

Each file is read once, so that what is checked is what TLS uses.
"""

from __future__ import annotations

import secrets
import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.channel.passphrases import Passphrase
from tacit.channel.x509_files import (
    certificate_der,
    certificate_pem,
    fingerprint,
    is_authority,
    is_same_key,
    is_signed_by,
    key_fingerprint,
    organisation,
    party_name,
    private_pem,
    read_certificate,
    read_key,
    sole_name,
)
from tacit.core.errors import DataError, printable

if TYPE_CHECKING:
    from tacit.channel.x509_files import X509Certificate

SOON = 30  # days left of a certificate, of which its party is told


@dataclass(frozen=True)
class Certificate:
    """What a certificate says.

    `fingerprint` is the SHA-256 of the whole, in hex; `key_fingerprint` that of its public key.
    """

    party: str
    consortium: str
    issuer: str
    not_before: datetime
    not_after: datetime
    fingerprint: str
    key_fingerprint: str
    authority: bool = False

    def days_left(self, now: datetime | None = None) -> int:
        """Whole days until it expires; negative once it has.

        >>> june = datetime(2030, 6, 1, tzinfo=UTC)
        >>> later = june.replace(day=10)
        >>> Certificate("alice", "heart-study", "", june, later, "", "").days_left(june)
        9
        """
        return (self.not_after - (now or datetime.now(UTC))).days


@dataclass(frozen=True)
class CertificateFile:
    """A certificate, and the file that it was read from."""

    path: Path
    certificate: X509Certificate

    @classmethod
    def read(cls, path: Path) -> CertificateFile:
        return cls(path, read_certificate(path))

    def description(self) -> Certificate:
        certificate = self.certificate
        return Certificate(
            party=party_name(certificate),
            consortium=organisation(certificate),
            issuer=printable(certificate.issuer.rfc4514_string()),
            not_before=certificate.not_valid_before_utc,
            not_after=certificate.not_valid_after_utc,
            fingerprint=fingerprint(certificate),
            key_fingerprint=key_fingerprint(certificate.public_key()),
            authority=is_authority(certificate),
        )

    def check_dates(self, now: datetime, remedy: str) -> None:
        begin = self.certificate.not_valid_before_utc
        end = self.certificate.not_valid_after_utc
        if now < begin:
            raise DataError(
                f"{self.path} is not valid before {day(begin)}; check this machine's clock"
            )
        if now >= end:
            raise DataError(f"{self.path} expired on {day(end)}; {remedy}")


@dataclass(frozen=True)
class Credentials:
    """A party's certificate and key, and the one authority that it trusts."""

    authority: CertificateFile
    own: CertificateFile
    key_file: Path
    key: Any = field(repr=False)

    @classmethod
    def read(
        cls, ca: Path, certificate: Path, key: Path, passphrase: Passphrase = None
    ) -> Credentials:
        """From three files; the passphrase is the key's, if it has one."""
        authority = CertificateFile.read(ca)
        own = CertificateFile.read(certificate)
        return cls(authority, own, key, read_key(key, passphrase))

    def check(
        self, party: str, *, pin: str | None = None, now: datetime | None = None
    ) -> Certificate:
        """What the party's certificate says, if all is right; else a DataError.

        `pin` is the fingerprint of the key that the consortium file has for the party.
        """
        description = _check(self.authority, self.own, party, pin, now)
        self.check_key()
        return description

    def check_key(self) -> None:
        if not is_same_key(self.key.public_key(), self.own.certificate.public_key()):
            raise DataError(
                f"{self.key_file} does not belong to {self.own.path}; "
                "take both from the same tacit cert issue or request"
            )

    def expiries(self, now: datetime | None = None) -> list[str]:
        """What will soon have to be renewed."""
        notes = []
        for file, remedy in (
            (self.own, f"renew it: tacit cert issue {sole_name(self.own.certificate)}"),
            (self.authority, "make a new authority: tacit cert init"),
        ):
            description = file.description()
            days = description.days_left(now)
            if days < SOON:
                notes.append(
                    f"{file.path} expires on {day(description.not_after)}, "
                    f"{days} days from now; {remedy}"
                )
        return notes

    def load_into(self, context: ssl.SSLContext) -> None:
        """Has TLS show this certificate, and trust this authority alone."""
        self.check_key()
        context.load_verify_locations(cadata=certificate_der(self.authority.certificate))
        # TLS takes the key from a file only. That file is encrypted for this moment.
        once = secrets.token_hex()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "own.pem")
            pem = certificate_pem(self.own.certificate) + private_pem(self.key, once)
            file.touch(mode=0o600)
            file.write_bytes(pem)
            try:
                context.load_cert_chain(file, password=once)
            except ssl.SSLError as error:
                raise DataError(
                    f"TLS does not take {self.own.path} and {self.key_file} "
                    f"({(error.reason or 'unknown reason').lower().replace('_', ' ')}); "
                    "make a new key: tacit cert request"
                ) from None


def describe(path: Path) -> Certificate:
    """What the certificate in a file says."""
    return CertificateFile.read(path).description()


def check_certificate(
    ca: Path,
    certificate: Path,
    party: str,
    *,
    pin: str | None = None,
    now: datetime | None = None,
) -> Certificate:
    """What the party's certificate says.

    A DataError says what is wrong with it, and what to do.
    """
    return _check(CertificateFile.read(ca), CertificateFile.read(certificate), party, pin, now)


def check_identity(
    ca: Path, certificate: Path, key: Path, party: str, *, now: datetime | None = None
) -> Certificate:
    """What the party's certificate says, if this is the key for it; else a DataError."""
    return Credentials.read(ca, certificate, key).check(party, now=now)


def check_authority(file: CertificateFile) -> None:
    """Refuses a certificate that is no authority's."""
    if not is_authority(file.certificate):
        raise DataError(
            f"{file.path} is a party's certificate, not the authority's; "
            "name the consortium's ca.pem"
        )
    if not is_signed_by(file.certificate, file.certificate):
        raise DataError(
            f"{file.path} is not signed with its own key; "
            "get the file again from the party that manages the consortium"
        )


def day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _check(
    authority: CertificateFile,
    own: CertificateFile,
    party: str,
    pin: str | None,
    now: datetime | None,
) -> Certificate:
    check_authority(authority)
    _check_party(own, party)
    if not is_signed_by(own.certificate, authority.certificate):
        raise DataError(
            f"{own.path} is not signed by {authority.path}: another authority issued it; "
            f"get a ca.pem and {party}.pem of the same consortium"
        )
    now = now or datetime.now(UTC)
    authority.check_dates(now, "make a new authority: tacit cert init")
    own.check_dates(now, f"renew it: tacit cert issue {party}")
    description = own.description()
    if pin is not None and description.key_fingerprint != pin:
        raise DataError(
            f"{own.path} is for another key than consortium.yaml has for {party}; "
            f"get the newest consortium.yaml and {party}.pem"
        )
    return description


def _check_party(own: CertificateFile, party: str) -> None:
    if is_authority(own.certificate):
        raise DataError(
            f"{own.path} is an authority's certificate, not a party's; name {party}.pem"
        )
    if not sole_name(own.certificate):
        raise DataError(
            f"{own.path} has no party's name, or several, where TLS looks for it; "
            f"have it issued anew: tacit cert issue {party}"
        )
    if sole_name(own.certificate) != party:
        owner = party_name(own.certificate)
        raise DataError(
            f"{own.path} is the certificate of {owner!r}, not of {party!r}; name {party}'s own"
        )
