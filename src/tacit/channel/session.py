"""Exchanges among parties that have agreed, messages that all hear alike, and checkpoints.

A program that may take hours has checkpoints. A party saves the next one only when all have saved
the one before, and keeps two. So after any of them has died and started again there is one that all
have, from which all go on. A program without checkpoints starts over.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tacit.channel.checkpoints import Checkpoint, CheckpointFolder
from tacit.channel.frames import LONGEST_NAME, Buffer, ChannelError, GarbageError
from tacit.channel.link import Link
from tacit.channel.messages import LARGEST_MESSAGE, Assembly, Contents, pieces
from tacit.channel.statements import read_plain
from tacit.channel.table_columns import is_table
from tacit.channel.tasks import to_the_end, together

# The names of a session's own messages have brackets; those of programs have none.
ECHO, SAVED = "(echo of {})", "(saved)"
RESTART = 600.0  # seconds until a restart that one party has heard of should have reached all


class Session:
    """One attempt of a program, among parties that have agreed.

    `name` is the same at all parties, and remains when they go on from a checkpoint; `attempt` is
    new in each attempt. Both are public. `brings` is what each party brings, by its name. `step`
    and `state` are those of the checkpoint from which the program goes on, 0 and None at the start.
    """

    def __init__(self, me: str, links: Mapping[str, Link], parties: tuple[str, ...]) -> None:
        self.me = me
        self.links = links
        self.parties = parties
        self.name = b""
        self.attempt = b""
        self.brings: Mapping[str, Mapping[str, Any]] = {}
        self.step = 0
        self.state: Contents | None = None
        self.note_step: Callable[[int], None] = lambda _: None
        self._checkpoints: CheckpointFolder | None = None
        self._subject: dict[str, Any] = {}  # what checkpoints say of their session
        self._sent = dict.fromkeys(links, 0)  # messages since the start of the attempt
        self._received = dict.fromkeys(links, 0)
        self._saved = dict.fromkeys(links, 0)  # the last checkpoint of each peer
        self._counts: dict[str, tuple[int, int]] = {}  # sent and received at our last checkpoint
        self._locks: dict[tuple[str, str, str], asyncio.Lock] = {}
        self._partly_sent: set[tuple[str, str]] = set()  # names of which a message was sent in part
        self._partly_sent_to_all: set[str] = set()  # names of which some peers have heard
        self._assemblies: dict[tuple[str, str], Assembly] = {}  # that have come in part
        # Whole messages that came to a call to all peers which was cancelled, with their hashes.
        self._unclaimed: dict[tuple[str, str], deque[tuple[dict[str, Any], str]]] = {}

    # messages

    async def send(self, peer: str, name: str, message: Contents) -> None:
        """Sends a message of any size; waits while the peer is behind.

        The arrays may be changed once this returns.
        """
        async with self._lock("send", peer, name):
            if (peer, name) in self._partly_sent:
                raise ValueError(f"sending {name!r} to {peer} was cancelled before all was sent")
            for piece in await _pieces_of(message):
                self._partly_sent.add((peer, name))
                await self.links[peer].send(name, piece)
            self._partly_sent.discard((peer, name))
        self._sent[peer] += 1

    async def receive(
        self, peer: str, name: str, *, largest: int = LARGEST_MESSAGE
    ) -> dict[str, Any]:
        """The peer's next message of that name, which has at most so many bytes of arrays.

        Whoever is cancelled meanwhile loses nothing: the next call goes on.
        """
        contents, _ = await self._receive(peer, name, largest)
        return contents

    async def _receive(
        self, peer: str, name: str, largest: int, *, is_hashed: bool = False
    ) -> tuple[dict[str, Any], str]:
        """A message, and the hash of its bytes, if it is wanted."""
        async with self._lock("receive", peer, name):
            unclaimed = self._unclaimed.get((peer, name))
            if unclaimed:
                message, digest = unclaimed.popleft()
            else:
                message, digest = await self._assembled(peer, name, largest, is_hashed=is_hashed)
        if is_hashed and not digest:
            raise ValueError(f"{name!r} of {peer} was received before, and not as a broadcast")
        self._received[peer] += 1
        return message, digest

    async def _assembled(
        self, peer: str, name: str, largest: int, *, is_hashed: bool
    ) -> tuple[dict[str, Any], str]:
        """The message that comes; what has come of it to a call that was cancelled is kept."""
        assembly = self._assemblies.get((peer, name))
        if assembly is None or not assembly.begun:
            assembly = Assembly(largest, is_hashed=is_hashed)
            self._assemblies[peer, name] = assembly
        try:
            assembly.limit(largest)
            while not assembly.complete:
                assembly.add(await self.links[peer].receive(name))
            message = await _complete_message(assembly)
        except GarbageError as error:
            raise ChannelError(f"{peer} {error}") from None
        del self._assemblies[peer, name]
        return message, assembly.digest.hexdigest() if assembly.is_hashed else ""

    async def send_all(self, name: str, message: Contents) -> None:
        """Sends a message to all peers.

        It waits until they have taken all but the last bytes. Where all send first and receive
        then, all could wait for ever: `exchange` does both.
        """
        with self._reaching_all(name):
            await self._send_all(name, message)

    async def _send_all(self, name: str, message: Contents) -> None:
        await together(*(self.send(peer, name, message) for peer in self.links))

    @contextmanager
    def _reaching_all(self, name: str) -> Iterator[None]:
        """Refuses a name once a call was cancelled: some peers may have heard, and others not."""
        if name in self._partly_sent_to_all:
            raise ValueError(f"sending {name!r} to all was cancelled, so some may have heard it")
        try:
            yield
        except asyncio.CancelledError:
            self._partly_sent_to_all.add(name)
            raise

    async def receive_all(
        self, name: str, *, largest: int = LARGEST_MESSAGE
    ) -> dict[str, dict[str, Any]]:
        """The next message of that name from each peer.

        Whoever is cancelled meanwhile loses nothing: the next call gets what has come.
        """
        received = await self._receive_all(name, largest)
        return {peer: message for peer, (message, _) in received.items()}

    async def _receive_all(
        self, name: str, largest: int, *, is_hashed: bool = False
    ) -> dict[str, tuple[dict[str, Any], str]]:
        """A message of each peer with its hash, if it is wanted."""
        received: dict[str, tuple[dict[str, Any], str]] = {}

        async def receive(peer: str) -> None:
            received[peer] = await self._receive(peer, name, largest, is_hashed=is_hashed)

        try:
            await together(*(receive(peer) for peer in self.links))
        except BaseException:
            for peer, message in received.items():
                self._unclaimed.setdefault((peer, name), deque()).append(message)
                self._received[peer] -= 1
            raise
        return {peer: received[peer] for peer in self.links}

    async def exchange(
        self, name: str, message: Contents, *, largest: int = LARGEST_MESSAGE
    ) -> dict[str, dict[str, Any]]:
        """Sends a message to all peers while it receives theirs, so that none waits for another."""
        messages: dict[str, dict[str, Any]]
        with self._reaching_all(name):
            receiving = self.receive_all(name, largest=largest)
            _, messages = await together(self._send_all(name, message), receiving)
        return messages

    async def broadcast(
        self, name: str, message: Contents, *, largest: int = LARGEST_MESSAGE
    ) -> dict[str, dict[str, Any]]:
        """Sends a message to all, and returns that of each peer, which all have heard alike.

        A party that tells others different things ends the session: everybody tells everybody the
        hash of each message that it has heard.
        """
        if len(ECHO.format(name)) > LONGEST_NAME:
            longest = LONGEST_NAME - len(ECHO.format(""))
            raise ValueError(f"{name}: the name of a broadcast has at most {longest} letters")
        heard: dict[str, tuple[dict[str, Any], str]]
        with self._reaching_all(name):
            hearing = self._receive_all(name, largest, is_hashed=True)
            _, heard = await together(self._send_all(name, message), hearing)
            digests = {peer: digest for peer, (_, digest) in heard.items()}
            await self.compare_heard(name, {self.me: _digest(message), **digests})
        return {peer: contents for peer, (contents, _) in heard.items()}

    async def compare_heard(self, name: str, digests: Mapping[str, str]) -> None:
        """Compares what everybody has heard from everybody; two parties need not."""
        if len(self.links) < 2:
            return
        processes = {peer: link.process for peer, link in self.links.items()}
        echo = {"heard": dict(digests), "processes": processes}
        comparing = (self._compare_with(peer, name, echo) for peer in self.links)
        await together(self.send_all(ECHO.format(name), echo), *comparing)

    async def _compare_with(self, peer: str, name: str, ours: Mapping[str, Any]) -> None:
        """Refuses a peer that has heard something else than we have.

        Where it has heard that from another process of a party, the party has started again, and
        one of us does not know it yet: this attempt is void once it does.
        """
        theirs = await self.receive(peer, ECHO.format(name), largest=0)
        for party, digest in ours["heard"].items():
            if _entry(theirs, "heard", party) == digest:
                continue
            process = ours["processes"].get(party)
            if process and _entry(theirs, "processes", party) not in (process, None):
                await asyncio.sleep(RESTART)
            suspects = " or ".join(sorted({party, peer}))
            raise ChannelError(
                f"{self.me} and {peer} have heard different {name!r} from {party}; "
                f"{suspects} does not follow the protocol"
            )

    def _lock(self, way: str, peer: str, name: str) -> asyncio.Lock:
        """One message of a name at a time, or their pieces would mix."""
        return self._locks.setdefault((way, peer, name), asyncio.Lock())

    # checkpoints

    def keep_checkpoints(self, folder: CheckpointFolder, subject: Mapping[str, Any]) -> None:
        """From now on there may be checkpoints, which say what their session is about."""
        self._checkpoints = folder
        self._subject = dict(subject)
        self._saved = dict.fromkeys(self.links, self.step)

    async def checkpoint(self, state: Contents) -> None:
        """Saves the state, from which the program can go on; all parties do so at the same moment.

        No message may be under way then. It waits until all have saved the checkpoint before.
        """
        if self._checkpoints is None:
            raise ValueError("this session was opened without checkpoints")
        await self.settle()
        checkpoint = Checkpoint(self.step + 1, self._subject, state)
        await to_the_end(asyncio.to_thread(self._checkpoints.save, checkpoint))
        self.step += 1
        for peer, link in self.links.items():
            sent = self._sent[peer]
            received = self._received[peer]
            self._counts[peer] = (sent, received)
            note = {"step": self.step, "sent": sent, "received": received}
            await link.send(SAVED, json.dumps(note).encode())
        self.note_step(self.step)

    async def settle(self) -> None:
        """Waits until all have saved our last checkpoint."""
        await together(*(self._await_saved(peer) for peer in self.links))

    async def _await_saved(self, peer: str) -> None:
        while self._saved[peer] < self.step:
            raw = await self.links[peer].receive(SAVED)
            note = read_plain(peer, raw, "a note of a checkpoint")
            self._saved[peer] += 1
            counts = (note.get("received"), note.get("sent"))
            if note.get("step") != self.step or counts != self._counts[peer]:
                raise ChannelError(
                    f"{self.me} and {peer} did not save checkpoint {self.step} at the same moment, "
                    "or messages were under way; run the same program on all sides"
                )


def _entry(echo: Mapping[str, Any], key: str, party: str) -> Any:
    """What a peer's echo says of a party; nothing where it is no echo."""
    entries = echo.get(key)
    return entries.get(party) if isinstance(entries, dict) else None


async def _pieces_of(message: Contents) -> Iterable[Buffer]:
    """The pieces of a message; a table is turned into bytes in a thread, since it may take long."""
    if not any(map(is_table, message.values())):
        return pieces(message)
    return await asyncio.to_thread(list, pieces(message))


async def _complete_message(assembly: Assembly) -> dict[str, Any]:
    """The complete message; its tables are built in a thread."""
    if not assembly.has_tables:
        return assembly.message()
    return await asyncio.to_thread(assembly.message)


def _digest(message: Contents) -> str:
    digest = hashlib.sha256()
    for piece in pieces(message):
        digest.update(piece)
    return digest.hexdigest()
