"""For all tests, those beside the code too: settings of libraries, a finished study, a browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from browsing import Visit
from hypothesis import settings

import tacit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

settings.register_profile("tacit", deadline=None)  # the first example pays for imports
settings.load_profile("tacit")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # runs our kernels; read when they are imported


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> tacit.Results:
    """A study of three methods on two splits with two seeds and a reference."""
    from playground import COMPARED  # imports our kernels, for which TRITON_INTERPRET has to be set

    return tacit.run(COMPARED, tmp_path_factory.mktemp("report") / "study")


@pytest.fixture(scope="session")
def address(results: tacit.Results) -> str:
    return results.report.absolute().as_uri()


@pytest.fixture(scope="session")
def screening(tmp_path_factory: pytest.TempPathFactory) -> tacit.Results:
    """A study of a rare outcome: two methods, two splits, groups, and names that are HTML."""
    from patients import a_study_of, rarely_ill

    folder = tmp_path_factory.mktemp("screening")
    groups = ["sex", "ward"]
    settings = a_study_of(rarely_ill(), folder / "rows.csv", "outcome", fairness=groups)
    settings |= {"algorithm": ["fedavg", "fedsgd"], "split": ["iid", "feature_noise"]}
    return tacit.run({**settings, "local_test": 0.3}, folder / "study")


@pytest.fixture(scope="module")  # Playwright keeps an event loop: while it is there nobody else can
def browser() -> Iterator[Browser]:
    """A real Chromium. Where there is none tests are skipped, unless TACIT_BROWSER=required."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        reason = "there is no Chromium; install it with: apt-get install chromium"
        if os.environ.get("TACIT_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        opened = playwright.chromium.launch(executable_path=path, args=arguments)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    visit = Visit(context.new_page())
    visit.page.on("console", lambda message: visit.troubles.append(message.text))
    visit.page.on("pageerror", lambda error: visit.troubles.append(str(error)))
    visit.page.on("request", lambda request: visit.requests.append(request.url))
    yield visit
    context.close()
