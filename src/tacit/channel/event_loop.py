"""Runs a coroutine from code that is not one: a script, or a notebook, whose loop is running."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
GLANCE = 0.2  # seconds from one look for an interrupt to the next, in a notebook


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Runs it to its end, in a notebook too; an interrupt stops it in order."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _complete_in_thread(work)


def _complete_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Runs it in a thread with a loop of its own.

    An interrupt may come at any moment, also while the thread starts.
    """
    outcome = Future[T]()
    stop = Future[None]()
    thread = threading.Thread(target=_run_apart, args=(work, outcome, stop))
    try:
        thread.start()
        return _await(outcome)
    except KeyboardInterrupt:
        if outcome.cancel():  # the thread has not begun, and will find that it need not
            work.close()
        else:
            stop.set_result(None)
            wait([outcome])
        raise


def _run_apart(work: Coroutine[Any, Any, T], outcome: Future[T], stop: Future[None]) -> None:
    """The thread's side: the work until it ends, or until `stop` is done."""

    async def main() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def cancel(_: Future[None]) -> None:
            with suppress(RuntimeError):  # the loop has closed: the work ended in the meantime
                loop.call_soon_threadsafe(task.cancel)

        stop.add_done_callback(cancel)  # at once, if it is done
        return await work

    if not outcome.set_running_or_notify_cancel():
        return
    try:
        outcome.set_result(asyncio.run(main()))
    except BaseException as error:
        outcome.set_exception(error)


def _await(outcome: Future[T]) -> T:
    """Its result. Waits are short, since a signal that comes just before one does not end it."""
    while not outcome.done():
        wait([outcome], timeout=GLANCE)
    return outcome.result()
