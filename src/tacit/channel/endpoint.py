"""One party's side of a conversation.

It finds its peers, notices when one is gone, and starts over when one has started again.

A party's program is a coroutine of its links. Every process has a random name, and every attempt at
the program has a number, the epoch. A connection that breaks is made again and goes on. A peer that
comes back as another process has lost its part of the attempt: the epoch grows, and every party
that hears of the higher one starts its program again.
"""

from __future__ import annotations

import asyncio
import gc
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from tacit.channel import greeting
from tacit.channel.connection import Carrier, Connection
from tacit.channel.conversation import Conversation
from tacit.channel.frames import LARGEST, ChannelError, Frame, Kind, VersionError
from tacit.channel.greeting import Hello
from tacit.channel.link import Link, RestartError
from tacit.channel.presence import Presence
from tacit.channel.tasks import stop, to_the_end
from tacit.channel.timing import Timing
from tacit.core.errors import system_reason
from tacit.core.events import OnEvent, Warned, ignore

T = TypeVar("T")
Program = Callable[[Mapping[str, Link]], Awaitable[T]]
Conclude = Callable[[T], None]
Publish = Callable[[], None]
SHORTEST, LONGEST = 0.1, 3.0  # seconds between two tries to connect
FAREWELL = 1.0  # seconds for the last words
GLANCE = 0.01  # seconds between two looks whether all have said goodbye
RESTARTS = 10  # of a run: every one lets a peer ask anew
DONE = "(done)"  # the last message; names of programs' own messages have no brackets


