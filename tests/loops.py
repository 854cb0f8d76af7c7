"""Runs coroutines as tests want them: nothing hangs, and nothing is left over."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
GLANCE = 0.001  # seconds between two looks whether something has happened


def run(work: Coroutine[Any, Any, T], limit: float = 120.0) -> T:
    """Its result. It leaves no task behind, and no exception that nobody has seen.

    The limit is for work that would hang for ever; no test should depend on it otherwise.
    """
    unseen: list[Any] = []
    gc.freeze()  # what there is now need not be looked through when this work's leavings are

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
        gc.unfreeze()
        assert not unseen, unseen


async def until(condition: Callable[[], object]) -> None:
    """Waits for something to happen, however long that takes; `run` ends what hangs."""
    while not condition():
        await asyncio.sleep(GLANCE)


async def stopped(task: asyncio.Task[Any]) -> BaseException | None:
    """Stops a task and waits for its end; what it ended with, if that was an error."""
    task.cancel()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    return outcome if isinstance(outcome, BaseException) else None
