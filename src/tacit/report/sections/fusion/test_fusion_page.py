"""The report's section on fusion, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import Visit
from playground import FUSED
from stored import Record, history_of, with_history

import tacit
from tacit.report.page import write_page

CHARTS = ("chart-fusion", "chart-widths", "chart-matching")
ONE_RUN: dict[str, Any] = {**FUSED, "fusion": "pfnm", "split": "iid", "seed": 0}


@pytest.fixture(scope="module")
def fused(tmp_path_factory: pytest.TempPathFactory) -> tacit.Results:
    return tacit.run(FUSED, tmp_path_factory.mktemp("fused") / "study")


@pytest.fixture(scope="module")
def fused_address(fused: tacit.Results) -> str:
    return fused.report.absolute().as_uri()


def test_the_section_stands_after_the_rounds_and_only_where_networks_were_fused(
    visit: Visit, address: str, fused_address: str
) -> None:
    page = visit.open(fused_address)
    ids = page.eval_on_selector_all("main section", "all => all.map(section => section.id)")
    order = [id for id in ids if id in ("comparison", "rounds", "fusion", "clients")]
    assert order == ["comparison", "rounds", "fusion", "clients"]
    assert page.locator("nav a[href='#fusion']").is_visible()
    assert [page.locator(f"#{chart} .panel").count() for chart in CHARTS] == [2, 2, 1]
    visit.open(address)
    assert page.locator("#fusion, nav a[href='#fusion'], #chart-matching").count() == 0
    assert visit.troubles == []


def test_dots_are_clients_of_local_networks_and_seeds_of_the_others(
    visit: Visit, fused_address: str, fused: tacit.Results
) -> None:
    page = visit.open(fused_address)
    titles = page.locator("#chart-fusion .panel:first-child .dot title").all_text_contents()
    dots = [title.rsplit(": ") for title in titles]
    scores = [(text, float(value)) for text, value in dots]
    local = [score for text, score in scores if text.startswith("local networks")]
    alone = []
    for record in fused.records:
        labels = fused.labels[record["run"]]
        if labels["split"] == "iid" and labels["algorithm"] == "pfnm":
            alone += record["fusion"]["alone"]
    assert local == pytest.approx(alone, rel=1e-3)
    assert len(titles) == 3 * 2 + 4 * 2
    means = page.locator("#chart-fusion svg[role=img]").first.get_attribute("aria-label") or ""
    assert f"pfnm {fused.table().loc['pfnm', 'iid']:.3g}" in means


def test_widths_are_those_of_the_table(visit: Visit, fused_address: str) -> None:
    page = visit.open(fused_address)
    row = page.locator("#fusion tbody[data-split=iid] tr[data-method=spahm]")
    cells = row.locator("td").all_text_contents()
    bars = page.locator("#chart-widths .panel:first-child g > title").all_text_contents()
    assert bars[1] == f"spahm: {cells[1]} of {cells[2]}; the widest local network has {cells[3]}"


def test_filters_rule_the_section(visit: Visit, fused_address: str) -> None:
    page = visit.open(fused_address)
    page.get_by_role("checkbox", name="pfnm").uncheck()
    page.get_by_role("checkbox", name="iid").uncheck()
    assert page.locator("#chart-fusion figcaption").all_text_contents() == ["label_dirichlet"]
    assert "pfnm" not in (page.locator("#chart-fusion svg").text_content() or "")
    assert page.locator("#chart-widths .bar").count() == 2 + 2  # of the legend, and of spahm
    visible = page.locator("#fusion tbody tr[data-method]:visible th").all_text_contents()
    assert visible == ["spahm"]
    caption = page.locator("#chart-matching figcaption").text_content() or ""
    assert "spahm, label_dirichlet, seed 0" in caption
    assert page.locator("#choose-matching option:not([disabled])").count() == 2
    page.get_by_role("checkbox", name="spahm").uncheck()
    assert page.locator("#chart-matching").text_content() == "Nothing is chosen above."
    assert visit.troubles == []


def test_every_neuron_has_its_line_and_the_arrow_keys_tell_whose_it_is(
    visit: Visit, fused_address: str, fused: tacit.Results
) -> None:
    page = visit.open(fused_address)
    run = list(fused.labels)[-1]
    page.locator("#choose-matching").select_option(run)
    fusion = next(record["fusion"] for record in fused.records if record["run"] == run)
    assert page.locator("#chart-matching .matching path.line").count() == 18
    assert page.locator("#chart-matching .global").count() == fusion["widths"][0]
    page.locator("#chart-matching svg[role=img]").focus()
    page.keyboard.press("End")
    heading = page.locator("#tip strong").text_content() or ""
    neuron = int(heading.split("global neuron ")[1].split(",")[0])
    expected = []
    for neurons in fusion["assignment"][0]:  # of each client
        expected.append(str(neurons.index(neuron)) if neuron in neurons else "none")
    shown = page.locator("#tip li b").all_text_contents()
    assert sorted(shown) == sorted(expected)
    assert page.locator("#chart-matching .matching g:not(.faded)").count() == 1
    page.keyboard.press("Escape")
    assert page.locator("#chart-matching .faded").count() == 0


def test_a_large_network_is_counted_and_not_drawn(
    visit: Visit, fused: tacit.Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.report.neuron_sharing.MOST_NEURONS", 17)
    copy = copied(fused, tmp_path, history_of(fused))
    page = visit.open(write_page(copy).as_uri())
    assert page.locator("#chart-matching svg[role=img]").count() == 0
    assert "too large to draw" in (page.locator("#chart-matching").text_content() or "")
    counts = page.locator("#chart-matching td").all_text_contents()
    assert sum((k + 1) * int(count) for k, count in enumerate(counts)) == 18
    assert visit.troubles == []


def test_a_study_that_is_going_says_so(visit: Visit, fused: tacit.Results, tmp_path: Path) -> None:
    records = history_of(fused)
    for record in records:
        del record["fusion"]["assignment"]
        record["status"] = "running"
    going = copied(fused, tmp_path, records)
    page = visit.open(write_page(going).as_uri())
    assert "when the run has ended" in (page.locator("#chart-matching").text_content() or "")
    assert page.locator("#chart-widths .panel").count() == 2
    assert visit.troubles == []


@pytest.mark.parametrize(
    ("settings", "rows", "layers"),
    [
        ({"model": {"name": "mlp", "hidden": [6, 4]}}, 4, 2),
        ({"widths": [4, 6, 9]}, 3, 1),
        ({"rounds": 3, "fusion": ["pfnm", "spahm"]}, 8, 1),
        ({"dataset": "diabetes"}, 4, 1),
    ],
)
def test_every_kind_of_fusion_is_drawn(
    visit: Visit, tmp_path: Path, settings: Any, rows: int, layers: int
) -> None:
    page = visit.open(tacit.run({**ONE_RUN, **settings}, tmp_path / "a").report.as_uri())
    assert page.locator("#chart-fusion .mean").count() == rows
    assert page.locator("#chart-matching .panel").count() == layers
    assert visit.troubles == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_section(visit: Visit, fused_address: str, scheme: Any) -> None:
    page = visit.open(fused_address)
    page.emulate_media(color_scheme=scheme)
    violations = Axe().run(page).response["violations"]
    broken = [(rule["id"], rule["impact"], rule["nodes"][0]["html"]) for rule in violations]
    assert broken == []


def test_a_phone_shows_the_section_without_scrolling_sideways(
    visit: Visit, fused_address: str
) -> None:
    visit.page.set_viewport_size({"width": 390, "height": 800})
    page = visit.open(fused_address)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def copied(results: tacit.Results, folder: Path, records: list[Record]) -> tacit.Results:
    """The same study and its timings in another folder, with these records as its history."""
    timings = (results.folder / "timings.jsonl").read_text()
    (folder / "timings.jsonl").write_text(timings)
    return with_history(results, folder, records)
