"""Which people all parties know: between processes on several machines, or all in one process."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from tacit.channel.audit import Audit, SessionLog, log_path
from tacit.channel.consortium import Address, Consortium
from tacit.channel.endpoint import Endpoint
from tacit.channel.event_loop import complete
from tacit.channel.link import Link
from tacit.channel.loopback import converse
from tacit.channel.meeting import meet
from tacit.channel.tasks import to_the_end
from tacit.channel.timing import Timing
from tacit.channel.tls import TlsCarrier
from tacit.core.errors import DataError, StudyError
from tacit.core.events import Advanced, Event, OnEvent, ignore, tell
from tacit.core.fields import conform
from tacit.core.files import expanded
from tacit.core.machine import usable_cores
from tacit.core.signatures import takes_options
from tacit.data.readers import read_table
from tacit.vertical.batch_threads import BatchThreads
from tacit.vertical.groups.group import Group
from tacit.vertical.identifiers import Identifiers, read_identifiers
from tacit.vertical.party import Party
from tacit.vertical.psi import intersect
from tacit.vertical.psi_options import PSI_DEFAULTS, PsiOptions
from tacit.vertical.psi_question import PsiQuestion
from tacit.vertical.terms import Budget, Deal, Terms, agree, usual_most

if TYPE_CHECKING:
    import pandas as pd

    from tacit.vertical.psi_options import PartyData

TableOrColumn = TypeVar("TableOrColumn", "pd.DataFrame", "pd.Series[Any]")
PURPOSE = "psi"
UNNAMED = 'name yourself: party="alice"; or give {name: table, ...} to try it out in one process'


@dataclass(frozen=True, eq=False)
class Intersection:
    """What one party has learnt.

    `rows` are its rows of the people known to all parties, in the same order at every party that
    learns them; where an identifier is in several rows, the first. It is None where the party
    learns the size alone, and `size` is None where it does not learn that either. `sizes` says how
    many different identifiers each party brought.
    """

    party: str
    size: int | None
    rows: NDArray[np.int64] | None = field(repr=False)
    sizes: Mapping[str, int]
    total: int
    missing: int  # rows without an identifier
    repeated: int  # rows whose identifier an earlier row has
    session: str  # the same on all sides
    agreed: Mapping[str, Any] = field(repr=False)  # the terms, the same on all sides
    sent: int  # bytes, headers included
    received: int
    seconds: float
    log: Path | None = None  # has a line for this session

    @property
    def learnt(self) -> str:
        """What the party has learnt: "rows", "size" or "nothing"."""
        if self.size is None:
            return "nothing"
        return "size" if self.rows is None else "rows"

    def of(self, table: TableOrColumn) -> TableOrColumn:
        """The table's rows of the people known to all parties, in the order that all share."""
        if self.rows is None:
            raise StudyError(
                f"{self.party} has not learnt which of its rows the other parties have too"
            )
        if len(table) != self.total:
            raise DataError(
                f"the table has {len(table)} rows, and the one that was compared {self.total}"
            )
        return table.iloc[self.rows]


@takes_options(PsiOptions, PSI_DEFAULTS)
def compare_tables(
    tables: Mapping[str, PartyData] | PartyData,
    key: str | Sequence[str],
    **options: Unpack[PsiOptions],
) -> dict[str, Intersection]:
    """Compares the tables of several parties, `{name: table, ...}`, in this process."""
    question = PsiQuestion.read(key, options)
    thread_count = _thread_count(options["threads"])
    of_one_party = (
        "consortium",
        "others",
        "listen",
        "connect",
        "proxy",
        "passphrase",
        "most",
        "log",
    )
    if any(options[name] not in (None, (), []) for name in of_one_party):  # type: ignore[literal-required]
        raise StudyError(UNNAMED, parameters=("party",))
    if not isinstance(tables, Mapping) or not all(isinstance(name, str) for name in tables):
        raise StudyError(UNNAMED, parameters=("party",))
    terms = question.terms(list(tables))
    listeners = _adding_up(_listener(options), len(tables))
    with BatchThreads(thread_count) as threads:
        programs = {}
        for (name, table), on_event in zip(tables.items(), listeners, strict=True):
            identifiers = _identifiers(name, table, question)
            programs[name] = Comparison(name, identifiers, terms, threads, on_event).run
        return complete(converse(programs, purpose=PURPOSE))


@takes_options(PsiOptions, PSI_DEFAULTS)
def take_part(
    data: PartyData,
    key: str | Sequence[str],
    party: str,
    *,
    conclude: Callable[[Intersection], None] = lambda _: None,
    publish: Callable[[], None] = lambda: None,
    **options: Unpack[PsiOptions],
) -> Intersection:
    """Compares this party's data with those of the others, which run this on their machines.

    `conclude` gets the result before the other parties hear that it is safe; where a party has to
    start anew, it gets the new one. `publish` is called once all parties have concluded.
    """
    question = PsiQuestion.read(key, options)
    thread_count = _thread_count(options["threads"])
    _check_most(options["most"])
    timing = Timing(away=_patience(options["patience"]))
    _check_networked(question.group)
    on_event = _listener(options)
    names, carrier = _meet(party, options, on_event)
    terms = question.terms(names)
    identifiers = _identifiers(party, data, question)
    peers = [name for name in names if name != party]
    log = SessionLog(_log_path(party, options))
    audit = Audit(log, party, peers, PURPOSE, terms.stated())
    budget = _budget(len(identifiers), options["most"], audit, on_event)
    with BatchThreads(thread_count) as threads, audit:
        endpoint = Endpoint(
            party, peers, carrier, purpose=PURPOSE, timing=timing, on_event=on_event
        )
        comparison = Comparison(party, identifiers, terms, threads, on_event, budget, audit)
        result = complete(endpoint.run(comparison.run, conclude, publish))
        audit.complete(learnt=result.learnt, common=result.size)
    return result


