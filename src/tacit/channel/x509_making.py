"""Certificates and requests as they are made: X.509 by the package cryptography."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from tacit.channel.x509_files import organisation

if TYPE_CHECKING:
    from cryptography import x509

    from tacit.channel.x509_files import PublicKey, X509Certificate

    Builder: TypeAlias = x509.CertificateBuilder | x509.CertificateSigningRequestBuilder

KEY_USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True)
class Validity:
    """From when to when a certificate holds."""

    begin: datetime
    end: datetime


def authority_pem(consortium: str, name: str, key: Any, validity: Validity) -> bytes:
    """A new authority's certificate, signed with its own key."""
    from cryptography import x509

    subject = _subject(consortium, name)
    public = key.public_key()
    builder = _builder(subject, subject, public, validity)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage("key_cert_sign", "crl_sign"), critical=True)
    builder = _issued_by(builder, public)
    return _signed(builder, key)


@dataclass(frozen=True)
class Issuer:
    """An authority with the key that it signs with."""

    certificate: X509Certificate
    key: Any

    def party_pem(self, party: str, public: PublicKey, validity: Validity) -> bytes:
        """A party's certificate for its public key."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        subject = _subject(organisation(self.certificate), party)
        builder = _builder(subject, self.certificate.subject, public, validity)
        no_authority = x509.BasicConstraints(ca=False, path_length=None)
        builder = builder.add_extension(no_authority, critical=True)
        builder = builder.add_extension(_key_usage("digital_signature"), critical=True)
        both_sides = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both_sides), critical=False)
        builder = builder.add_extension(_dns_name(party), critical=False)
        builder = _issued_by(builder, self.key.public_key())
        return _signed(builder, self.key)


def request_pem(party: str, key: Any) -> bytes:
    """A party's request for a certificate, signed with its key."""
    from cryptography import x509

    builder = x509.CertificateSigningRequestBuilder(_subject(None, party))
    builder = builder.add_extension(_dns_name(party), critical=False)
    return _signed(builder, key)


def _subject(consortium: str | None, name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    entries = []
    if consortium:
        entries.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, consortium))
    entries.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
    return x509.Name(entries)


def _builder(
    subject: x509.Name, issuer: x509.Name, public: PublicKey, validity: Validity
) -> x509.CertificateBuilder:
    from cryptography import x509

    serial_number = x509.random_serial_number()
    builder = x509.CertificateBuilder(
        issuer, subject, public, serial_number, validity.begin, validity.end
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    return builder.add_extension(identifier, critical=False)


def _issued_by(builder: x509.CertificateBuilder, signer: Any) -> x509.CertificateBuilder:
    from cryptography import x509

    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer)
    return builder.add_extension(identifier, critical=False)


def _dns_name(party: str) -> x509.SubjectAlternativeName:
    from cryptography import x509

    return x509.SubjectAlternativeName([x509.DNSName(party)])


def _key_usage(*uses: str) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(**{use: use in uses for use in KEY_USES})


def _signed(builder: Builder, key: Any) -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    has_digest = isinstance(key, ed25519.Ed25519PrivateKey)
    signed = builder.sign(key, None if has_digest else hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)
