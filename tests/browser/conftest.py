"""A real Chromium. Where there is none the tests are skipped, unless TACIT_BROWSER=required."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import Visit
from playground import COMPARED
from playwright.sync_api import Browser, sync_playwright

import tacit

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(
    scope="module"
)  # while it is there, Playwright keeps an event loop, and nobody else can run one
def browser() -> Iterator[Browser]:
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        reason = "there is no Chromium; install it with: apt-get install chromium"
        if os.environ.get("TACIT_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    found = Visit(context.new_page())
    found.page.on("console", lambda message: found.troubles.append(message.text))
    found.page.on("pageerror", lambda error: found.troubles.append(str(error)))
    found.page.on("request", lambda request: found.requests.append(request.url))
    yield found
    context.close()


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> tacit.Results:
    return tacit.run(COMPARED, tmp_path_factory.mktemp("report") / "study")


@pytest.fixture(scope="session")
def address(results: tacit.Results) -> str:
    return Path(results.report).absolute().as_uri()