@dataclass(frozen=True)
class Comparison:
    """One party's program: agree on the terms, then run the protocol."""

    me: str
    identifiers: Identifiers
    terms: Terms
    threads: BatchThreads
    on_event: OnEvent
    budget: Budget | None = None
    audit: Audit | None = None

    async def run(self, links: Mapping[str, Link]) -> Intersection:
        values = self.identifiers.values
        deal = await self._agree(links)
        start = time.perf_counter()  # waiting for the others to appear is not work
        party = await asyncio.to_thread(Party, self.me, values, deal, self.threads, self.on_event)
        common_rows = await intersect(party, links)
        rows = None
        if common_rows.positions is not None:
            rows = self.identifiers.rows[common_rows.positions]
        return Intersection(
            party=self.me,
            size=common_rows.size,
            rows=rows,
            sizes=deal.sizes,
            total=self.identifiers.total,
            missing=self.identifiers.missing,
            repeated=self.identifiers.repeated,
            session=deal.session.hex(),
            sent=sum(link.sent for link in links.values()),
            received=sum(link.received for link in links.values()),
            seconds=time.perf_counter() - start,
            agreed=self.terms.stated(),
            log=self.audit.log.path if self.audit is not None else None,
        )

    async def _agree(self, links: Mapping[str, Link]) -> Deal:
        """The deal; the log has a line for it, and for a failure once a peer has said its size."""
        size = len(self.identifiers)
        if self.budget is None or self.audit is None:
            return await agree(links, self.me, self.terms, size)
        self.budget.sizes.clear()
        session = None
        try:
            deal = await agree(links, self.me, self.terms, size, self.budget)
            session = deal.session.hex()
        finally:
            if self.budget.sizes:
                sizes = {self.me: size, **self.budget.sizes}
                await to_the_end(asyncio.to_thread(self.audit.begin, sizes, session))
        return deal


def _identifiers(name: str, data: PartyData, question: PsiQuestion) -> Identifiers:
    """A party's identifiers; what is wrong with its data is said with its name."""
    try:
        if isinstance(data, str | Path):
            data = read_table(expanded(data), as_text=True)
        return read_identifiers(data, question.keys, question.spelling)
    except DataError as error:
        raise DataError(f"{name}: {error}", parameters=error.parameters) from None


def _adding_up(on_event: OnEvent, parties: int) -> list[OnEvent]:
    """A listener for each party of one process; their progress is added up, since it is one."""
    done = [0] * parties

    def listener(index: int) -> OnEvent:
        def hear(event: Event) -> None:
            if isinstance(event, Advanced):
                done[index] = event.done
                event = Advanced(event.what, sum(done), parties * event.total)
            on_event(event)

        return hear

    return [listener(index) for index in range(parties)]


# options as they are used


def _listener(options: PsiOptions) -> OnEvent:
    listeners = options["on_event"]
    return ignore if listeners is None else tell(listeners)


def _thread_count(threads: int | None) -> int:
    if threads is None:
        return usable_cores()
    count: int = conform(threads, int, "threads")
    if count < 1:
        raise StudyError(f"threads: expected 1 or more, got {count}", parameters=("threads",))
    return count


def _check_most(most: int | None) -> None:
    if most is not None and conform(most, int, "most") < 0:
        raise StudyError(f"most: expected 0 or more, got {most}", parameters=("most",))


def _budget(own_size: int, most: int | None, audit: Audit, on_event: OnEvent) -> Budget:
    """What peers may bring; what they brought before this process started again is counted."""
    if most is None:
        most = usual_most(own_size)
    return Budget(most, audit.brought_lately(), on_event)


def _log_path(party: str, options: PsiOptions) -> Path:
    """The file that this party names, or one beside the consortium's file."""
    if options["log"] is not None:
        return Path(options["log"])
    consortium = options["consortium"]
    if isinstance(consortium, Consortium):
        return log_path(consortium.ca.parent, party)
    file = Consortium.locate(expanded(consortium) if consortium else None)
    return log_path(file.parent, party)


def _patience(patience: float) -> float:
    seconds: float = conform(patience, float, "patience")
    if not 0 < seconds < math.inf:
        text = f"patience: expected a number of seconds above 0, got {patience}"
        raise StudyError(text, parameters=("patience",))
    return seconds


def _check_networked(group: Group) -> None:
    if not group.networked:
        raise StudyError(
            f"{group.name} is not secure, so it stays in one process; "
            "choose another group, or compare tables in one process",
            parameters=("group",),
        )


def _meet(party: str, options: PsiOptions, on_event: OnEvent) -> tuple[list[str], TlsCarrier]:
    """The parties of the session, and this one's way to the others."""
    consortium = options["consortium"]
    if not isinstance(consortium, Consortium):
        consortium = Consortium.find(expanded(consortium) if consortium else None)
    peers = options["others"]
    if isinstance(peers, str):
        peers = [peers]
    listen = _address("listen", options["listen"])
    connect = _address("connect", options["connect"])
    return meet(
        consortium,
        party,
        peers,
        listen=listen,
        connect=connect,
        proxy=options["proxy"],
        passphrase=options["passphrase"],
        on_event=on_event,
    )


def _address(option: str, text: str | None) -> Address | None:
    try:
        return Address.parse(text) if text else None
    except DataError as error:
        raise DataError(f"{option}: {error}", parameters=(option,)) from None
