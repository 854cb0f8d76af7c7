"""The report of 25 runs x 50 rounds x 3 clients: how large the page is, and how soon it is ready.

"ready" is the time from opening the file until every chart is drawn and every control works, in
Chromium and by its own clock. "redrawn" is the time to draw all charts again, as a filter does.
Limits: 3 MB, 1 s.
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
OPENINGS = 7
NOTE_WHEN_READY = """
new MutationObserver(() => {
  if (document.documentElement.dataset.ready) window.readyAt ??= performance.now()
}).observe(document, {attributes: true, subtree: true})
"""
TIME_OF_DRAWING = """
() => {
  const start = performance.now()
  draw()
  return performance.now() - start
}
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        results = tacit.run(STUDY, Path(folder) / "study")
        start = time.perf_counter()
        page = write_page(results)
        written = time.perf_counter() - start
        print(f"size         {page.stat().st_size / 1e6:6.2f} MB (limit 3)")
        print(f"written in   {written:6.2f} s")
        openings = [_open(page.as_uri()) for _ in range(OPENINGS)]
    ready, redrawn = zip(*openings, strict=True)
    for name, times in (("ready after", ready), ("redrawn in", redrawn)):
        median = statistics.median(times)
        slowest = max(times)
        print(f"{name:12} {median:6.2f} s, slowest of {OPENINGS} {slowest:.2f} s (limit 1)")


def _open(address: str) -> tuple[float, float]:
    """Seconds until the page is ready, and to draw everything again."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    arguments = ["--no-sandbox", "--disable-gpu"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        page = browser.new_page()
        page.add_init_script(NOTE_WHEN_READY)
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        ready = page.evaluate("window.readyAt")
        drawing = page.evaluate(TIME_OF_DRAWING)
        browser.close()
    return ready / 1000, drawing / 1000


if __name__ == "__main__":
    main()
