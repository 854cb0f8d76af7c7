"""`tacit`, which stops at a moment and waits to be killed or stopped.

Batches are small. TACIT_TEST_PAUSE_AT names the moment; without it, it goes on:

    batch 17  it has encrypted 17 batches
    terms 1   it has sent its terms, and has not read those of the other
    tags 32   it has read all but the 32nd batch of tags
    done 1    its rows are in a temporary file, and the other does not know that
    file 1    all parties have said that they are done, and its file is not in its place yet
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from typing import Any

from tacit.channel.endpoint import DONE
from tacit.channel.link import Link
from tacit.cli.main import main
from tacit.core.files import Staged
from tacit.vertical import transfer
from tacit.vertical.party import Party

MOMENT = os.environ.get("TACIT_TEST_PAUSE_AT", "")
BATCH = 64
PAUSED = "paused"
spread = Party._spread
send = Link.send
receive = Link.receive
received: Counter[str] = Counter()  # messages by their name, the awaited one included


def say_so() -> None:
    sys.stderr.write(f"{PAUSED}\n")
    sys.stderr.flush()


async def pause_for_ever() -> None:
    say_so()
    await asyncio.get_running_loop().create_future()


async def pausing_spread(self: Party, *inputs: Any) -> bytes:
    result = await spread(self, *inputs)
    batches = int(MOMENT.removeprefix("batch "))
    if self.done >= batches * BATCH:
        await pause_for_ever()
    return result


async def pausing_receive(self: Link, name: str) -> bytes:
    received[name] += 1
    if f"{name.strip('()')} {received[name]}" == MOMENT:
        await pause_for_ever()
    return await receive(self, name)


async def pausing_send(self: Link, name: str, data: bytes) -> None:
    if name == DONE:
        await pause_for_ever()
    await send(self, name, data)


def pausing_publish(self: Staged) -> None:
    say_so()
    while True:  # in a thread of its own
        time.sleep(1)


def pause_at(moment: str) -> None:
    kind = moment.split()[0]
    if kind == "batch":
        Party._spread = pausing_spread  # type: ignore[method-assign]
    elif kind == "done":
        Link.send = pausing_send  # type: ignore[method-assign]
    elif kind == "file":
        Staged.publish = pausing_publish  # type: ignore[method-assign]
    else:
        Link.receive = pausing_receive  # type: ignore[method-assign]


if __name__ == "__main__":
    # A process that was started in the background ignores interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    transfer.BATCH = BATCH
    if MOMENT:
        pause_at(MOMENT)
    main()
