"""A deployment rehearsed: sites with one shard each, and a server without data.

Only bytes pass between them. Run as a program, it is a site that speaks through standard input and
output.
"""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from tacit.core.rows import pick
from tacit.core.vectors import Layout
from tacit.models.model import make_module
from tacit.rounds.client import draw_batches, take_part
from tacit.rounds.participant import Memory, Participant, Reply
from tacit.rounds.server import broadcast, close_round, expected_form
from tacit.rounds.server_state import ServerState
from tacit.study.kinds.horizontal import HorizontalRun
from tacit.study.study import Study
from tacit.training.batches import Samples
from tacit.training.row_trainer import RowTrainer

Packet = dict[str, Tensor]  # named arrays, of any shape
COLUMNS = ("samples", "steps", "loss")


def to_bytes(packet: Mapping[str, Any]) -> bytes:
    """Plain arrays; nothing in it is code."""
    arrays = {name: np.asarray(value) for name, value in packet.items()}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def from_bytes(data: bytes) -> Packet:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name].copy()) for name in arrays.files}


def within(packet: Packet, prefix: str) -> Packet:
    """The entries below a prefix."""
    names = [name for name in packet if name.startswith(prefix)]
    return {name.removeprefix(prefix): packet[name] for name in names}


def below(prefix: str, rows: Mapping[str, Tensor]) -> Packet:
    """The same entries, with the prefix before their names."""
    return {f"{prefix}{name}": value for name, value in rows.items()}


class Site:
    """One client: its settings, its own samples, and what it remembers."""

    def __init__(
        self, settings: Mapping[str, Any], client: int, x: Tensor, y: Tensor, outputs: int
    ) -> None:
        self.run = run_of(settings)
        self.client = client
        self.shard = torch.arange(len(y))
        module = make_module(self.run.model, tuple(x.shape[1:]), outputs, self.run.seed)
        module = module.to(x.dtype)
        self.initial = Layout.of(module).flatten(module)
        self.trainer = RowTrainer(module, Samples(x, y))
        self.memory = Memory()
        self.pending = Memory()  # kept once the reply of the round `pending_round` is accepted
        self.pending_round = -1

    def hear(self, data: bytes) -> bytes | None:
        """Keeps its memory if its last reply was accepted, and takes part in a round if asked."""
        packet = from_bytes(data)
        if int(packet["accepted"]) == self.pending_round >= 0:
            self.memory = self.pending
            self.pending_round = -1
        if "round" not in packet:
            return None
        return self._take_part(int(packet["round"]), packet)

    def _take_part(self, round: int, packet: Packet) -> bytes:
        """The reply of this round, as bytes; nothing if there was no step to take."""
        participant = Participant(
            self.run, self.client, round, self.shard, self.initial, self.memory
        )
        batches = draw_batches(self.run, self.client, round, self.shard, self.trainer)
        sent = within(packet, "sent ")
        buffers = pick(within(packet, "buffers "), None)
        (outcome,) = take_part([participant], sent, [batches], self.trainer, buffers)
        if outcome is None:
            return b""
        self.pending = outcome.memory
        self.pending_round = round
        return write_reply(outcome.reply)

    def disk(self) -> bytes:
        """All that must outlive the process."""
        packet: dict[str, Any] = {"pending_round": self.pending_round}
        for name in ("memory", "pending"):
            memory = getattr(self, name)
            packet |= below(f"{name} method ", memory.method)
            packet |= below(f"{name} wire ", memory.wire)
        return to_bytes(packet)

    def restart(self, disk: bytes) -> None:
        """Goes on as a new process does, from what the old one left."""
        packet = from_bytes(disk)
        self.pending_round = int(packet["pending_round"])
        for name in ("memory", "pending"):
            method = within(packet, f"{name} method ")
            wire = within(packet, f"{name} wire ")
            setattr(self, name, Memory(method, wire))


