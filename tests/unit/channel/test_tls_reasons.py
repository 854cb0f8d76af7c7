"""Why a connection ended, as the parties are told it."""

from __future__ import annotations

import ssl

from tacit.channel.tls_reasons import translated


def test_bytes_that_were_changed_on_the_way_are_a_broken_line_and_are_sent_again() -> None:
    error = ssl.SSLError(1, "bad record mac")
    error.reason = "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"
    assert isinstance(translated(error), ConnectionResetError)
