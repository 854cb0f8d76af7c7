"""How two sides that have shown their certificates say who they are and which program they run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tacit.channel.connection import Connection
from tacit.channel.frames import ChannelError, Frame, GarbageError, Kind

LONGEST = 4096  # bytes
LONGEST_PROCESS = 64  # letters
LONGEST_SHOWN = 64  # letters of what the other side says
EPOCHS = 1 << 62
LEAP = 1000  # epochs by which a peer may be ahead of us, after as many starts of others


@dataclass(frozen=True)
class Hello:
    sender: str
    receiver: str
    process: str  # a random name; another one means that the program was started anew
    epoch: int
    purpose: str

    def frame(self) -> Frame:
        return Frame(Kind.HELLO, data=json.dumps(asdict(self)).encode())

    @staticmethod
    def parse(frame: Frame) -> Hello:
        """What the other side says of itself; GarbageError where it is not a hello."""
        if frame.kind is Kind.REFUSED:
            raise ChannelError(f"refused us: {frame.words}")
        if frame.kind is not Kind.HELLO or len(frame.data) > LONGEST:
            raise GarbageError("did not introduce itself")
        try:
            entries: Any = json.loads(bytes(frame.data))
        except (ValueError, RecursionError):
            entries = None
        if not isinstance(entries, dict) or not _has_fields(entries):
            raise GarbageError("introduced itself in a way that this version does not understand")
        hello = Hello(**entries)
        if not 0 <= hello.epoch < EPOCHS or not 0 < len(hello.process) <= LONGEST_PROCESS:
            raise GarbageError("introduced itself with an impossible epoch or process")
        return hello

    def check(self, connection: Connection, ours: Hello, peers: list[str]) -> None:
        """Refuses whoever is not who it says, or is wrong here; `ours` is what we say."""
        me = ours.sender
        if self.sender != connection.peer:
            sender = self.sender[:LONGEST_SHOWN]
            raise ChannelError(
                f"says that it is {sender!r}, and its certificate says {connection.peer}"
            )
        if self.sender not in peers:
            names = ", ".join(sorted([me, *peers]))
            raise ChannelError(f"is not part of this session, which is between {names}")
        if self.receiver != me:
            raise ChannelError(f"wanted {self.receiver[:LONGEST_SHOWN]!r}, and this is {me}")
        if self.purpose != ours.purpose:
            raise ChannelError(
                f"runs {self.purpose[:LONGEST_SHOWN]!r}, and {me} runs {ours.purpose!r}; "
                "run the same on both sides"
            )
        if self.epoch > ours.epoch + LEAP:
            raise GarbageError("introduced itself with an impossible epoch")


def _has_fields(entries: dict[str, Any]) -> bool:
    """Whether these are the fields of a hello, each of its type; True is no epoch."""
    types = {name: type(value) for name, value in entries.items()}
    return types == {"sender": str, "receiver": str, "process": str, "epoch": int, "purpose": str}
