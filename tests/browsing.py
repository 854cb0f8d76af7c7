"""What the browser tests share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


@dataclass
class Visit:
    """An open page, with what went wrong and what it asked for."""

    page: Page
    troubles: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, address: str) -> Page:
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready]")
        return self.page
