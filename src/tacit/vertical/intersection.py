"""Whom parties have in common: the protocol between processes of several machines, or all of it in one."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.channel.consortium import Address, Consortium
from tacit.channel.endpoint import Endpoint, Program, Timing
from tacit.channel.link import Link
from tacit.channel.loopback import converse
from tacit.channel.meeting import meet
from tacit.core.errors import DataError, StudyError, shown
from tacit.core.events import Advanced, Event, OnEvent, ignore
from tacit.core.fields import check_names, conform, field_types
from tacit.data.readers import read_table
from tacit.vertical.groups.group import Group
from tacit.vertical.identifiers import Identifiers, Spelling, read_identifiers
from tacit.vertical.psi import Party, intersect
from tacit.vertical.terms import Budget, Terms, agree

T = TypeVar("T")
PURPOSE = "psi"
UNNAMED = 'name yourself: party="alice"; or give {name: table, ...} to try it out in one process'
LONGEST = 100  # bytes of the word for what is compared
GLANCE = 0.2  # seconds from one look for an interrupt to the next, in a notebook


@dataclass(frozen=True, eq=False)
class Intersection:
    """What one party has learnt.

    `rows` are its rows of the people that all have, in the same order at every party that learns them; where an
    identifier is in several rows, the first. It is None where the party learns the size alone, `size` where not even
    that. `sizes` says how many different identifiers each party brought.
    """

    party: str
    size: int | None
    rows: NDArray[np.int64] | None = field(repr=False)
    sizes: Mapping[str, int]
    total: int
    missing: int  # rows without an identifier
    repeated: int  # rows whose identifier an earlier row has
    session: str  # the same on all sides
    sent: int  # bytes, headers included
    received: int
    seconds: float

    def of(self, table: Any) -> Any:
        """The party's rows of the common people, in the common order."""
        if self.rows is None:
            raise StudyError(f"{self.party} has not learnt which rows are common")
        if len(table) != self.total:
            raise DataError(
                f"the table has {len(table)} rows, and the one that was compared {self.total}"
            )
        return table.iloc[self.rows]


def psi(
    data: Any,
    key: str | Sequence[str],
    *,
    party: str | None = None,
    consortium: str | Path | Consortium | None = None,
    others: Sequence[str] = (),
    listen: str | None = None,
    connect: str | None = None,
    learns: str = "all",
    size_only: bool = False,
    column: str | None = None,
    group: str = "ristretto255",
    spelling: Spelling | Mapping[str, str] | None = None,
    most: int | None = None,
    patience: float = Timing.away,
    threads: int | None = None,
    on_event: OnEvent = ignore,
    conclude: Callable[[Intersection], None] = lambda _: None,
    publish: Callable[[], None] = lambda: None,
) -> Any:
    """See `tacit.psi`. `conclude` gets the result before the other parties hear that it is safe; where a party has to
    start anew, it gets the new one."""
    question = _question(key, column, group, spelling)
    reveal: Literal["rows", "size"] = "size" if size_only else "rows"
    learner = None if learns == "all" else learns
    threads = conform(cores() if threads is None else threads, int, "threads")
    if threads < 1:
        raise StudyError(f"threads: expected 1 or more, got {threads}")
    if party is None:
        if consortium or others or listen or connect:
            raise StudyError(UNNAMED)
        return _compare_here(data, (*question, reveal, learner), _keys(key), threads, on_event)
    others = [others] if isinstance(others, str) else others
    if most is not None and conform(most, int, "most") < 0:
        raise StudyError(f"most: expected 0 or more, got {most}")
    if not question[0].networked:
        raise StudyError(
            f"{group} is not secure, so it stays in one process; choose another group, or --local"
        )
    if not isinstance(consortium, Consortium):
        consortium = Consortium.find(Path(consortium).expanduser() if consortium else None)
    places = {
        "listen": listen and Address.parse(listen),
        "connect": connect and Address.parse(connect),
    }
    names, network = meet(consortium, party, others, **places)  # type: ignore[arg-type]
    terms = Terms(tuple(names), *question, reveal, learner)
    identifiers = _identifiers(party, data, terms, _keys(key))
    with ThreadPoolExecutor(threads) as pool:
        peers, timing = [name for name in names if name != party], Timing(away=patience)
        endpoint = Endpoint(
            party, peers, network, purpose=PURPOSE, timing=timing, on_event=on_event
        )
        program = _program(
            party,
            identifiers,
            terms,
            pool,
            threads,
            on_event,
            None if most is None else Budget(most),
        )
        return complete(endpoint.run(program, conclude, publish))


