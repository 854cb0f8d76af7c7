"""How two sides that have shown their certificates say who they are and which program they run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tacit.channel.connection import Connection
from tacit.channel.frames import ChannelError, Frame, GarbageError, Kind

LONGEST = 4096  # bytes


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
            said: Any = json.loads(frame.data)
        except (ValueError, RecursionError):
            said = None
        kinds = {"sender": str, "receiver": str, "process": str, "epoch": int, "purpose": str}
        if not isinstance(said, dict) or {key: type(value) for key, value in said.items()} != kinds:
            raise GarbageError("introduced itself in a way that this version does not understand")
        if not 0 <= said["epoch"] < 1 << 32 or not 0 < len(said["process"]) <= 64:
            raise GarbageError("introduced itself with an impossible epoch or process")
        return Hello(**said)

    def check(self, connection: Connection, me: str, peers: list[str], purpose: str) -> None:
        """Refuses whoever is not who it says, or is wrong here."""
        if self.sender != connection.peer:
            raise ChannelError(
                f"says that it is {self.sender[:64]!r}, and its certificate says {connection.peer}"
            )
        if self.sender not in peers:
            raise ChannelError(
                f"is not part of this session, which is between {', '.join(sorted([me, *peers]))}"
            )
        if self.receiver != me:
            raise ChannelError(f"wanted {self.receiver[:64]!r}, and this is {me}")
        if self.purpose != purpose:
            raise ChannelError(
                f"runs {self.purpose[:64]!r}, and {me} runs {purpose!r}; run the same on both sides"
            )
