"""`tacit`, which stops after so many batches and waits to be killed or stopped.

Batches are small. TACIT_TEST_PAUSE_AFTER says after how many it stops; without it, it goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from tacit.cli.main import main
from tacit.vertical import transfer
from tacit.vertical.party import Party

PAUSED = "paused"
spread = Party._spread


async def pausing(self: Party, *inputs: Any) -> bytes:
    result = await spread(self, *inputs)
    elements = int(os.environ["TACIT_TEST_PAUSE_AFTER"]) * transfer.BATCH
    if self.done >= elements:
        sys.stderr.write(f"{PAUSED}\n")
        sys.stderr.flush()
        await asyncio.get_running_loop().create_future()  # for ever
    return result


if __name__ == "__main__":
    # A process that was started in the background ignores interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    transfer.BATCH = 64
    if "TACIT_TEST_PAUSE_AFTER" in os.environ:
        Party._spread = pausing  # type: ignore[method-assign]
    main()
