"""Who holds what: the chart's data, and how the columns of a table became numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
from stored import contents_of

import tacit
from tacit.report.page import render

HEADING = "How the columns became numbers"


def study_of_a_table(folder: Path) -> dict[str, Any]:
    """Twenty-four people of three hospitals; the ages of two are not known."""
    table = pd.DataFrame(
        {
            "hospital": ["east", "north", "south"] * 8,
            "age": [None, None, *range(40, 62)],
            "sex": ["f", "m"] * 12,
            "outcome": ["ill", "well", "well", "ill"] * 6,
        }
    )
    table.to_csv(folder / "patients.csv", index=False)
    dataset = {
        "name": "table",
        "path": str(folder / "patients.csv"),
        "client": "hospital",
        "target": "outcome",
    }
    return {"dataset": dataset, "model": "linear", "clients": 3, "rounds": 1, "split": "by_client"}


def charted(results: tacit.Results) -> list[dict[str, Any]]:
    """The portraits as the page's script gets them."""
    found = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', render(results))
    assert found
    portraits: list[dict[str, Any]] = json.loads(found[1])["sections"]["splits"]
    return portraits


def test_the_chart_shows_every_portrait(results: tacit.Results) -> None:
    portraits = charted(results)
    assert portraits == json.loads((results.folder / "splits.json").read_text())
    shown = {(portrait["split"], portrait["seed"]) for portrait in portraits}
    assert shown >= {("iid", 0), ("iid", 1), ("label_dirichlet", 0), ("label_dirichlet", 1)}


def test_a_portrait_counts_every_clients_labels(tmp_path: Path) -> None:
    results = tacit.run(study_of_a_table(tmp_path), tmp_path / "study")
    (portrait,) = charted(results)
    assert portrait["clients"] == ["east", "north", "south"]
    assert portrait["labels"] == ["ill", "well"]
    samples = sum(map(sum, portrait["train"])) + sum(map(sum, portrait["test"]))
    last_round = results.client_frame()
    assert samples >= last_round["samples"].sum() > 0


def test_the_page_says_how_each_column_of_a_table_became_numbers(tmp_path: Path) -> None:
    results = tacit.run(study_of_a_table(tmp_path), tmp_path / "study")
    assert results.encoding is not None
    rows = contents_of("splits", results)["encoding"]
    assert [row["column"] for row in rows] == ["age", "sex"]
    page = render(results)
    table = page[page.index(HEADING) :]
    for row in rows:
        cells = [row["kind"], row["becomes"], row["missing"]]
        line = f'<th scope="row">{row["column"]}</th>'
        line += "".join(f"<td>{cell}</td>" for cell in cells)
        assert line in table


def test_data_that_are_no_table_have_no_encoding_on_the_page(results: tacit.Results) -> None:
    assert contents_of("splits", results)["encoding"] == []
    assert HEADING not in render(results)
