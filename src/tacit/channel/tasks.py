"""Work at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def together(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """All results; the first error ends the rest, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def stop(*tasks: asyncio.Task[Any]) -> None:
    """Ends tasks and waits for their end; what they raise on the way is dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def to_the_end(work: Coroutine[Any, Any, Any]) -> None:
    """Work that a cancellation has to wait for, such as a file that is being written."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    task.result()
