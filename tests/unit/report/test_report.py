"""What the report shows, and for which studies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tacit
from tacit.report.figures import write_figures

SMALL: dict[str, Any] = {"dataset": "iris", "model": "linear", "clients": 5, "rounds": 3}


def page(folder: Path, **settings: Any) -> tuple[tacit.Results, str]:
    results = tacit.run({**SMALL, **settings}, folder)
    return results, results.report.read_text(encoding="utf-8")


def headings(text: str) -> list[str]:
    return re.findall(r"<h[23][^>]*>(.*?)</h[23]>", text)


def test_personal_and_central_accuracy_are_shown_where_clients_have_their_own_models(
    tmp_path: Path,
) -> None:
    results, text = page(tmp_path / "a", algorithm=["fedavg", "fedplus"])
    assert any("each with the model it uses" in title for title in headings(text))
    assert any("all with the global model" in title for title in headings(text))
    for metric in ("local_accuracy", "central_accuracy"):
        for value in results.table(metric).to_numpy().flatten():
            assert f"{value:.4f}" in text
    _, plain = page(tmp_path / "b", algorithm="fedavg")
    assert not any("own tests" in title for title in headings(plain))


def test_backdoor_success_stands_beside_accuracy_and_the_lowest_is_best(tmp_path: Path) -> None:
    attack = {"kind": "backdoor", "target": 2, "value": 2.0, "boost": 5}
    rate = {"name": "sgd", "lr": 0.1}
    results, text = page(
        tmp_path / "a", attackers=attack, combiner=["mean", "median"], optimiser=rate, rounds=8
    )
    assert {"Global test accuracy after the last round", "Backdoor success"} <= set(headings(text))
    mean, median = results.table("backdoor").iloc[:, 0]
    assert mean > median
    after_heading = text.split(">Backdoor success<")[1]
    table = after_heading.split("</table>")[0]
    assert table.count("<strong>") == 1
    assert f"<strong>{median:.4f}</strong>" in table


def test_cautions_are_notes_on_the_page_and_warnings_in_python(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="amplifies small clients"):
        _, text = page(tmp_path / "a", algorithm="fednova", split="quantity_skew")
    assert '<p class="note">fednova under quantity_skew amplifies small clients' in text


def test_accuracy_per_megabyte_is_drawn_and_tabulated(tmp_path: Path) -> None:
    results, text = page(tmp_path / "a", wire={"grid": [[], "quantise"]})
    assert "Cost" in headings(text)
    summary = results.summary()
    for row in summary.itertuples():
        assert row.accuracy_per_mb == pytest.approx(row.accuracy / (row.bytes_up / 1e6))
    assert summary["accuracy_per_mb"].iloc[1] > summary["accuracy_per_mb"].iloc[0]


def test_a_method_that_sends_nothing_has_a_report_too(tmp_path: Path) -> None:
    results, text = page(tmp_path / "a", algorithm="local")
    assert results.summary()["bytes_up"].iloc[0] == 0
    assert '"mb": [0.0, 0.0, 0.0]' in text
    costs = [path.name for path in write_figures(results) if path.stem == "cost"]
    assert costs == ["cost.svg", "cost.png"]


def test_attacks_are_the_columns_where_only_they_vary(tmp_path: Path) -> None:
    results, text = page(
        tmp_path / "a", attackers=["none", {"kind": "sign_flip"}], combiner=["mean", "median"]
    )
    assert list(results.table().columns) == ["none", "sign_flip"]
    assert '<th scope="col" data-split="sign_flip">sign_flip</th>' in text
