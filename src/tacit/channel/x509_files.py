"""Keys, certificates and requests for them, as they are read from PEM files: X.509.

The package cryptography is imported here and in `x509_making.py`, when it is first needed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tacit.channel.fingerprints import grouped
from tacit.channel.passphrases import Passphrase, encoded_new, passphrase_for
from tacit.core.errors import DataError, MissingDependencyError, printable, shown
from tacit.core.files import read_at_most

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

    PublicKey: TypeAlias = CertificatePublicKeyTypes
    X509Certificate: TypeAlias = x509.Certificate

RSA_BITS = 2048  # of an RSA key that comes in a request, at least
CURVES = ("secp256r1", "secp384r1", "secp521r1")
MARK = b"-----BEGIN"  # of a PEM block
LABEL = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----")
KEY_LABELS = ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY")
REQUEST_LABELS = ("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST")


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


def private_pem(key: Any, passphrase: str | None = None) -> bytes:
    """A private key as its file holds it, encrypted if there is a passphrase."""
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        KeySerializationEncryption,
        NoEncryption,
        PrivateFormat,
    )

    encryption: KeySerializationEncryption = NoEncryption()
    if passphrase is not None:
        encryption = BestAvailableEncryption(encoded_new(passphrase))
    content: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return content


def read_key(path: Path, passphrase: Passphrase = None) -> Any:
    """The private key in a file that is its owner's alone; its passphrase if it has one."""
    content = _key_content(path)
    key = _load_key(path, content, None)
    return _load_key(path, content, passphrase_for(path, passphrase)) if key is None else key


def read_open_key(path: Path) -> Any:
    """The private key in a file; None where it is encrypted."""
    return _load_key(path, _key_content(path), None)


def _key_content(path: Path) -> bytes:
    content = _read(path, "it stays where it was made, or is handed over with the certificate")
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise DataError(
            f"{path} is a private key that other users can open; "
            f"run: chmod 600 {shlex.quote(str(path))}"
        )
    return _only_block(path, content, "private key", KEY_LABELS)


def _load_key(path: Path, content: bytes, passphrase: bytes | None) -> Any:
    """The key; None where it is encrypted and there is no passphrase."""
    from cryptography.hazmat.primitives import serialization

    problem = "is damaged, or not a private key; expected a PEM file"
    try:
        return serialization.load_pem_private_key(content, passphrase)
    except TypeError:
        if passphrase is None:
            return None
        problem = "has a passphrase, and an empty one was given"
    except Exception:  # ValueError and several of the library's own
        if passphrase is not None:
            problem = "has another passphrase, or is damaged"
    raise DataError(f"{path} {problem}")


def is_same_key(first: PublicKey, second: PublicKey) -> bool:
    """Whether two public keys are the same."""
    return _public_der(first) == _public_der(second)


def key_fingerprint(public: PublicKey) -> str:
    """The SHA-256 of a public key as certificates hold it, in groups that can be read out."""
    return grouped(hashlib.sha256(_public_der(public)).digest())