class Endpoint:
    """`purpose` names the program: peers that run another one are refused.

    A `lasting` program goes on from checkpoints of its own where a party starts again.
    """

    def __init__(
        self,
        me: str,
        peers: Sequence[str],
        carrier: Carrier,
        *,
        purpose: str,
        timing: Timing | None = None,
        on_event: OnEvent = ignore,
        lasting: bool = False,
    ) -> None:
        self.me = me
        self.lasting = lasting
        self.carrier = carrier
        self.purpose = purpose
        self.on_event = on_event
        self.timing = timing or Timing()
        self.links = {peer: Link(me, peer, self.timing.answer) for peer in peers}
        self.process = secrets.token_hex(16)
        self.epoch = 0
        self._restarts = 0  # since the program got as far as `_furthest`
        self._furthest = 0
        self._restart = asyncio.Event()  # this attempt is void

    async def run(
        self,
        program: Program[T],
        conclude: Conclude[T] = lambda _: None,
        publish: Publish = lambda: None,
    ) -> T:
        """Runs the program, anew where a party starts anew, until all parties have concluded.

        `conclude` gets the result, and may be called anew; `publish` is called once all parties
        have concluded.
        """
        self.conversation = Conversation(self.on_event)
        self.presence = Presence(self.links, self.carrier, self.timing, self.conversation)
        await self.carrier.listen(self._guarded_welcome, self.conversation.complain)
        tasks = self._background_tasks()
        try:
            for peer in self.links:
                if not self.carrier.dials(peer):
                    self.presence.expect(peer)
            result = await self._attempts(program, conclude, publish)
            await self._linger()
        except BaseException as error:
            await self._close(tasks, Frame.refusing(_last_words(error)))
            raise
        await self._close(tasks, Frame(Kind.BYE))
        return result

    def _background_tasks(self) -> list[asyncio.Task[None]]:
        guard = self.conversation.guard
        dialled = [peer for peer in self.links if self.carrier.dials(peer)]
        tasks = [asyncio.create_task(guard(self._keep_dialling, peer)) for peer in dialled]
        tasks.append(asyncio.create_task(guard(self.presence.watch)))
        return tasks

    # attempts

    async def _attempts(self, program: Program[T], conclude: Conclude[T], publish: Publish) -> T:
        """Attempts until one is not made void."""
        while True:
            self._restart.clear()
            for link in self.links.values():
                link.fail(None)
            attempt = asyncio.create_task(self._attempt(program, conclude, publish))
            restart = asyncio.create_task(self._restart.wait())
            failure = self.conversation.failure
            try:
                await asyncio.wait({attempt, restart, failure}, return_when=asyncio.FIRST_COMPLETED)
                if failure.done():
                    failure.result()  # raises
                if not self._restart.is_set():
                    return attempt.result()
            finally:
                await stop(attempt, restart)
            del attempt
            gc.collect()  # errors and frames hold each other, and all that the program had

    async def _attempt(self, program: Program[T], conclude: Conclude[T], publish: Publish) -> T:
        result = await program(self.links)
        # In a thread, since it may take long, and signs of life have to go on.
        await to_the_end(asyncio.to_thread(conclude, result))
        links = self.links.values()
        for link in links:
            link.ending = True
        await asyncio.gather(*(link.send(DONE, b"") for link in links))
        await asyncio.gather(*(link.receive(DONE) for link in links))
        self.presence.over = True
        await to_the_end(asyncio.to_thread(publish))
        return result

    async def _linger(self) -> None:
        """All are done, which a peer whose line is broken may not know; an interrupt ends it."""
        self.presence.stay()
        flushing = (link.flush(DONE) for link in self.links.values())
        with suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(self.timing.away):
                await asyncio.gather(*flushing)

    def _is_late(self, link: Link, hello: Hello) -> bool:
        """Whether it would start over what is done on all sides.

        A new process cannot go on with what the one before did, so nobody waits for that any more.
        """
        if not self.presence.over:
            return False
        if link.process != hello.process:
            link.give_up()
        return link.process != hello.process or hello.epoch > self.epoch

    def _heed(self, link: Link, hello: Hello) -> None:
        """Starts over where the peer is another process than before, or knows a later attempt."""
        anew = bool(link.process) and link.process != hello.process
        epoch = max(self.epoch, hello.epoch)
        if anew:
            epoch += 1
        if epoch == self.epoch:
            return
        has_begun = any(peer_link.process for peer_link in self.links.values())
        if anew or has_begun:
            self._note_restart(link.peer, "again" if anew else "over")
        self.epoch = epoch
        for peer_link in self.links.values():
            peer_link.reset(RestartError(f"{link.peer} has started again"))
        self._restart.set()

    def note_step(self, step: int) -> None:
        """Counts starts anew where the program gets further than ever before."""
        if step > self._furthest:
            self._furthest = step
            self._restarts = 0

    def _note_restart(self, peer: str, manner: str) -> None:
        plan = "going on from the last checkpoint" if self.lasting else "starting over with it"
        self.conversation.tell(Warned(f"{peer} has started {manner}; {plan}"))
        self._restarts += 1
        if self._restarts > RESTARTS:
            self.conversation.fail(
                f"parties have started again more than {RESTARTS} times, {peer} the last; "
                "stop, and start all sides"
            )

    # connections

    async def _keep_dialling(self, peer: str) -> None:
        """Dials until the conversation is over; only the peer itself can refuse us for good."""
        link = self.links[peer]
        pause = SHORTEST
        while True:
            try:
                connection = await self.carrier.dial(peer)
                if await self._greet(connection, link):
                    pause = SHORTEST
                    await self._attend(link, connection)
            except ChannelError as error:
                return self.conversation.fail(f"{peer} at {self.carrier.where(peer)} {error}")
            except (OSError, TimeoutError) as error:
                self.presence.miss(peer, system_reason(error) or "no answer")
            spread = 0.5 + secrets.randbelow(1000) / 1000
            await asyncio.sleep(pause * spread)
            pause = min(2 * pause, LONGEST)

    async def _greet(self, connection: Connection, link: Link) -> bool:
        """Introduces us over a connection that we dialled; whether it can be used."""
        try:
            ours, theirs = await self._exchange_hellos(connection, link)
        except VersionError:
            await connection.refuse("another version")
            raise
        except BaseException:  # a cancellation too, or nobody would close it
            connection.abort()
            raise
        if self._is_late(link, theirs):
            connection.abort()
            return False
        self._heed(link, theirs)
        if theirs.epoch < self.epoch or theirs.epoch < ours.epoch:
            connection.abort()  # the other side has to hear of the new epoch first
            return False
        link.attach(connection, theirs.process)
        return True

    async def _exchange_hellos(self, connection: Connection, link: Link) -> tuple[Hello, Hello]:
        """Our hello and the answer. The side that dials speaks second: a refusal may come first."""
        connection.largest = greeting.LONGEST
        async with asyncio.timeout(self.timing.greeting):
            first = await connection.read()
            if first.kind is Kind.REFUSED:
                Hello.parse(first)  # raises
            ours = self._hello(link.peer)
            await connection.write(ours.frame())
            answer = await connection.read()
        if answer.kind is Kind.BUSY:
            raise ConnectionRefusedError("it is talking to another process of ours")
        theirs = Hello.parse(answer)
        theirs.check(connection, ours, list(self.links))
        connection.largest = LARGEST
        return ours, theirs

    async def _guarded_welcome(self, connection: Connection) -> None:
        await self.conversation.guard(self._welcome, connection)

    async def _welcome(self, connection: Connection) -> None:
        """The side that listens: whoever is wrong here is told why, and disturbs nobody."""
        complain = self.conversation.complain
        try:
            hello = await self._hear_hello(connection)
        except ChannelError as error:
            complain(f"refused {connection.peer} at {connection.where}: it {error}")
            return await connection.refuse(str(error))
        except (OSError, TimeoutError):
            complain(f"{connection.peer} at {connection.where} connected and did not say who it is")
            return connection.abort()
        link = self.links[hello.sender]
        is_twin = link.connection is not None and link.process != hello.process
        if is_twin or self._is_late(link, hello):
            connection.put(Frame(Kind.BUSY))
            return await connection.refuse("busy")
        self._heed(link, hello)
        connection.admit()
        connection.put(self._hello(link.peer).frame())
        link.attach(connection, hello.process)
        try:
            await self._attend(link, connection)
        except ChannelError as error:
            self.conversation.fail(f"{link.peer} {error}")

    async def _hear_hello(self, connection: Connection) -> Hello:
        connection.largest = greeting.LONGEST
        async with asyncio.timeout(self.timing.greeting):
            await connection.write(Frame(Kind.BEAT))
            frame = await connection.read()
        hello = Hello.parse(frame)
        hello.check(connection, self._hello(hello.sender), list(self.links))
        connection.largest = LARGEST
        return hello

    def _hello(self, peer: str) -> Hello:
        return Hello(self.me, peer, self.process, self.epoch, self.purpose)

    async def _attend(self, link: Link, connection: Connection) -> None:
        """Takes in what comes over a connection until it breaks."""
        self.presence.arrive(link, connection)
        try:
            await connection.drain()
            await link.attend(connection)
        except OSError as error:
            self.presence.lose(link, connection, system_reason(error) or "the connection broke")
        except ChannelError as error:
            await connection.refuse(f"stopped: {link.peer} {error}")
            link.detach(str(error))
            raise

    # endings

    async def _close(self, tasks: list[asyncio.Task[None]], last: Frame) -> None:
        """Says the last words, waits a moment for those of the peers, and ends everything."""
        try:
            for link in self.links.values():
                if link.connection is not None:
                    link.connection.put(last)
            with suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    while self._hears_peers():
                        await asyncio.sleep(GLANCE)
        finally:
            await to_the_end(self._clear(tasks))

    def _hears_peers(self) -> bool:
        """Whether a peer has not said goodbye yet."""
        links = self.links.values()
        return any(link.connection is not None and not link.closing for link in links)

    async def _clear(self, tasks: list[asyncio.Task[None]]) -> None:
        await stop(*tasks)
        self.conversation.close()
        for link in self.links.values():
            link.detach("the conversation is over")
        await self.carrier.close()


def _last_words(error: BaseException) -> str:
    """What peers may hear of an error: nothing that could hold data."""
    if isinstance(error, ChannelError):
        return f"stopped: {error}"
    if isinstance(error, asyncio.CancelledError):
        return "was stopped by its user"
    return "was stopped by an error on its side"
