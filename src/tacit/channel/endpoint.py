"""One party's side of a conversation: it finds its peers, notices when one is gone, and starts over when one did.

A party's program is a coroutine of its links. Every process has a random name, and every attempt at the program a
number, the epoch. A connection that breaks is made again and goes on. A peer that comes back as another process has
lost its part of the attempt: the epoch grows, and every party that hears of the higher one starts its program again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from tacit.channel import greeting
from tacit.channel.connection import Carrier, Connection
from tacit.channel.frames import LARGEST, ChannelError, Frame, Kind, VersionError
from tacit.channel.greeting import Hello
from tacit.channel.link import Link, RestartError
from tacit.channel.tasks import stop, to_the_end
from tacit.core.events import Event, Noted, OnEvent, Warned, ignore

T = TypeVar("T")
Program = Callable[[Mapping[str, Link]], Awaitable[T]]
SHORTEST, LONGEST = 0.1, 3.0  # seconds between two tries to connect
FAREWELL = 1.0  # seconds for the last words
RESTARTS = 10  # of a run: every one lets a peer ask anew
DONE = "(done)"  # the last message; programs' own have no brackets
LINGER = 15.0  # seconds for a peer that does not know yet that all are done
COMPLAINTS = 20  # about strangers; later ones are refused in silence


@dataclass(frozen=True)
class Timing:
    """How long to wait for what, in seconds."""

    beat: float = 2.0  # between two signs of life
    silence: float = 10.0  # without a sign of life until a connection counts as lost
    away: float = 600.0  # without a connection until a peer is given up
    answer: float = 3600.0  # without the awaited message from a peer that is there
    greeting: float = 10.0  # for a new connection to say who it is


class Endpoint:
    """`purpose` names the program: peers that run another one are refused."""

    def __init__(
        self,
        me: str,
        peers: Sequence[str],
        carrier: Carrier,
        *,
        purpose: str,
        timing: Timing | None = None,
        on_event: OnEvent = ignore,
    ) -> None:
        self.me, self.carrier, self.purpose, self.on_event = me, carrier, purpose, on_event
        self.timing = timing or Timing()
        self.links = {peer: Link(me, peer, self.timing.answer) for peer in peers}
        self.process, self.epoch = secrets.token_hex(16), 0
        self._complaints = 0
        self._restarts, self._over = 0, False
        self._why: dict[str, str] = {}  # a peer could not be reached

    async def run(
        self,
        program: Program[T],
        conclude: Callable[[T], None] = lambda _: None,
        publish: Callable[[], None] = lambda: None,
    ) -> T:
        """Runs the program, anew where a party starts anew, until all parties have concluded theirs.

        `conclude` gets the result, and may be called anew; `publish` is called once all parties have concluded.
        """
        self._again, self._end = asyncio.Event(), asyncio.get_running_loop().create_future()
        self._left = dict.fromkeys(self.links, time.monotonic())  # since when each peer is away
        await self.carrier.listen(
            lambda connection: self._guard(self._welcome, connection), self._complain
        )
        dialled = [peer for peer in self.links if self.carrier.dials(peer)]
        tasks = [asyncio.create_task(self._guard(self._keep_dialling, peer)) for peer in dialled]
        tasks.append(asyncio.create_task(self._guard(self._watch)))
        try:
            for peer in self.links.keys() - dialled:
                self._tell(Noted(f"waiting for {peer} at {self.carrier.where(peer)}"))
            result = await self._attempts(program, conclude, publish)
        except BaseException as error:
            await self._close(tasks, Frame(Kind.REFUSED, data=self._last_words(error).encode()))
            raise
        await self._close(tasks, Frame(Kind.BYE))
        return result

    async def _attempts(
        self, program: Program[T], conclude: Callable[[T], None], publish: Callable[[], None]
    ) -> T:
        while True:
            self._again.clear()
            for link in self.links.values():
                link.fail(None)
            attempt = asyncio.create_task(self._attempt(program, conclude, publish))
            restart = asyncio.create_task(self._again.wait())
            try:
                await asyncio.wait(
                    {attempt, restart, self._end}, return_when=asyncio.FIRST_COMPLETED
                )
                if self._end.done():
                    self._end.result()  # raises
                if not self._again.is_set():
                    return attempt.result()
            finally:
                await stop(attempt, restart)

    async def _attempt(
        self, program: Program[T], conclude: Callable[[T], None], publish: Callable[[], None]
    ) -> T:
        result = await program(self.links)
        await to_the_end(
            asyncio.to_thread(conclude, result)
        )  # may be long, and signs of life have to go on
        links = self.links.values()
        for link in links:
            link.ending = True
        await asyncio.gather(*(link.send(DONE, b"") for link in links))
        await asyncio.gather(*(link.receive(DONE) for link in links))
        self._over = True
        await to_the_end(asyncio.to_thread(publish))
        with suppress(
            TimeoutError
        ):  # all are safe; a peer whose line is broken may not know it yet
            async with asyncio.timeout(LINGER):
                await asyncio.gather(*(link.flush() for link in links))
        return result

    # connections

    async def _keep_dialling(self, peer: str) -> None:
        pause, told, link = SHORTEST, False, self.links[peer]
        while True:
            try:
                connection = await self.carrier.dial(peer)
                if await self._greet(connection, link):
                    pause, told = SHORTEST, True
                    await self._attend(link, connection)
            except ChannelError as error:
                return self._fail(f"{peer} at {self.carrier.where(peer)} {error}")
            except (OSError, TimeoutError) as error:
                self._why[peer] = getattr(error, "strerror", None) or str(error) or "no answer"
                if not told:
                    self._tell(
                        Noted(
                            f"waiting for {peer} to answer at {self.carrier.where(peer)} ({self._why[peer]})"
                        )
                    )
                told = True
            await asyncio.sleep(pause * (0.5 + secrets.randbelow(1000) / 1000))
            pause = min(2 * pause, LONGEST)

    async def _greet(self, connection: Connection, link: Link) -> bool:
        """The side that dials speaks second, since a refusal may come first. Whether the connection can be used."""
        connection.largest = greeting.LONGEST
        try:
            async with asyncio.timeout(self.timing.greeting):
                if (first := await connection.read()).kind is Kind.REFUSED:
                    Hello.parse(first)  # raises
                epoch = self.epoch
                await connection.write(self._hello(link.peer))
                if (answer := await connection.read()).kind is Kind.BUSY:
                    raise ConnectionRefusedError("it is talking to another process of ours")
                reply = Hello.parse(answer)
                reply.check(connection, self.me, list(self.links), self.purpose)
        except VersionError:
            await connection.refuse("another version")
            raise
        except BaseException:  # a cancellation too, or nobody would close it
            connection.abort()
            raise
        connection.largest = LARGEST
        if self._is_late(link, reply):
            connection.abort()
            return False
        self._heed(link, reply)
        if reply.epoch < self.epoch or epoch > reply.epoch:
            connection.abort()  # the other side has to hear of the new epoch first
            return False
        link.attach(connection, reply.process)
        return True

    async def _welcome(self, connection: Connection) -> None:
        """The side that listens: whoever is wrong here is told why, and the others are not disturbed."""
        connection.largest = greeting.LONGEST
        try:
            async with asyncio.timeout(self.timing.greeting):
                await connection.write(Frame(Kind.BEAT))
                hello = Hello.parse(await connection.read())
            hello.check(connection, self.me, list(self.links), self.purpose)
        except ChannelError as error:
            self._complain(f"refused {connection.peer} at {connection.place}: it {error}")
            return await connection.refuse(str(error))
        except (OSError, TimeoutError):
            self._complain(
                f"{connection.peer} at {connection.place} connected and did not say who it is"
            )
            return connection.abort()
        link, connection.largest = self.links[hello.sender], LARGEST
        if self._is_late(link, hello) or (
            link.connection is not None and link.process != hello.process
        ):
            connection.put(Frame(Kind.BUSY))
            return await connection.refuse("busy")
        self._heed(link, hello)
        connection.put(self._hello(link.peer))
        link.attach(connection, hello.process)
        try:
            await self._attend(link, connection)
        except ChannelError as error:
            self._fail(f"{link.peer} {error}")

    def _hello(self, peer: str) -> Frame:
        return Hello(self.me, peer, self.process, self.epoch, self.purpose).frame()

    def _is_late(self, link: Link, hello: Hello) -> bool:
        """Whether it would start over what is done on all sides."""
        return self._over and (link.process != hello.process or hello.epoch > self.epoch)

    def _heed(self, link: Link, hello: Hello) -> None:
        """Starts over where the peer is another process than before, or knows of a later attempt."""
        anew = bool(link.process) and link.process != hello.process
        epoch = max(self.epoch, hello.epoch) + anew
        if epoch == self.epoch:
            return
        begun = any(other.process for other in self.links.values())
        if anew or begun:
            self._tell(
                Warned(
                    f"{link.peer} has started {'anew' if anew else 'over'}; starting over with it"
                )
            )
            self._restarts += 1
            if self._restarts > RESTARTS:
                self._fail(
                    f"{link.peer} has started anew too often; after {RESTARTS} times, start all sides again"
                )
        self.epoch = epoch
        for other in self.links.values():
            other.reset(RestartError(f"{link.peer} has started anew"))
        self._again.set()

    async def _attend(self, link: Link, connection: Connection) -> None:
        back = self._left.pop(link.peer, None) is not None and link.reason
        self._tell(
            Noted(
                f"{link.peer} is back"
                if back
                else f"connected to {link.peer} at {connection.place}"
            )
        )
        try:
            await connection.drain()
            await link.attend(connection)
        except OSError as error:
            self._lose(link, connection, error.strerror or str(error) or "the connection broke")
        except ChannelError as error:
            await connection.refuse(f"stopped: {link.peer} {error}")
            link.detach(str(error))
            raise

    def _lose(self, link: Link, connection: Connection, reason: str) -> None:
        if link.connection is not connection:
            return
        link.detach(reason)
        self._left[link.peer] = time.monotonic()
        if not link.closing:
            wait = f"waiting up to {self.timing.away:g} s for it to come back"
            self._tell(Warned(f"lost the connection to {link.peer} ({reason}); {wait}"))

    async def _watch(self) -> None:
        """Signs of life, and what their absence means."""
        now = time.monotonic()
        while True:
            await asyncio.sleep(self.timing.beat)
            before, now = now, time.monotonic()
            if now - before > self.timing.silence:  # we were asleep, not they
                continue
            for peer, link in self.links.items():
                if (connection := link.connection) is not None:
                    if now - connection.heard > self.timing.silence:
                        self._lose(
                            link, connection, f"it has been silent for {self.timing.silence:g} s"
                        )
                    else:
                        connection.put(Frame(Kind.BEAT))
                elif (
                    not (link.closing or self._over)
                    and now - self._left.setdefault(peer, now) > self.timing.away
                ):
                    what = "did not come back to" if link.reason else "could not be reached at"
                    why = f" ({self._why[peer]})" if peer in self._why else ""
                    place = f"{self.carrier.where(peer)} within {self.timing.away:g} s{why}"
                    self._fail(f"{peer} {what} {place}; start all sides again")

    # endings

    def _complain(self, text: str) -> None:
        """Tells of strangers, and not for ever: anyone can knock."""
        self._complaints += 1
        if self._complaints <= COMPLAINTS:
            more = "; further ones are refused in silence" if self._complaints == COMPLAINTS else ""
            self._tell(Warned(text + more))

    def _tell(self, event: Event) -> None:
        """An error of whoever listens, such as a pipe that nobody reads, must not look like one of the network."""
        try:
            self.on_event(event)
        except Exception as error:
            self._stop(error)

    async def _guard(self, work: Callable[..., Coroutine[Any, Any, None]], *inputs: Any) -> None:
        """Work in the background: an error in it ends the conversation, or nobody would hear of it."""
        try:
            await work(*inputs)
        except Exception as error:
            self._stop(error)

    def _fail(self, text: str) -> None:
        self._stop(ChannelError(text))

    def _stop(self, error: Exception) -> None:
        if not self._end.done():
            self._end.set_exception(error)

    def _last_words(self, error: BaseException) -> str:
        """What peers may hear of an error: nothing that could hold data."""
        if isinstance(error, ChannelError):
            return f"stopped: {error}"
        own = (
            "by its user"
            if isinstance(error, asyncio.CancelledError)
            else "by an error on its side"
        )
        return f"was stopped {own}"

    async def _close(self, tasks: list[asyncio.Task[None]], last: Frame) -> None:
        try:
            for link in self.links.values():
                if link.connection is not None:
                    link.connection.put(last)
            async with asyncio.timeout(FAREWELL):
                while any(
                    link.connection is not None and not link.closing for link in self.links.values()
                ):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pass
        finally:
            await to_the_end(self._clear(tasks))

    async def _clear(self, tasks: list[asyncio.Task[None]]) -> None:
        await stop(*tasks)
        if not self._end.cancel():
            self._end.exception()  # is known by now
        for link in self.links.values():
            link.detach("the conversation is over")
        await self.carrier.close()