def _keys(key: str | Sequence[str]) -> tuple[str, ...]:
    keys = (key,) if isinstance(key, str) else tuple(key)
    if not keys or not all(isinstance(one, str) and one for one in keys):
        raise StudyError(f"key: expected a column's name or several, got {shown(key)}")
    return keys


def _question(
    key: str | Sequence[str],
    column: str | None,
    group: str,
    spelling: Spelling | Mapping[str, str] | None,
) -> tuple[Group, str, Spelling]:
    """The group, what is compared, and which spellings are the same."""
    column = column or "+".join(_keys(key))
    if not isinstance(column, str):
        raise StudyError(
            f"column: expected a word for what is compared, such as nin, got {shown(column)}"
        )
    if len(column.encode("utf-8", "surrogatepass")) > LONGEST:
        raise StudyError(
            f"{shown(column)} is too long a name for what is compared; give a shorter one (--as)"
        )
    if len(_keys(key)) > 1 and column != "+".join(_keys(key)):
        column += f" ({len(_keys(key))} columns)"  # another number of them never matches
    chosen = Group.build(group)
    chosen.check()
    if isinstance(spelling, Mapping):
        check_names(spelling, field_types(Spelling), "spelling")
        same: Any = {
            name: conform(value, field_types(Spelling)[name], name)
            for name, value in spelling.items()
        }
        spelling = Spelling(**same)
    if not isinstance(spelling, Spelling | None):
        raise StudyError(
            f'spelling: expected settings such as {{"case": "keep"}}, got {shown(spelling)}'
        )
    return chosen, column, spelling or Spelling()


def _compare_here(
    tables: Any, question: tuple[Any, ...], key: tuple[str, ...], threads: int, on_event: OnEvent
) -> dict[str, Intersection]:
    if not isinstance(tables, Mapping) or not all(isinstance(name, str) for name in tables):
        raise StudyError(UNNAMED)
    terms = Terms(tuple(tables), *question)
    with ThreadPoolExecutor(threads) as pool:
        programs = {
            name: _program(name, _identifiers(name, table, terms, key), terms, pool, threads, hear)
            for (name, table), hear in zip(
                tables.items(), _summed(on_event, len(tables)), strict=True
            )
        }
        return complete(converse(programs, purpose=PURPOSE))


def _summed(on_event: OnEvent, parties: int) -> list[OnEvent]:
    """Listeners for parties of one process, whose work is one: their progress is added up."""
    done = [0] * parties

    def listener(place: int) -> OnEvent:
        def hear(event: Event) -> None:
            if isinstance(event, Advanced):
                done[place] = event.done
                event = Advanced(event.what, sum(done), parties * event.total)
            on_event(event)

        return hear

    return [listener(place) for place in range(parties)]


def _identifiers(name: str, table: Any, terms: Terms, key: tuple[str, ...]) -> Identifiers:
    try:
        if isinstance(table, str | Path):
            table = read_table(Path(table).expanduser(), as_text=True)
        return read_identifiers(table, key, terms.spelling)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _program(
    me: str,
    identifiers: Identifiers,
    terms: Terms,
    pool: ThreadPoolExecutor,
    threads: int,
    on_event: OnEvent,
    accept: Budget | None = None,
) -> Program[Intersection]:
    async def program(links: Mapping[str, Link]) -> Intersection:
        deal = await agree(links, me, terms, len(identifiers), accept)
        start = time.perf_counter()  # waiting for the others to appear is not work
        party = await asyncio.to_thread(
            Party, me, identifiers.values, deal, pool, threads, on_event
        )
        found = await intersect(party, links)
        return Intersection(
            me,
            found.size,
            None if found.places is None else identifiers.rows[found.places],
            deal.sizes,
            identifiers.total,
            identifiers.missing,
            identifiers.repeated,
            deal.session.hex(),
            sum(link.sent for link in links.values()),
            sum(link.received for link in links.values()),
            time.perf_counter() - start,
        )

    return program


def cores() -> int:
    """Of those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Runs it to its end, also in a notebook, which has a loop of its own; an interrupt stops it in order."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _complete_in_thread(work)


def _complete_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Runs it in a thread with a loop of its own; an interrupt may come at any moment, also while that starts."""
    outcome, stop = Future[T](), Future[None]()
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
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
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
    """Its result. A signal that comes just before a wait does not end it, so that waits are short."""
    while not outcome.done():
        wait([outcome], timeout=GLANCE)
    return outcome.result()
