"""`tacit`, with its TLS secrets written to the file that TACIT_TEST_KEYLOG names.

For tests of what leaves a party.
"""

from __future__ import annotations

import os
import ssl
from typing import Any

from tacit.channel import tls
from tacit.cli.main import main

make_context = tls.make_context


def with_keylog(*inputs: Any) -> ssl.SSLContext:
    context = make_context(*inputs)
    context.keylog_filename = os.environ["TACIT_TEST_KEYLOG"]
    return context


if __name__ == "__main__":
    tls.make_context = with_keylog
    main()
