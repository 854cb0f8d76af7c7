"""What the tasks of an endpoint share: whom to tell, and the first error, which ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tacit.channel.frames import ChannelError
from tacit.core.events import Event, OnEvent, Warned

COMPLAINTS = 20  # about strangers; later ones are refused in silence


class Conversation:
    """One run of an endpoint; it is made where an event loop is running."""

    def __init__(self, on_event: OnEvent) -> None:
        self.on_event = on_event
        self.complaints = 0
        # Done once an error has ended the conversation.
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(self, event: Event) -> None:
        """Tells whoever listens.

        An error of theirs, such as a pipe that nobody reads, must not look like one of the network.
        """
        try:
            self.on_event(event)
        except Exception as error:
            self.stop(error)

    def complain(self, text: str) -> None:
        """Tells of strangers, and not for ever: anyone can knock."""
        self.complaints += 1
        if self.complaints == COMPLAINTS:
            text += "; further ones are refused in silence"
        if self.complaints <= COMPLAINTS:
            self.tell(Warned(text))

    async def guard(self, work: Callable[..., Coroutine[Any, Any, None]], *inputs: Any) -> None:
        """Work in the background: an error in it ends the conversation.

        Otherwise nobody would hear of it.
        """
        try:
            await work(*inputs)
        except Exception as error:
            self.stop(error)

    def fail(self, text: str) -> None:
        """Ends the conversation for this reason."""
        self.stop(ChannelError(text))

    def stop(self, error: Exception) -> None:
        """Ends the conversation with this error; later errors are dropped."""
        if not self.failure.done():
            self.failure.set_exception(error)

    def close(self) -> None:
        """Nobody waits for an error any more."""
        if not self.failure.cancel():
            self.failure.exception()  # marks it as known, or asyncio would report it
