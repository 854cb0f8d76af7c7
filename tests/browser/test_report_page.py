"""The report in a real browser: the page as a whole."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import Visit
from pypdf import PdfReader

import tacit
from tacit.report.page import write_page

CHARTS = (
    "chart-score",
    "chart-loss",
    "chart-clients",
    "chart-fairness",
    "chart-splits",
    "chart-cost",
)
HEADINGS = (
    "Comparison",
    "Round by round",
    "Fairness",
    "Who holds what",
    "Cost",
    "Run it again",
)
TWENTY_FIVE_RUNS: dict[str, Any] = {
    "dataset": "iris",
    "model": "linear",
    "clients": 3,
    "algorithm": ["fedavg", {"name": "fedprox", "mu": [0.001, 0.01, 0.1, 1]}],
    "split": [
        "iid",
        "label_dirichlet",
        "quantity_skew",
        {"name": "labels_per_party", "labels": 2},
        "feature_noise",
    ],
}


def test_the_page_opens_without_a_complaint_and_asks_for_nothing(
    visit: Visit, address: str
) -> None:
    page = visit.open(address)
    for chart in CHARTS:
        assert page.locator(f"#{chart} .panel").count() > 0, chart
    page.wait_for_load_state("networkidle")
    assert visit.troubles == []
    assert visit.requests == [address]


def test_colours_follow_the_system_and_the_button(visit: Visit, address: str) -> None:
    def background() -> Any:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    page = visit.open(address)
    light = background()
    page.emulate_media(color_scheme="dark")
    dark = background()
    assert dark != light
    page.locator("#theme").click()
    assert background() == light
    page.locator("#theme").click()
    assert background() == dark


def test_printing_gives_all_sections_on_white_paper(visit: Visit, address: str) -> None:
    page = visit.open(address)
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    printed = PdfReader(io.BytesIO(page.pdf(format="A4", print_background=True)))
    sheets = [sheet.extract_text() for sheet in printed.pages]
    text = "\n".join(sheets)
    for heading in HEADINGS:
        assert heading in text
    assert "fedprox" in text
    assert "optimiser" in text
    assert 3 <= len(sheets) <= 15
    assert all(sheet.strip() for sheet in sheets)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit: Visit, address: str, scheme: Any) -> None:
    page = visit.open(address)
    page.emulate_media(color_scheme=scheme)
    for box in page.locator("details summary").all():
        box.click()
    violations = Axe().run(page).response["violations"]
    broken = [(rule["id"], rule["impact"], rule["nodes"][0]["html"]) for rule in violations]
    assert broken == []


def test_names_cannot_smuggle_a_script_into_the_page(visit: Visit, tmp_path: Path) -> None:
    name = "<img src=x onerror=console.error(1)>"
    label = "</script><script>console.error(2)</script>"
    rows = [f"{k / 7:.3f},{label if k % 2 else 'fine'}" for k in range(60)]
    (tmp_path / "odd.csv").write_text("\n".join(["a,kind", *rows]))
    table = {"name": "table", "path": str(tmp_path / "odd.csv"), "target": "kind"}
    study = {"name": name, "dataset": table, "model": "linear", "rounds": 1}
    results = tacit.run(study, tmp_path / "a")
    page = visit.open(results.report.as_uri())
    assert page.locator("h1").text_content() == name
    assert page.evaluate("data.sections.splits[0].labels") == [label, "fine"]
    assert visit.troubles == []


def test_a_large_study_makes_a_small_page(visit: Visit, tmp_path: Path) -> None:
    """25 runs of 50 rounds and 3 clients, from a history written as the engine writes it."""
    study = tacit.Study("large", rounds=1, **TWENTY_FIVE_RUNS)
    folder = tacit.run(study, tmp_path / "large").folder
    stretch(folder, 50)
    results = tacit.Results(folder)
    page = visit.open(write_page(results).as_uri())
    assert results.report.stat().st_size < 3_000_000
    assert page.locator("#chart-clients .panel").count() == 25
    assert visit.troubles == []


def stretch(folder: Path, rounds: int) -> None:
    """Repeats each run's only round, so that a long study need not be trained to be drawn."""
    for file in ("history.jsonl", "timings.jsonl"):
        lines = []
        for line in (folder / file).read_text().splitlines():
            record = json.loads(line)
            for k in range(rounds):
                lines.append(json.dumps({**record, "round": k + 1}) + "\n")
        (folder / file).write_text("".join(lines))
