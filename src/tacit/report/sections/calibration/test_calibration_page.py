"""Metrics, calibration, groups and columns of the report, in a real browser."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import Visit
from patients import DOSE, FEMALE, ILL

import tacit

CHART = "#chart-calibration"


@pytest.fixture(scope="module")
def screened(screening: tacit.Results) -> str:
    return screening.report.absolute().as_uri()


def test_calibration_has_a_panel_per_split_and_one_for_the_clients(
    visit: Visit, screened: str, screening: tacit.Results
) -> None:
    page = visit.open(screened)
    assert page.locator(f"{CHART} figcaption").all_text_contents() == screening.column_names
    names = page.locator(f"{CHART} .panel:first-child path.line").evaluate_all(
        "lines => lines.map(line => line.dataset.name)"
    )
    assert names == ["as they say", *screening.methods]
    page.locator("#choose-calibration").select_option("clients")
    best = screening.best()
    title = f"{screening.names[best]}, {screening.column_of(best)}"
    assert page.locator(f"{CHART} figcaption").all_text_contents() == [title]
    shown = page.locator(f"{CHART} .legend li").all_text_contents()
    assert shown == ["as they say", "client 0", "client 1", "client 2"]
    assert visit.troubles == []


def test_filters_rule_the_rows_of_methods_and_splits_alike(visit: Visit, screened: str) -> None:
    page = visit.open(screened)
    tables = ("#metrics table.metrics", "#calibration table", "#fairness table")
    hidden = page.locator(", ".join(f"{table} [data-method=fedsgd]" for table in tables))
    assert hidden.count() > 4
    assert hidden.filter(visible=True).count() == hidden.count()
    page.get_by_role("checkbox", name="fedsgd").uncheck()
    assert hidden.filter(visible=True).count() == 0
    kept = page.locator("#metrics table.metrics [data-method=fedavg]:visible")
    assert kept.count() == 2
    page.get_by_role("checkbox", name="iid").uncheck()
    assert kept.count() == 1
    assert page.locator("#calibration table.heat:visible").count() == 1
    assert page.locator(f"{CHART} .panel").count() == 1
    assert visit.troubles == []


def test_names_from_the_table_are_shown_and_never_run(visit: Visit, screened: str) -> None:
    page = visit.open(screened)
    for section, name in (("calibration", ILL), ("fairness", FEMALE), ("importance", DOSE)):
        assert page.locator(f"#{section} th", has_text=name).count() > 0
    assert page.locator(".findings li", has_text=ILL).count() >= 2
    assert page.locator("main b, main i, main section script").count() == 0
    assert visit.troubles == []


def test_a_reference_stands_in_every_panel(
    visit: Visit, address: str, results: tacit.Results
) -> None:
    page = visit.open(address)
    panels = page.locator(f"{CHART} .panel")
    assert panels.locator("figcaption").all_text_contents() == results.column_names
    assert panels.locator("path.line.reference[data-name=centralised]").count() == 2
    assert panels.locator("path.line.reference[data-name='as they say']").count() == 0


def test_axe_finds_nothing_in_the_dark(visit: Visit, screened: str) -> None:
    page = visit.open(screened)
    page.emulate_media(color_scheme="dark")
    violations = Axe().run(page).response["violations"]
    broken = [(rule["id"], rule["impact"], rule["nodes"][0]["html"]) for rule in violations]
    assert broken == []


def test_a_phone_shows_the_page_without_scrolling_sideways(visit: Visit, screened: str) -> None:
    visit.page.set_viewport_size({"width": 390, "height": 800})
    page = visit.open(screened)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
