"""A party of a session that lasts, as a process of its own.

Its only argument is its part, in JSON. After every exchange it writes a line in JSON: the number,
its memory, its open files and what it has sent; at the end, one with the digest of all.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from chains import Chain

from tacit.channel.checkpoints import CheckpointFolder
from tacit.channel.consortium import Address
from tacit.channel.credentials import Credentials
from tacit.channel.endpoint import Endpoint
from tacit.channel.opening import hold
from tacit.channel.session import Session
from tacit.channel.timing import Timing
from tacit.channel.tls import TlsCarrier
from tacit.core.events import Event

MEASURED = 20  # one of so many exchanges


def memory() -> int:
    """Bytes of this process that are in memory, without those that nobody uses any more."""
    gc.collect()
    with suppress(OSError, AttributeError):  # another system's library
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    match = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


def write(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def tell(event: Event) -> None:
    text = getattr(event, "text", str(event))
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def make_carrier(part: dict[str, Any]) -> TlsCarrier:
    folder = Path(part["certificates"])
    name = part["me"]
    credentials = Credentials.read(
        folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key"
    )
    connect = {peer: Address("127.0.0.1", port) for peer, port in part["connect"].items()}
    listen = Address("127.0.0.1", part["listen"]) if part["listen"] else None
    return TlsCarrier(credentials, listen=listen, connect=connect, proxy=part["proxy"])


async def take_part(part: dict[str, Any]) -> str:
    """The digest of all messages."""
    me = part["me"]
    parties = tuple(part["parties"])
    peers = [party for party in parties if party != me]
    timing = Timing(beat=part["beat"])
    endpoint = Endpoint(
        me, peers, make_carrier(part), purpose="lasting", timing=timing, on_event=tell
    )
    chain = Chain(**part["chain"])

    used = memory()

    def note(number: int) -> None:
        nonlocal used
        if number % MEASURED == 0:
            used = memory()
        files = len(os.listdir("/proc/self/fd"))
        sent = sum(link.sent for link in endpoint.links.values())
        write(exchange=number, memory=used, files=files, sent=sent)

    async def program(session: Session) -> str:
        return await chain.run(session, note)

    checkpoints = CheckpointFolder(Path("checkpoints"))
    return await hold(endpoint, program, parties, chain.protocol, checkpoints=checkpoints)


if __name__ == "__main__":
    write(digest=asyncio.run(take_part(json.loads(sys.argv[1]))))
