"""Work in threads, each with a worker that no other thread uses at the same time.

>>> list(map_in_threads(["a", "b"], lambda worker, item: item * 2, [1, 2, 3]))
[2, 4, 6]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

Worker = TypeVar("Worker")
Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_threads(
    workers: Sequence[Worker], task: Callable[[Worker, Item], Result], items: Sequence[Item]
) -> Iterator[Result]:
    """What `task` makes of each item, in order, with one thread per worker."""
    free: SimpleQueue[Worker] = SimpleQueue()
    for worker in workers:
        free.put(worker)

    def run(item: Item) -> Result:
        worker = free.get()
        try:
            return task(worker, item)
        finally:
            free.put(worker)

    with ThreadPoolExecutor(len(workers)) as threads:
        yield from threads.map(run, items)
