"""What a reader of results should know of a table: it is kept with the encoding."""

from __future__ import annotations

from dataclasses import dataclass, field

from tacit.core.events import OnEvent, Warned


@dataclass
class TableNotes:
    """Notes in the order in which they are made. A warning is told at once, too."""

    name: str  # of the table
    on_event: OnEvent
    texts: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        self.texts.append(text)

    def warn(self, text: str) -> None:
        self.texts.append(text)
        self.on_event(Warned(f"{self.name}: {text}"))
