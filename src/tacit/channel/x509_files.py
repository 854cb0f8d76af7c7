"""Keys, certificates and requests for them, as PEM files: X.509 by the package cryptography.

The package is imported in this module alone, when it is first needed.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tacit.core.errors import DataError, MissingDependencyError, shown

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

    PublicKey: TypeAlias = CertificatePublicKeyTypes
    X509Certificate: TypeAlias = x509.Certificate
    Builder: TypeAlias = x509.CertificateBuilder | x509.CertificateSigningRequestBuilder

RSA_BITS = 2048  # of an RSA key that comes in a request, at least
CURVES = ("secp256r1", "secp384r1", "secp521r1")
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


def need_cryptography() -> None:
    """Refuses to go on without the package."""
    try:
        import cryptography.x509  # noqa: F401
    except ImportError:
        raise MissingDependencyError(
            'certificates need a package; run: pip install "tacit[psi]"'
        ) from None


# keys


def generate_key() -> Any:
    """A new private key on the curve P-256."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def private_pem(key: Any) -> bytes:
    """A private key as its file holds it."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    content: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return content


def read_key(path: Path) -> Any:
    """The private key in a file that is its owner's alone."""
    from cryptography.hazmat.primitives import serialization

    content = _read(path, "it stays where it was made, or is handed over with the certificate")
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise DataError(
            f"{path} is a private key that other users can open; "
            f"run: chmod 600 {shlex.quote(str(path))}"
        )
    try:
        return serialization.load_pem_private_key(content, password=None)
    except TypeError:
        raise DataError(
            f"{path} is encrypted; decrypt it: openssl pkey -in {path} -out NEW.key"
        ) from None
    except Exception:  # ValueError and several of the library's own
        raise DataError(f"{path} is damaged, or not a private key; expected a PEM file") from None


def is_same_key(first: PublicKey, second: PublicKey) -> bool:
    """Whether two public keys are the same."""
    return _public_der(first) == _public_der(second)


def _public_der(public: PublicKey) -> bytes:
    """A public key as certificates hold it."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


# making certificates and requests


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


# reading certificates and requests


def read_certificate(path: Path) -> X509Certificate:
    """The certificate in a PEM file."""
    need_cryptography()
    from cryptography import x509

    command = "" if path.stem == "ca" else f" (tacit cert issue {path.stem})"
    content = _read(path, f"ask the party that has the consortium's ca.key for it{command}")
    try:
        certificate = x509.load_pem_x509_certificate(content)
        _ = certificate.extensions  # each is read, and may be damaged, when it is asked for
        _ = certificate.subject
        _ = certificate.issuer
        _ = certificate.public_key()
    except Exception as error:  # ValueError and several of the library's own
        hint = f"({shown(str(error), most=60)})"
        if b"PRIVATE KEY" in content:
            hint = "it holds a private key"
        raise DataError(
            f"{path} is damaged, or not a certificate {hint}; expected a PEM file"
        ) from None
    return certificate


def read_request(path: Path, party: str) -> PublicKey:
    """The public key in the party's request for a certificate."""
    from cryptography import x509

    content = _read(path, f"the party makes it: tacit cert request {party}")
    try:
        request = x509.load_pem_x509_csr(content)
        names = _common_names(request.subject)
        key = request.public_key()
        valid = request.is_signature_valid
    except Exception:  # ValueError and several of the library's own
        raise DataError(
            f"{path} is damaged, or not a certificate request; expected the .csr of a party"
        ) from None
    if not valid:
        raise DataError(
            f"{path} is not signed with its own key; "
            f"the party has to make a new one: tacit cert request {party}"
        )
    if names != [party]:
        wanted = " and ".join(map(repr, names)) or "no name"
        raise DataError(
            f"{path} asks for {wanted}, not for {party!r}; "
            "issue it under its own name, or get a new request"
        )
    if not _is_strong(key):
        raise DataError(
            f"{path} is for a key that is too weak; "
            f"the party has to make a new one: tacit cert request {party}"
        )
    return key


def _is_strong(key: PublicKey) -> bool:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, rsa.RSAPublicKey):
        return key.key_size >= RSA_BITS
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key.curve.name in CURVES
    return isinstance(key, ed25519.Ed25519PublicKey)


def party_name(certificate: X509Certificate) -> str:
    """The party that a certificate is for; an authority's common name where it has no DNS name."""
    names = dns_names(certificate) or _common_names(certificate.subject)
    return names[0] if names else ""


def organisation(certificate: X509Certificate) -> str:
    """The consortium that a certificate belongs to."""
    from cryptography.x509.oid import NameOID

    entries = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return str(entries[0].value) if entries else ""


def fingerprint(certificate: X509Certificate) -> str:
    """The SHA-256 of the certificate, in hex."""
    from cryptography.hazmat.primitives import hashes

    return certificate.fingerprint(hashes.SHA256()).hex()


def dns_names(certificate: X509Certificate) -> list[str]:
    """The names by which TLS knows the certificate's owner."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.DNSName)


def is_authority(certificate: X509Certificate) -> bool:
    """Whether it may sign other certificates."""
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def is_signed_by(certificate: X509Certificate, authority: X509Certificate) -> bool:
    """Whether this authority has signed it."""
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _common_names(subject: x509.Name) -> list[str]:
    from cryptography.x509.oid import NameOID

    return [str(entry.value) for entry in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]


def _read(path: Path, hint: str) -> bytes:
    from tacit.core.files import read_at_most

    try:
        return read_at_most(path)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; {hint}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
