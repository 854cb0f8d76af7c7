"""The report in a real browser."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import Visit
from pypdf import PdfReader

import tacit

CHARTS = (
    "chart-score",
    "chart-loss",
    "chart-clients",
    "chart-fairness",
    "chart-splits",
    "chart-cost",
)


def lines(visit: Visit, chart: str) -> list[str]:
    """The names of the lines that a chart shows, panel by panel."""
    found = visit.page.eval_on_selector_all(
        f"#{chart} .panel path.line", "all => all.map(one => one.dataset.name)"
    )
    return [str(name) for name in found]


def test_the_page_opens_without_a_complaint_and_asks_for_nothing(
    visit: Visit, address: str
) -> None:
    page = visit.open(address)
    for chart in CHARTS:
        assert page.locator(f"#{chart} .panel").count() > 0, chart
    page.wait_for_timeout(300)
    assert visit.troubles == []
    assert visit.requests == [address]


def test_filters_rule_charts_and_tables(visit: Visit, address: str) -> None:
    page = visit.open(address)
    assert lines(visit, "chart-score") == ["fedavg", "fedprox", "fedsgd", "centralised"] * 2
    page.get_by_role("checkbox", name="fedprox").uncheck()
    assert lines(visit, "chart-score") == ["fedavg", "fedsgd", "centralised"] * 2
    assert page.locator("#comparison tr[data-method=fedprox]").first.is_hidden()
    assert page.locator("#comparison tr[data-method=fedavg]").first.is_visible()
    page.get_by_role("checkbox", name="iid").uncheck()
    assert page.locator("#chart-score .panel figcaption").all_text_contents() == ["label_dirichlet"]
    assert page.locator("#chart-splits .panel").count() == 3
    assert page.locator("#comparison th[data-split=iid]").first.is_hidden()
    titles = page.locator("#chart-clients figcaption").all_text_contents()
    assert titles == ["fedavg, label_dirichlet", "fedsgd, label_dirichlet"]
    page.get_by_role("checkbox", name="fedprox").check()
    assert "fedprox" in lines(visit, "chart-score")
    assert visit.troubles == []


def test_a_chart_holds_what_the_csv_holds(
    visit: Visit, address: str, results: tacit.Results
) -> None:
    page = visit.open(address)
    data = json.loads(page.locator("#data").text_content() or "")
    rounds = pd.read_csv(results.folder / "rounds.csv", float_precision="round_trip")
    for curve in data["curves"]:
        mine = rounds[rounds["run"] == curve["run"]]
        assert curve["round"] == mine["round"].tolist()
        assert curve["score"] == mine["accuracy"].tolist()
        assert curve["loss"] == mine["loss"].tolist()
    clients = pd.read_csv(results.folder / "clients.csv")
    for curve in data["clients"]:
        mine = clients[clients["run"] == curve["run"]].pivot(
            index="client", columns="round", values="test_accuracy"
        )
        assert curve["test"] == [pytest.approx(row, rel=1e-4) for row in mine.to_numpy().tolist()]


def test_what_is_drawn_is_the_mean_over_the_seeds(
    visit: Visit, address: str, results: tacit.Results
) -> None:
    page = visit.open(address)
    box = page.locator("#chart-score details")
    box.locator("summary").click()
    cells = box.locator("table").evaluate(
        "table => [...table.rows].map(row => [...row.cells].map(one => one.innerText))"
    )
    shown = pd.DataFrame(cells[1:], columns=cells[0]).astype(float)
    rounds = results.frame()
    for split in ("iid", "label_dirichlet"):
        for method in ("fedavg", "fedprox", "fedsgd"):
            mine = rounds[(rounds["split"] == split) & (rounds["algorithm"] == method)]
            means = mine.groupby("round")["accuracy"].mean()
            assert shown[f"{method}, {split}"].tolist() == pytest.approx(means.tolist(), rel=1e-3)
    ends = page.eval_on_selector_all(  # the last point of every line, in the picture's own coordinates
        "#chart-score .panel:first-child path.line",
        "all => all.map(one => [one.dataset.name, Number(one.getAttribute('d').split(' ').at(-1))])",
    )
    last = shown.iloc[-1]
    by_height = [
        name for name, _ in sorted(ends, key=lambda pair: pair[1])
    ]  # the page counts downwards
    assert [last[f"{name}, iid"] for name in by_height] == sorted(
        (last[f"{n}, iid"] for n in by_height), reverse=True
    )


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
    told = dict(
        page.eval_on_selector_all(
            "#tip li",
            "all => all.map(li => [li.childNodes[1].textContent.trim(), li.lastChild.textContent])",
        )
    )
    assert float(told["fedavg"]) == pytest.approx(results.table().loc["fedavg", "iid"], rel=1e-3)
    page.keyboard.press("ArrowLeft")
    assert "round 3" in (page.locator("#tip strong").text_content() or "")
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def test_legend_and_lines_agree(visit: Visit, address: str) -> None:
    page = visit.open(address)
    known = dict(
        page.eval_on_selector_all(
            "#chart-score .legend li",
            "all => all.map(li => [li.textContent, li.querySelector('path').getAttribute('class')])",
        )
    )
    drawn = page.eval_on_selector_all(
        "#chart-score .panel path.line",
        "all => all.map(one => [one.dataset.name, one.getAttribute('class')])",
    )
    assert len(set(known.values())) == len(known) == 4
    assert all(known[name] == style for name, style in drawn)


def test_a_band_goes_from_the_lowest_to_the_highest_seed(
    visit: Visit, address: str, results: tacit.Results
) -> None:
    page = visit.open(address)
    bands = page.eval_on_selector_all(
        "#chart-score .panel:first-child path.band", "all => all.map(one => one.getAttribute('d'))"
    )
    rounds = results.frame()
    mine = rounds[(rounds["split"] == "iid") & (rounds["algorithm"] == "fedavg")].groupby("round")[
        "accuracy"
    ]
    wide = [(low, high) for low, high in zip(mine.min(), mine.max(), strict=True) if low < high]
    points = [float(pair.split()[1]) for pair in bands[0].strip("MZ").split("L")]
    assert len(points) == 2 * len(wide)
    upper, lower = points[: len(wide)], points[len(wide) :][::-1]
    line = page.eval_on_selector_all(
        "#chart-score .panel:first-child path.line[data-name=fedavg]",
        "all => all[0].getAttribute('d')",
    )
    heights = [float(pair.split()[1]) for pair in line.strip("M").split("L")]
    means = mine.mean().tolist()
    unit = (heights[0] - heights[-1]) / (means[-1] - means[0])  # pixels for an accuracy of one
    pixels = [(low - up) for low, up in zip(lower, upper, strict=True)]
    assert pixels == pytest.approx([unit * (high - low) for low, high in wide], abs=0.4)


def test_dots_are_the_honest_clients_of_every_seed_after_the_last_round(
    visit: Visit, address: str, results: tacit.Results
) -> None:
    page = visit.open(address)
    titles = page.locator("#chart-fairness .panel:first-child .dot title").all_text_contents()
    clients = results.client_frame()
    last = clients[
        (clients["split"] == "iid")
        & (clients["round"] == 4)
        & (clients["algorithm"] != "centralised")
    ]
    assert len(titles) == len(last) == 3 * 2 * 3
    shown = sorted(float(title.rsplit(": ")[1]) for title in titles)
    assert shown == pytest.approx(sorted(last["test_accuracy"]), rel=1e-3)


def test_attackers_are_marked_in_their_curves_and_have_no_dot(visit: Visit, tmp_path: Path) -> None:
    attack = {"count": 2, "kind": "sign_flip"}
    study = {
        **STUDY_25,
        "clients": 5,
        "rounds": 3,
        "algorithm": "fedavg",
        "split": "iid",
        "attackers": attack,
    }
    page = visit.open(tacit.run(study, tmp_path / "a").report.as_uri())
    assert page.locator("#chart-fairness .dot").count() == 3
    assert page.locator("#chart-clients .mark").count() == 2


def test_bars_tell_sizes_and_labels(visit: Visit, address: str, results: tacit.Results) -> None:
    page = visit.open(address)
    portrait = results.portraits[0]
    for place, counts in ((1, portrait.train), (2, portrait.test)):
        titles = page.locator(
            f"#chart-splits .panel:nth-child({place}) .bar title"
        ).all_text_contents()
        found = sorted(int(title.rsplit(": ")[1]) for title in titles)
        assert found == sorted(count for row in counts for count in row)
    titles = page.locator("#chart-splits .panel:nth-child(3) .bar title").all_text_contents()
    sizes = {title.split(": ")[0]: int(title.split(": ")[1]) for title in titles}
    assert sizes["train, client 0"] == sum(portrait.train[0])
    assert sizes["local test, client 0"] == sum(portrait.test[0])


def test_scores_that_never_change_are_drawn_too(
    visit: Visit, results: tacit.Results, tmp_path: Path
) -> None:
    for name in ("study.yaml", "runs.json", "splits.json"):
        (tmp_path / name).write_text((results.folder / name).read_text())
    lines = [
        json.loads(line) for line in (results.folder / "history.jsonl").read_text().splitlines()
    ]
    for line in lines:
        line["accuracy"] = 0.8 if line["round"] % 2 else (0.8 + 0.8 + 0.8) / 3
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    from tacit.report.page import write_page

    page = visit.open(write_page(tacit.Results(tmp_path)).as_uri())
    assert page.locator("#chart-score .panel").count() == 2
    assert visit.troubles == []


def test_the_pointer_finds_its_round_in_charts_of_every_size(visit: Visit, address: str) -> None:
    page = visit.open(address)
    sizes = set()
    for chart in ("chart-score", "chart-clients", "chart-cost"):
        panel = page.locator(f"#{chart} .panel svg[role=img]").first
        panel.scroll_into_view_if_needed()
        sizes.add(panel.get_attribute("viewBox"))
        box, wide = panel.bounding_box(), float((panel.get_attribute("viewBox") or "").split()[2])
        ends = panel.locator("path.line").first.get_attribute("d") or ""
        places = [float(pair.split()[0]) for pair in ends.strip("M").split("L")]
        assert box
        for k, place in enumerate(places):
            page.mouse.move(box["x"] + place / wide * box["width"], box["y"] + box["height"] / 2)
            drawn = page.locator(f"#{chart} .panel .guide").first.get_attribute("x1")
            assert float(drawn or 0) == pytest.approx(place, abs=0.1), (chart, k)
    assert len(sizes) == 2


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
    text = "\n".join(sheet.extract_text() for sheet in printed.pages)
    for heading in (
        "Comparison",
        "Round by round",
        "Fairness",
        "Who holds what",
        "Cost",
        "Run it again",
    ):
        assert heading in text
    assert "fedprox" in text
    assert "optimiser" in text
    assert 3 <= len(printed.pages) <= 15
    assert all(sheet.extract_text().strip() for sheet in printed.pages)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit: Visit, address: str, scheme: Any) -> None:
    page = visit.open(address)
    page.emulate_media(color_scheme=scheme)
    for box in page.locator("details summary").all():
        box.click()
    found = Axe().run(page).response["violations"]
    assert [(one["id"], one["impact"], one["nodes"][0]["html"]) for one in found] == []


def test_names_cannot_smuggle_a_script_into_the_page(visit: Visit, tmp_path: Path) -> None:
    name, label = (
        "<img src=x onerror=console.error(1)>",
        "</script><script>console.error(2)</script>",
    )
    rows = [f"{k % 7},{label if k % 2 else 'fine'}" for k in range(60)]
    (tmp_path / "odd.csv").write_text("\n".join(["a,kind", *rows]))
    table = {"name": "table", "path": str(tmp_path / "odd.csv"), "target": "kind"}
    made = tacit.run(
        {"name": name, "dataset": table, "model": "linear", "rounds": 1}, tmp_path / "a"
    )
    page = visit.open(made.report.as_uri())
    assert page.locator("h1").text_content() == name
    assert page.evaluate("data.sections.splits[0].labels") == [
        "</script><script>console.error(2)</script>",
        "fine",
    ]
    assert visit.troubles == []


def test_a_large_study_makes_a_small_page(visit: Visit, tmp_path: Path) -> None:
    """25 runs of 50 rounds and 3 clients, from a history written as the engine writes it."""
    study = tacit.Study(
        "large",
        **{**STUDY_25, "rounds": 1},
    )
    made = tacit.run(study, tmp_path / "large")
    stretch(made.folder, 50)
    again = tacit.Results(made.folder)
    from tacit.report.page import write_page

    page = visit.open(write_page(again).as_uri())
    assert again.report.stat().st_size < 3_000_000
    assert page.locator("#chart-clients .panel").count() == 25
    assert visit.troubles == []


def test_a_crowd_shows_its_last_cohort(visit: Visit, tmp_path: Path) -> None:
    few = {"name": "fraction", "c": 0.1}
    study = {
        "model": "linear",
        "algorithm": ["fedavg", "scaffold"],
        "rounds": 3,
        "clients": 120,
        "selection": few,
    }
    made = tacit.run({**study, "local_test": 0}, tmp_path / "untested")
    page = visit.open(made.report.absolute().as_uri())
    assert page.locator("#chart-fairness .dot").count() == 0
    made = tacit.run(study, tmp_path / "tested")
    page = visit.open(made.report.absolute().as_uri())
    last = made.client_frame().query("round == 3")
    titles = page.locator("#chart-fairness .dot title").all_text_contents()
    assert len(titles) == 2 * 12
    assert {title.split(", ")[1].split(":")[0] for title in titles} == {
        f"client {client}" for client in last["client"]
    }
    wanted = [f"{name}, local test" for name in ("highest", "median", "lowest")]
    assert lines(visit, "chart-clients")[1::2] == 2 * wanted
    assert visit.troubles == []


STUDY_25: dict[str, Any] = {
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


def stretch(folder: Path, rounds: int) -> None:
    """Repeats each run's only round, so that a long study need not be trained to be drawn."""
    for file in ("history.jsonl", "timings.jsonl"):
        records = [json.loads(line) for line in (folder / file).read_text().splitlines()]
        longer = [{**record, "round": k + 1} for record in records for k in range(rounds)]
        (folder / file).write_text("".join(json.dumps(record) + "\n" for record in longer))
