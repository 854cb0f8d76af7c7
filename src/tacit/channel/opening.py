"""Opens sessions: parties agree on the terms of a protocol, and conclude it together.

A protocol's program gets a session and not links. Before it begins, every party states the terms
and what it brings; a difference ends the session with the setting that differs. What all have
stated, and random numbers of all, name the session. With three parties or more, everybody tells
everybody what it has heard, so that nobody can state one thing here and another there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tacit.channel.checkpoints import Checkpoint, CheckpointFolder
from tacit.channel.endpoint import Conclude, Endpoint, Program, Publish
from tacit.channel.frames import ChannelError
from tacit.channel.link import Link
from tacit.channel.session import Session
from tacit.channel.statements import (
    LONGEST_STATEMENT,
    NONCE,
    Protocol,
    is_digest,
    read_statement,
)
from tacit.channel.tasks import to_the_end, together
from tacit.core.errors import DataError
from tacit.core.events import Noted, OnEvent, ignore

T = TypeVar("T")
TERMS = "(terms)"
START = (0, "")


async def open_session(
    links: Mapping[str, Link],
    me: str,
    parties: tuple[str, ...],
    protocol: Protocol,
    *,
    checkpoints: CheckpointFolder | None = None,
    on_event: OnEvent = ignore,
) -> Session:
    """The session of these parties, once all agree, at the last checkpoint that all have."""
    session = Session(me, links, parties)
    if checkpoints is None:
        await _agree(session, protocol, None)
        return session
    stored = await asyncio.to_thread(checkpoints.read, on_event)
    subject = {
        "me": me,
        "parties": list(parties),
        "terms": dict(protocol.terms),
        "brings": dict(protocol.brings),
    }
    _check_stored(stored, subject, checkpoints)
    held = [[step, checkpoint.session["attempt"]] for step, checkpoint in sorted(stored.items())]
    statements = await _agree(session, protocol, held)
    _go_on(session, {party: statements[party]["held"] for party in parties}, stored)
    await to_the_end(asyncio.to_thread(checkpoints.drop_after, session.step))
    names = {"name": session.name.hex(), "attempt": session.attempt.hex()}
    session.keep_checkpoints(checkpoints, {**subject, **names})
    if session.step:
        on_event(Noted(f"going on from checkpoint {session.step}"))
    return session


async def _agree(
    session: Session, protocol: Protocol, held: list[Any] | None
) -> Mapping[str, Mapping[str, Any]]:
    """What all parties state; the session is named after all of it."""
    protocol = replace(protocol, terms={**protocol.terms, "parties": list(session.parties)})
    statement = {
        "terms": dict(protocol.terms),
        "brings": dict(protocol.brings),
        "nonce": secrets.token_hex(NONCE),
        "held": held,
    }
    statements, digests = await _exchange(session, protocol, statement)
    agreement = "".join(digests[party] for party in session.parties)
    session.attempt = hashlib.sha256(agreement.encode()).digest()
    session.name = session.attempt
    session.brings = {party: statements[party]["brings"] for party in session.parties}
    return statements


async def _exchange(
    session: Session, protocol: Protocol, statement: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """What all parties state, with the hashes of it, once all agree and have heard the same."""
    me = session.me
    raw = json.dumps(statement).encode()
    if len(raw) > LONGEST_STATEMENT:
        raise DataError(f"terms may have {LONGEST_STATEMENT} bytes, these have {len(raw)}")
    statements = {me: statement}
    digests = {me: hashlib.sha256(raw).hexdigest()}
    await together(*(link.send(TERMS, raw) for link in session.links.values()))
    for peer, link in session.links.items():
        theirs = await link.receive(TERMS)
        statements[peer] = read_statement(peer, theirs)
        digests[peer] = hashlib.sha256(theirs).hexdigest()
        brings = statements[peer]["brings"]
        protocol.hear(peer, brings)
        protocol.check_equal(me, peer, statements[peer]["terms"])
        if (statement["held"] is None) != (statements[peer]["held"] is None):
            raise ChannelError(f"{me} and {peer} differ in whether they keep checkpoints")
        protocol.accept(peer, brings)
    await session.compare_heard("terms", digests)
    return statements, digests


def _check_stored(
    stored: Mapping[int, Checkpoint], subject: Mapping[str, Any], checkpoints: CheckpointFolder
) -> None:
    """Refuses checkpoints of something else."""
    expected = json.loads(json.dumps(dict(subject)))
    for checkpoint in stored.values():
        about = {key: checkpoint.session.get(key) for key in expected}
        names = [checkpoint.session.get("name"), checkpoint.session.get("attempt")]
        if about != expected or not all(map(is_digest, names)):
            raise DataError(
                f"the checkpoints in {checkpoints.folder} are of another session, with other terms "
                "or data; name another folder, or remove them"
            )


def _go_on(
    session: Session, held: Mapping[str, list[Any]], stored: Mapping[int, Checkpoint]
) -> None:
    """Puts the session at the last checkpoint that all have saved in the same attempt."""
    marks = [_marks(entries) for entries in held.values()]
    common = set.intersection(*marks)
    if not common:
        lists = [f"{party} has {_listed(entries)}" for party, entries in held.items()]
        raise ChannelError(
            f"there is no checkpoint that all have: {', '.join(lists)}; bring the missing ones "
            "back, or remove all of them on all sides to start anew"
        )
    session.step, _ = max(common)
    if session.step:
        checkpoint = stored[session.step]
        session.name = bytes.fromhex(checkpoint.session["name"])
        session.state = checkpoint.state


def _marks(entries: list[Any]) -> set[tuple[int, str]]:
    """A party's checkpoints, and the start, where it has none beyond the first.

    Those of one step in two attempts differ: what is repeated need not be the same.
    """
    marks = {(step, attempt) for step, attempt in entries}
    if all(step <= 1 for step, _ in marks):
        marks.add(START)
    return marks


def _listed(entries: list[Any]) -> str:
    steps = [f"{step} of attempt {attempt[:8]}" for step, attempt in entries]
    return " and ".join(steps) or "none"


# running

SessionProgram = Callable[[Session], Awaitable[T]]


def in_session(
    program: SessionProgram[T],
    me: str,
    parties: tuple[str, ...],
    protocol: Protocol,
    *,
    checkpoints: CheckpointFolder | None = None,
    on_event: OnEvent = ignore,
    note_step: Callable[[int], None] = lambda _: None,
) -> Program[T]:
    """A program of links that opens a session and runs the program in it."""

    async def with_links(links: Mapping[str, Link]) -> T:
        session = await open_session(
            links, me, parties, protocol, checkpoints=checkpoints, on_event=on_event
        )
        session.note_step = note_step
        result = await program(session)
        await session.settle()
        return result

    return with_links


async def hold(
    endpoint: Endpoint,
    program: SessionProgram[T],
    parties: tuple[str, ...],
    protocol: Protocol,
    *,
    checkpoints: CheckpointFolder | None = None,
    conclude: Conclude[T] = lambda _: None,
    publish: Publish = lambda: None,
) -> T:
    """Runs a program in a session, to the end of all parties; then its checkpoints are removed."""
    endpoint.lasting = checkpoints is not None

    def finish() -> None:
        publish()
        if checkpoints is not None:
            checkpoints.clear()

    with_links = in_session(
        program,
        endpoint.me,
        parties,
        protocol,
        checkpoints=checkpoints,
        on_event=endpoint.on_event,
        note_step=endpoint.note_step,
    )
    return await endpoint.run(with_links, conclude, finish)
