"""The report's charts in a real browser: what they draw, and what readers can do with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from browsing import Visit
from stored import history_of, with_history

import tacit
from tacit.report.page import write_page


def line_names(visit: Visit, chart: str) -> list[str]:
    """The names of the lines that a chart shows, panel by panel."""
    names = visit.page.eval_on_selector_all(
        f"#{chart} .panel path.line", "lines => lines.map(line => line.dataset.name)"
    )
    return [str(name) for name in names]


def points_of(path: str) -> list[tuple[float, float]]:
    """The points of a drawn path, such as "M1 2L3 4Z"."""
    points = []
    for pair in path.strip("MZ").split("L"):
        x, y = pair.split()
        points.append((float(x), float(y)))
    return points


def test_filters_rule_charts_and_tables(visit: Visit, address: str) -> None:
    page = visit.open(address)
    assert line_names(visit, "chart-score") == ["fedavg", "fedprox", "fedsgd", "centralised"] * 2
    page.get_by_role("checkbox", name="fedprox").uncheck()
    assert line_names(visit, "chart-score") == ["fedavg", "fedsgd", "centralised"] * 2
    assert page.locator("#comparison tr[data-method=fedprox]").first.is_hidden()
    assert page.locator("#comparison tr[data-method=fedavg]").first.is_visible()
    page.get_by_role("checkbox", name="iid").uncheck()
    assert page.locator("#chart-score .panel figcaption").all_text_contents() == ["label_dirichlet"]
    assert page.locator("#chart-splits .panel").count() == 3
    assert page.locator("#comparison th[data-split=iid]").first.is_hidden()
    titles = page.locator("#chart-clients figcaption").all_text_contents()
    assert titles == ["fedavg, label_dirichlet", "fedsgd, label_dirichlet"]
    page.get_by_role("checkbox", name="fedprox").check()
    assert "fedprox" in line_names(visit, "chart-score")
    assert visit.troubles == []


def test_a_chart_holds_what_the_csv_holds(
    visit: Visit, address: str, results: tacit.Results
) -> None:
    page = visit.open(address)
    data = json.loads(page.locator("#data").text_content() or "")
    rounds = pd.read_csv(results.folder / "rounds.csv", float_precision="round_trip")
    for curve in data["curves"]:
        of_run = rounds[rounds["run"] == curve["run"]]
        assert curve["round"] == of_run["round"].tolist()
        assert curve["score"] == of_run["accuracy"].tolist()
        assert curve["loss"] == of_run["loss"].tolist()
    clients = pd.read_csv(results.folder / "clients.csv")
    for curve in data["clients"]:
        of_run = clients[clients["run"] == curve["run"]]
        table = of_run.pivot(index="client", columns="round", values="test_accuracy")
        assert curve["test"] == [pytest.approx(row, rel=1e-4) for row in table.to_numpy().tolist()]


def test_what_is_drawn_is_the_mean_over_the_seeds(
    visit: Visit, address: str, results: tacit.Results
) -> None:
    page = visit.open(address)
    box = page.locator("#chart-score details")
    box.locator("summary").click()
    cells = box.locator("table").evaluate(
        "table => [...table.rows].map(row => [...row.cells].map(cell => cell.innerText))"
    )
    shown = pd.DataFrame(cells[1:], columns=cells[0]).astype(float)
    rounds = results.frame()
    for split in ("iid", "label_dirichlet"):
        for method in ("fedavg", "fedprox", "fedsgd"):
            of_cell = rounds[(rounds["split"] == split) & (rounds["algorithm"] == method)]
            means = of_cell.groupby("round")["accuracy"].mean()
            assert shown[f"{method}, {split}"].tolist() == pytest.approx(means.tolist(), rel=1e-3)
    drawn = page.eval_on_selector_all(
        "#chart-score .panel:first-child path.line",
        "lines => lines.map(line => [line.dataset.name, line.getAttribute('d')])",
    )
    last_heights = {name: points_of(path)[-1][1] for name, path in drawn}
    by_height = sorted(last_heights, key=last_heights.__getitem__)  # the page counts downwards
    last = shown.iloc[-1]
    scores = [last[f"{name}, iid"] for name in by_height]
    assert scores == sorted(scores, reverse=True)


def test_the_pointer_and_the_arrow_keys_tell_values(
    visit: Visit, address: str, results: tacit.Results
) -> None:
    page = visit.open(address)
    panel = page.locator("#chart-score .panel svg[role=img]").first
    panel.hover()
    assert page.locator("#tip").is_visible()
    page.mouse.move(0, 0)
    assert page.locator("#tip").is_hidden()
    panel.focus()
    page.keyboard.press("End")
    assert "round 4" in (page.locator("#tip strong").text_content() or "")
    items = page.eval_on_selector_all(
        "#tip li",
        "all => all.map(li => [li.childNodes[1].textContent.trim(), li.lastChild.textContent])",
    )
    values = dict(items)
    assert float(values["fedavg"]) == pytest.approx(results.table().loc["fedavg", "iid"], rel=1e-3)
    page.keyboard.press("ArrowLeft")
    assert "round 3" in (page.locator("#tip strong").text_content() or "")
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def test_legend_and_lines_agree(visit: Visit, address: str) -> None:
    page = visit.open(address)
    items = page.eval_on_selector_all(
        "#chart-score .legend li",
        "all => all.map(li => [li.textContent, li.querySelector('path').getAttribute('class')])",
    )
    drawn = page.eval_on_selector_all(
        "#chart-score .panel path.line",
        "lines => lines.map(line => [line.dataset.name, line.getAttribute('class')])",
    )
    legend = dict(items)
    assert len(set(legend.values())) == len(legend) == 4
    assert all(legend[name] == style for name, style in drawn)


def test_a_band_goes_from_the_lowest_to_the_highest_seed(
    visit: Visit, address: str, results: tacit.Results
) -> None:
    page = visit.open(address)
    first = page.locator("#chart-score .panel:first-child")
    band = points_of(first.locator("path.band").first.get_attribute("d") or "")
    line = points_of(first.locator("path.line[data-name=fedavg]").get_attribute("d") or "")
    rounds = results.frame()
    of_cell = rounds[(rounds["split"] == "iid") & (rounds["algorithm"] == "fedavg")]
    scores = of_cell.groupby("round")["accuracy"]
    spreads = scores.max() - scores.min()
    spreads = spreads[spreads > 0].tolist()  # where the seeds differ
    count = len(spreads)
    assert len(band) == 2 * count
    upper = [y for _, y in band[:count]]
    lower = [y for _, y in band[count:]]
    lower.reverse()  # the band is drawn around, and comes back below
    pixels = [low - up for low, up in zip(lower, upper, strict=True)]
    means = scores.mean().tolist()
    first_height = line[0][1]
    last_height = line[-1][1]
    unit = (first_height - last_height) / (means[-1] - means[0])  # pixels for an accuracy of one
    assert pixels == pytest.approx([unit * spread for spread in spreads], abs=0.4)


def test_dots_are_the_honest_clients_of_every_seed_after_the_last_round(
    visit: Visit, address: str, results: tacit.Results
) -> None:
    page = visit.open(address)
    titles = page.locator("#chart-fairness .panel:first-child .dot title").all_text_contents()
    last = results.client_frame().query("round == 4 and split == 'iid'")
    last = last[last["algorithm"] != "centralised"]
    assert len(titles) == len(last) == 3 * 2 * 3
    shown = sorted(float(title.rsplit(": ")[1]) for title in titles)
    assert shown == pytest.approx(sorted(last["test_accuracy"]), rel=1e-3)


def test_attackers_are_marked_in_their_curves_and_have_no_dot(visit: Visit, tmp_path: Path) -> None:
    study = {
        "dataset": "iris",
        "model": "linear",
        "clients": 5,
        "rounds": 3,
        "algorithm": "fedavg",
        "split": "iid",
        "attackers": {"count": 2, "kind": "sign_flip"},
    }
    page = visit.open(tacit.run(study, tmp_path / "a").report.as_uri())
    assert page.locator("#chart-fairness .dot").count() == 3
    assert page.locator("#chart-clients .mark").count() == 2


def test_bars_tell_sizes_and_labels(visit: Visit, address: str, results: tacit.Results) -> None:
    page = visit.open(address)

    def bar_titles(panel: int) -> list[str]:
        bars = page.locator(f"#chart-splits .panel:nth-child({panel}) .bar title")
        return bars.all_text_contents()

    portrait = results.portraits[0]
    for panel, counts in ((1, portrait.train), (2, portrait.test)):
        shown = sorted(int(title.rsplit(": ")[1]) for title in bar_titles(panel))
        assert shown == sorted(count for row in counts for count in row)
    sizes = dict(title.split(": ") for title in bar_titles(3))
    assert int(sizes["train, client 0"]) == sum(portrait.train[0])
    assert int(sizes["local test, client 0"]) == sum(portrait.test[0])


def test_scores_that_never_change_are_drawn_too(
    visit: Visit, results: tacit.Results, tmp_path: Path
) -> None:
    records = history_of(results)
    for record in records:
        record["accuracy"] = 0.8
        if record["round"] % 2 == 0:
            record["accuracy"] = (0.8 + 0.8 + 0.8) / 3  # differs in the last digit
    page = visit.open(write_page(with_history(results, tmp_path, records)).as_uri())
    assert page.locator("#chart-score .panel").count() == 2
    assert visit.troubles == []


def test_the_pointer_finds_its_round_in_charts_of_every_size(visit: Visit, address: str) -> None:
    page = visit.open(address)
    view_boxes = set()
    for chart in ("chart-score", "chart-clients", "chart-cost"):
        panel = page.locator(f"#{chart} .panel svg[role=img]").first
        panel.scroll_into_view_if_needed()
        view_box = panel.get_attribute("viewBox") or ""
        view_boxes.add(view_box)
        box = panel.bounding_box()
        assert box
        scale = box["width"] / float(view_box.split()[2])
        middle = box["y"] + box["height"] / 2
        line = points_of(panel.locator("path.line").first.get_attribute("d") or "")
        for k, (x, _) in enumerate(line):
            page.mouse.move(box["x"] + x * scale, middle)
            guide = page.locator(f"#{chart} .panel .guide").first.get_attribute("x1")
            assert float(guide or 0) == pytest.approx(x, abs=0.1), (chart, k)
    assert len(view_boxes) == 2


def test_metric_seed_and_cost_can_be_chosen(visit: Visit, address: str) -> None:
    page = visit.open(address)

    def first_path(chart: str) -> str:
        return page.locator(f"#{chart} .panel path.line").first.get_attribute("d") or ""

    for select, chart, value in (
        ("choose-local", "chart-clients", "loss"),
        ("choose-seed", "chart-clients", "1"),
        ("choose-cost", "chart-cost", "time"),
    ):
        before = first_path(chart)
        page.locator(f"#{select}").select_option(value)
        assert first_path(chart) != before
    assert page.locator("#choose-split-seed").input_value() == "1"
    assert visit.troubles == []


def test_a_crowd_shows_its_last_cohort(visit: Visit, tmp_path: Path) -> None:
    study: dict[str, Any] = {
        "model": "linear",
        "algorithm": ["fedavg", "scaffold"],
        "rounds": 3,
        "clients": 120,
        "selection": {"name": "fraction", "c": 0.1},
    }
    untested = tacit.run({**study, "local_test": 0}, tmp_path / "untested")
    page = visit.open(untested.report.absolute().as_uri())
    assert page.locator("#chart-fairness .dot").count() == 0
    tested = tacit.run(study, tmp_path / "tested")
    page = visit.open(tested.report.absolute().as_uri())
    last = tested.client_frame().query("round == 3")
    titles = page.locator("#chart-fairness .dot title").all_text_contents()
    assert len(titles) == 2 * 12
    shown = {title.split(", ")[1].split(":")[0] for title in titles}
    assert shown == {f"client {client}" for client in last["client"]}
    wanted = [f"{name}, local test" for name in ("highest", "median", "lowest")]
    assert line_names(visit, "chart-clients")[1::2] == 2 * wanted
    assert visit.troubles == []