class Coordinator:
    """The server: the model, and which reply of whom counted last."""

    def __init__(
        self, settings: Mapping[str, Any], shape: Sequence[int], outputs: int, everyone: int
    ) -> None:
        self.run = run_of(settings)
        self.everyone = everyone
        module = make_module(self.run.model, tuple(shape), outputs, self.run.seed)
        layout = Layout.of(module)
        server = self.run.algorithm.server_init(layout.flatten(module), self.run.clients)
        self.state = ServerState(server, layout.copy_buffers(module))
        self.accepted = [-1] * self.run.clients
        self.refused: list[str] = []

    @property
    def chosen(self) -> list[int]:
        return self.run.participants(self.state.round)

    def call(self, client: int) -> bytes:
        """What it sends to a client at the beginning of a round."""
        sent = broadcast(self.run, self.state.server, client)
        about = {"round": self.state.round, "accepted": self.accepted[client]}
        return to_bytes({**about, **below("sent ", sent), **below("buffers ", self.state.buffers)})

    def dismiss(self, client: int) -> bytes:
        """What it says after the last round."""
        return to_bytes({"accepted": self.accepted[client]})

    def close(self, replies: Sequence[bytes]) -> tuple[int, ...]:
        """Ends the round with these replies; the clients whose replies count."""
        end = close_round(
            self.run,
            self.state,
            [read_reply(data) for data in replies],
            chosen=self.chosen,
            form=expected_form(self.run, self.state),
            everyone=self.everyone,
        )
        assert end.state is not None
        self.refused += [why for _, why in end.refused]
        for client in end.accepted:
            self.accepted[client] = self.state.round
        self.state = end.state
        return end.accepted


def write_reply(reply: Reply) -> bytes:
    packet: dict[str, Any] = {"client": reply.client, "round": reply.round}
    for name in COLUMNS:
        column = getattr(reply, name)
        if column is not None:
            packet[name] = column
    return to_bytes({**packet, **below("message ", reply.message)})


def read_reply(data: bytes) -> Reply:
    packet = from_bytes(data)
    columns = {name: packet[name] for name in COLUMNS if name in packet}
    return Reply(int(packet["client"]), int(packet["round"]), within(packet, "message "), **columns)


def run_of(settings: Mapping[str, Any]) -> HorizontalRun:
    (run,) = Study(**settings).runs()
    assert isinstance(run, HorizontalRun)
    return run


class RemoteSite:
    """A site in a process of its own, behind two pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def ask(self, data: bytes) -> bytes:
        assert self.process.stdin
        assert self.process.stdout
        write_frame(self.process.stdin, data)
        answer = read_frame(self.process.stdout)
        assert answer is not None, "the site has died"
        return answer

    def take_over(
        self, settings: Mapping[str, Any], client: int, x: Tensor, y: Tensor, outputs: int
    ) -> None:
        """Makes it a client of this study, with these samples."""
        text = np.frombuffer(json.dumps(settings).encode(), np.uint8)
        self.ask(to_bytes({"settings": text, "client": client, "x": x, "y": y, "outputs": outputs}))


@contextmanager
def remote_sites(count: int) -> Iterator[list[RemoteSite]]:
    command = [sys.executable, str(Path(__file__))]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [subprocess.Popen(command, **pipes) for _ in range(count)]
    try:
        yield [RemoteSite(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def write_frame(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(struct.pack("!Q", len(data)) + data)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes | None:
    head = pipe.read(8)
    return pipe.read(*struct.unpack("!Q", head)) if head else None


def serve(incoming: IO[bytes], outgoing: IO[bytes]) -> None:
    """A site's life."""
    site: Site | None = None
    while (data := read_frame(incoming)) is not None:
        packet = from_bytes(data)
        answer: bytes | None = None
        if "settings" in packet:
            site = site_of(packet)
        else:
            assert site
            answer = site.hear(data)
        write_frame(outgoing, answer or b"")


def site_of(packet: Packet) -> Site:
    settings = json.loads(packet["settings"].numpy().tobytes())
    client = int(packet["client"])
    outputs = int(packet["outputs"])
    return Site(settings, client, packet["x"], packet["y"], outputs)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(sys.stdin.buffer, sys.stdout.buffer)