def _public_der(public: PublicKey) -> bytes:
    """A public key as certificates hold it."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


# reading certificates and requests


def read_certificate(path: Path) -> X509Certificate:
    """The one certificate in a PEM file."""
    need_cryptography()
    command = "" if path.stem == "ca" else f" (tacit cert issue {path.stem})"
    content = _read(path, f"ask the party that has the consortium's ca.key for it{command}")
    block = _only_block(path, content, "certificate", ("CERTIFICATE",))
    try:
        return _certificate(block)
    except Exception as error:  # ValueError and several of the library's own
        reason = shown(str(error), most=60)
        raise DataError(
            f"{path} is damaged, or not a certificate ({reason}); expected a PEM file"
        ) from None


def certificate_from_der(der: bytes) -> X509Certificate:
    """The certificate that a side of a connection has shown; ValueError where it is damaged."""
    from cryptography import x509

    try:
        return _checked(x509.load_der_x509_certificate(der))
    except Exception:  # ValueError and several of the library's own
        raise ValueError("a damaged certificate") from None


def certificate_der(certificate: X509Certificate) -> bytes:
    """The certificate as TLS takes it."""
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)


def certificate_pem(certificate: X509Certificate) -> bytes:
    """The certificate as a file holds it."""
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _certificate(pem: bytes) -> X509Certificate:
    from cryptography import x509

    return _checked(x509.load_pem_x509_certificate(pem))


def _checked(certificate: X509Certificate) -> X509Certificate:
    """The certificate, each part of it read: the library reads them when they are asked for."""
    _ = certificate.extensions
    _ = certificate.subject.rfc4514_string()
    _ = certificate.issuer.rfc4514_string()
    _ = certificate.not_valid_before_utc
    _ = certificate.not_valid_after_utc
    _ = _public_der(certificate.public_key())
    return certificate


def read_request(path: Path, party: str) -> PublicKey:
    """The public key in the party's request for a certificate."""
    from cryptography import x509

    content = _read(path, f"the party makes it: tacit cert request {party}")
    block = _only_block(path, content, "certificate request", REQUEST_LABELS)
    try:
        request = x509.load_pem_x509_csr(block)
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
        wanted = " and ".join(map(shown, names)) or "no name"
        raise DataError(
            f"{path} asks for {wanted}, not for {party!r}; "
            "issue it under its own name, or get a new request"
        )
    if not is_strong(key):
        raise DataError(
            f"{path} is for a key that is too weak; "
            f"the party has to make a new one: tacit cert request {party}"
        )
    return key


def is_strong(key: PublicKey) -> bool:
    """Whether TLS takes it, and it is not too short."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, rsa.RSAPublicKey):
        return key.key_size >= RSA_BITS
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key.curve.name in CURVES
    return isinstance(key, ed25519.Ed25519PublicKey)


def party_name(certificate: X509Certificate) -> str:
    """The names that a certificate is for; an authority's common name where it has no DNS name."""
    names = _dns_names(certificate) or _common_names(certificate.subject)
    return printable(", ".join(names))


def organisation(certificate: X509Certificate) -> str:
    """The consortium that a certificate belongs to."""
    from cryptography.x509.oid import NameOID

    entries = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return printable(str(entries[0].value)) if entries else ""


def fingerprint(certificate: X509Certificate) -> str:
    """The SHA-256 of the certificate, in hex."""
    from cryptography.hazmat.primitives import hashes

    return certificate.fingerprint(hashes.SHA256()).hex()


def sole_name(certificate: X509Certificate) -> str:
    """The one name by which TLS knows the certificate's owner.

    Nothing where it has several, or names of another kind beside it, such as an address.
    """
    names = _dns_names(certificate)
    return names[0] if len(names) == 1 and len(_alternative_names(certificate)) == 1 else ""


def _dns_names(certificate: X509Certificate) -> list[str]:
    from cryptography import x509

    names = _alternative_names(certificate)
    return [name.value for name in names if isinstance(name, x509.DNSName)]


def _alternative_names(certificate: X509Certificate) -> list[x509.GeneralName]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return list(names)


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


def _only_block(path: Path, content: bytes, what: str, labels: Sequence[str]) -> bytes:
    """The file's one PEM block, of one of these labels; text around it does not count."""
    blocks = content.count(MARK)
    if blocks > 1:
        raise DataError(
            f"{path} holds {blocks} PEM blocks; expected one {what} and nothing else; "
            "get the file again"
        )
    label = LABEL.search(content)
    if label is None or label[1].decode() not in labels:
        hint = ""
        if label is not None:
            label_text = label[1].decode().lower()
            article = "an" if label_text[0] in "aeiou" else "a"
            hint = f" (it holds {article} {label_text})"
        raise DataError(f"{path} is damaged, or not a {what}{hint}; expected a PEM file")
    return content[label.start() :]


def _read(path: Path, hint: str) -> bytes:
    try:
        return read_at_most(path)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; {hint}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
