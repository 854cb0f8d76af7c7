"""Who the other side of a TLS connection is, by the certificate that it has shown.

TLS itself has checked that the certificate is valid, and from the consortium's authority.
"""

from __future__ import annotations

from collections.abc import Mapping

from tacit.channel.frames import ChannelError
from tacit.channel.party_names import PARTY_NAME
from tacit.channel.tls_reasons import NAMELESS, OTHER_KEY, mismatch
from tacit.channel.x509_files import certificate_from_der, key_fingerprint, sole_name


def identify(der: bytes, pins: Mapping[str, str], wanted: str | None = None) -> str:
    """The one party that this certificate is for, which is the one that we dialled, if we did.

    `pins` are fingerprints of parties' keys: a party of these shows no other key. A ChannelError
    says why the certificate is refused, in words for both sides.
    """
    try:
        certificate = certificate_from_der(der)
    except ValueError:
        raise ChannelError("showed a certificate that cannot be read") from None
    name = sole_name(certificate)
    if not PARTY_NAME.fullmatch(name):
        raise ChannelError(NAMELESS)
    if wanted is not None and name != wanted:
        raise ChannelError(mismatch(wanted))
    pin = pins.get(name)
    if pin is not None and key_fingerprint(certificate.public_key()) != pin:
        raise ChannelError(OTHER_KEY.format(party=name))
    return name
