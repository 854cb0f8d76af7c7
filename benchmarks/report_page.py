"""The report of 25 runs x 50 rounds x 3 clients: how heavy the page is, and how soon it answers.

Time to interactive: from opening the file until every chart is drawn and every control listens, in Chromium, as its
own clock tells it. Limits: 3 MB, 1 s.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

import tacit
from tacit.report.page import write_page

STUDY = tacit.Study(
    "twenty-five runs",
    dataset="iris",
    model="linear",
    clients=3,
    rounds=50,
    algorithm=["fedavg", {"name": "fedprox", "mu": [0.001, 0.01, 0.1, 1]}],
    split=[
        "iid",
        "label_dirichlet",
        "quantity_skew",
        {"name": "labels_per_party", "labels": 2},
        "feature_noise",
    ],
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        results = tacit.run(STUDY, Path(folder) / "study")
        start = time.perf_counter()
        page = write_page(results)
        print(f"page            {page.stat().st_size / 1e6:6.2f} MB (limit 3)")
        print(f"written in      {time.perf_counter() - start:6.2f} s")
        found = [_open(page.as_uri()) for _ in range(7)]
        for name, index in (("interactive", 0), ("redrawn in", 1)):
            values = [one[index] for one in found]
            print(
                f"{name:15} {statistics.median(values):6.2f} s, slowest of 7 {max(values):.2f} s (limit 1)"
            )


def _open(address: str) -> tuple[float, float]:
    """Seconds until the page is ready, and to redraw everything after a filter is used."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        page.add_init_script(
            "new MutationObserver(() => {"
            " if (document.documentElement.dataset.ready) window.readyAt ??= performance.now() })"
            ".observe(document, {attributes: true, subtree: true})"
        )
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        ready = page.evaluate("window.readyAt") / 1000
        redraw = (
            page.evaluate(
                "() => { const t = performance.now(); draw(); return performance.now() - t }"
            )
            / 1000
        )
        browser.close()
    return ready, redraw


if __name__ == "__main__":
    main()
