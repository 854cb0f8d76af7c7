"""Runs coroutines as tests want them: nothing hangs, and nothing is left over."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
gc.freeze()  # what was imported stays; each test collects its own only


def run(work: Coroutine[Any, Any, T], limit: float = 30.0) -> T:
    """Its result. It has to end in time, leave no task behind, and no exception that nobody has seen."""
    unseen: list[Any] = []

    async def main() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        try:
            async with asyncio.timeout(limit):
                return await work
        finally:
            for _ in range(3):  # transports that were aborted close with the next turns of the loop
                await asyncio.sleep(0)
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            gc.collect()
            await asyncio.sleep(0)
            assert not left, f"left over: {left}"

    try:
        return asyncio.run(main())
    finally:
        gc.collect()
        assert not unseen, unseen
