"""Why TLS refused a connection, in words that a party can act on."""

from __future__ import annotations

import ssl

from tacit.channel.frames import ChannelError

NAMELESS = (
    "showed a certificate without a party's name, or with several; make it with: tacit cert issue"
)
OTHER_KEY = (
    "showed a certificate for another key than consortium.yaml has for {party}; "
    "compare its key fingerprint: tacit cert show"
)
SHOWED_EXPIRED = "showed a certificate that has expired"
SHOWED_EARLY = "showed a certificate that is not valid yet (is a clock wrong?)"
SHOWED_FOREIGN = "showed a certificate from another authority than our ca.pem"
REFUSED = "refused our certificate"
REFUSED_EXPIRED = f"{REFUSED}, which has expired; renew it with: tacit cert issue"
REFUSED_FOREIGN = f"{REFUSED}, which is from another authority than its own; compare ca.pem"
OLDER_TLS = "speaks an older TLS than 1.3"
NO_TLS = "does not speak TLS"

# How OpenSSL names the reasons, and our words for them.
REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "showed no certificate",
    "certificate has expired": SHOWED_EXPIRED,
    "certificate is not yet valid": SHOWED_EARLY,
    "self-signed certificate in certificate chain": SHOWED_FOREIGN,
    "self-signed certificate": SHOWED_FOREIGN,
    "unable to get local issuer certificate": SHOWED_FOREIGN,
    "certificate signature failure": SHOWED_FOREIGN,
    "CERTIFICATE_REQUIRED": "refused us, since we showed no certificate",
    "ALERT_CERTIFICATE_EXPIRED": REFUSED_EXPIRED,
    "ALERT_UNKNOWN_CA": REFUSED_FOREIGN,
    "ALERT_BAD_CERTIFICATE": REFUSED,
    "ALERT_DECRYPT_ERROR": REFUSED_FOREIGN,
    "UNSUPPORTED_PROTOCOL": OLDER_TLS,
    "PROTOCOL_VERSION": OLDER_TLS,
    "WRONG_VERSION_NUMBER": NO_TLS,
    "HTTP_REQUEST": NO_TLS,
}


class UnprovenError(ConnectionError):
    """Somebody answered who did not prove to be the peer: a proxy, a stranger, or a liar.

    So it says nothing about the peer, and ends nothing.
    """


# What a peer says once both have proved who they are; anything else may be anybody's.
ALERTS = (
    "CERTIFICATE_REQUIRED",
    "ALERT_CERTIFICATE",
    "ALERT_UNKNOWN_CA",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    "ALERT_DECRYPT_ERROR",
)


def ending(error: ssl.SSLError, peer: str) -> Exception:
    """Why an established stream ends: the peer's own refusal, or a connection that broke."""
    reason = error.reason or ""
    if any(mark in reason for mark in ALERTS):
        return translated(error, peer)
    return ConnectionResetError("the line carried something that is not the peer's")


def translated(error: ssl.SSLError, peer: str = "") -> Exception:
    """The error in words; one that is about certificates will not go away by trying again."""
    message = f"{error.reason or ''} {getattr(error, 'verify_message', '')} {error}"
    if "Hostname mismatch" in message:
        return ChannelError(mismatch(peer))
    for mark, words in REASONS.items():
        if mark in message:
            return ChannelError(words)
    text = (error.reason or str(error)).lower().replace("_", " ")
    if isinstance(error, ssl.SSLCertVerificationError):
        return ChannelError(text)
    return ConnectionResetError(text)


def mismatch(wanted: str) -> str:
    """Of a side that has another name than the party that we dialled, or none."""
    return f"is not {wanted}, according to its certificate; check the address"
