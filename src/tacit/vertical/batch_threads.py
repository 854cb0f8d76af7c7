"""Threads that share the work on a batch of elements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self


class BatchThreads:
    """As many threads as cores make sense: a group's operations release Python's lock."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    async def spread(self, items: Any, size: int, work: Callable[[Any], bytes]) -> bytes:
        """What `work` makes of all items, in their order; `items` has `size` entries for each."""
        loop = asyncio.get_running_loop()
        count = len(items) // size
        step = -(-count // self.threads) * size
        shares = [items[start : start + step] for start in range(0, len(items), step)]
        results = [loop.run_in_executor(self._pool, work, share) for share in shares]
        return b"".join(await asyncio.gather(*results))
