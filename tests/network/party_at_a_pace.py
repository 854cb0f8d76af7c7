"""`tacit`, whose comparison takes a known time at least, however fast the machine: small batches, a pause in each."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from tacit.cli.main import main
from tacit.vertical import psi

spread = psi.Party._spread


async def unhurried(self: psi.Party, *inputs: Any) -> bytes:
    await asyncio.sleep(float(os.environ["TACIT_TEST_PACE"]))
    return await spread(self, *inputs)


if __name__ == "__main__":
    psi.BATCH = 64
    psi.Party._spread = unhurried  # type: ignore[method-assign]
    main()
