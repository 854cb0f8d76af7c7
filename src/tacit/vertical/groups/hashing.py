"""Uniform bytes from messages: `expand_message_xmd` of RFC 9380, section 5.3.1."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from tacit.core.errors import StudyError

LONGEST_TAG = 255
LONGEST = 255  # blocks


def expand_message_xmd(
    messages: Iterable[bytes], tag: bytes, size: int, digest: str = "sha512"
) -> list[bytes]:
    """For each message, `size` bytes as a random function of the tag and the message.

    >>> expand_message_xmd([b"abc"], b"QUUX-V01-CS02-with-expander-SHA512-256", 32)[0].hex()
    '0da749f12fbe5483eb066a5f595055679b976e93abe9be6f0f6318bce7aca8dc'
    """
    plain = hashlib.new(digest)
    blocks = -(-size // plain.digest_size)
    if not 0 < blocks <= LONGEST:
        raise StudyError(
            f"expected 1 to {LONGEST * plain.digest_size} bytes of {digest}, got {size}"
        )
    ending = tag_prime(tag, digest)
    padded = hashlib.new(digest, bytes(plain.block_size))  # Z_pad, absorbed once for all messages
    middle = size.to_bytes(2, "big") + b"\0" + ending
    first_ending, *later_endings = [bytes([i]) + ending for i in range(1, blocks + 1)]
    expanded = []
    for message in messages:
        state = padded.copy()
        state.update(message + middle)
        b_0 = state.digest()
        state = plain.copy()
        state.update(b_0 + first_ending)
        b_i = state.digest()
        uniform = b_i
        for later_ending in later_endings:
            state = plain.copy()
            state.update(_xor(b_0, b_i) + later_ending)
            b_i = state.digest()
            uniform += b_i
        expanded.append(uniform[:size])
    return expanded


def tag_prime(tag: bytes, digest: str) -> bytes:
    """The tag with its length; one that is too long is hashed (section 5.3.3)."""
    if not tag:
        raise StudyError("a hash to a group needs a tag; expected at least 1 byte, got none")
    if len(tag) > LONGEST_TAG:
        tag = hashlib.new(digest, b"H2C-OVERSIZE-DST-" + tag).digest()
    return tag + bytes([len(tag)])


def _xor(a: bytes, b: bytes) -> bytes:
    number = int.from_bytes(a, "big") ^ int.from_bytes(b, "big")
    return number.to_bytes(len(a), "big")
