"""A consortium with certificates of every sort, made once per session.

alice, bob and carol belong to it.
"""

from __future__ import annotations

import atexit
import shutil
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tacit.channel import certificates
from tacit.channel.consortium import Address, Consortium, default_member
from tacit.channel.credentials import Credentials
from tacit.channel.tls import TlsCarrier

LOOPBACK = Address("127.0.0.1", 0)
PARTIES = ("alice", "bob", "carol")
Change = Callable[[ssl.SSLContext], None]


@dataclass(frozen=True)
class Identity:
    """What a party shows, and the authority that it trusts."""

    ca: Path
    certificate: Path
    key: Path

    def carrier(
        self,
        *,
        listen: Address | None = None,
        connect: Mapping[str, Address] | None = None,
        pins: Mapping[str, str] | None = None,
        proxy: str | None = None,
    ) -> TlsCarrier:
        credentials = Credentials.read(self.ca, self.certificate, self.key)
        return TlsCarrier(credentials, listen=listen, connect=connect or {}, pins=pins, proxy=proxy)


@cache
def folder() -> Path:
    """The folders of four consortia.

    `good` holds the consortium, `other` another authority's, `expired` and `early` certificates
    that are out of date.
    """
    root = Path(tempfile.mkdtemp(prefix="tacit-consortia-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    for name in ("good", "other", "expired", "early"):
        (root / name).mkdir()
    certificates.create_authority(root / "good", "heart-study")
    certificates.create_authority(root / "other", "another-study")
    for name in ("expired", "early"):
        for file in ("ca.pem", "ca.key"):
            shutil.copy(root / "good" / file, root / name / file)
    now = datetime.now(UTC)
    year = timedelta(days=365)
    for party in PARTIES:
        certificates.issue(root / "good", party, with_key=True)
        certificates.issue(root / "other", party, with_key=True)
        certificates.issue(root / "expired", party, days=1, now=now - year, with_key=True)
        certificates.issue(root / "early", party, days=1, now=now + year, with_key=True)
    certificates.issue(root / "other", "mallory", with_key=True)
    consortium = Consortium("heart-study", root / "good" / "ca.pem", {})
    for party in PARTIES:
        consortium = consortium.with_member(default_member(party, root / "good"))
    consortium.write(root / "good" / "consortium.yaml")
    return root


def identity(party: str, of: str = "good") -> Identity:
    """A party's certificate; it trusts the consortium's authority whoever has signed its own."""
    root = folder()
    return Identity(
        root / "good" / "ca.pem", root / of / f"{party}.pem", root / of / f"{party}.key"
    )


def with_names(party: str, *names: x509.GeneralName) -> Identity:
    """A certificate of the right authority with these names, as no `tacit cert issue` makes it."""
    good = folder() / "good"
    certificate = x509.load_pem_x509_certificate((good / f"{party}.pem").read_bytes())
    signer = serialization.load_pem_private_key((good / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateBuilder(
        certificate.issuer,
        certificate.subject,
        certificate.public_key(),
        x509.random_serial_number(),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    file = Path(tempfile.mkdtemp(dir=folder()), f"{party}.pem")
    signed = builder.sign(signer, hashes.SHA256())
    file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    return Identity(good / "ca.pem", file, good / f"{party}.key")


def client_context(shown: Identity | None, change: Change = lambda _: None) -> ssl.SSLContext:
    """A dialler's TLS that is not ours.

    It may show no certificate, and trusts the consortium's authority.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(folder() / "good" / "ca.pem")
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    change(context)
    return context


def server_context(shown: Identity, change: Change = lambda _: None) -> ssl.SSLContext:
    """A listener's TLS that is not ours: it asks nobody for a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    change(context)
    return context
