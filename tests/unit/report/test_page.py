"""The page as a whole: its sections, studies on their way, and damaged files."""

from __future__ import annotations

import sys
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from stored import history_of, with_history

import tacit
from tacit.core.errors import DataError, StudyError
from tacit.records.study_reader import StudyReader
from tacit.report.overview import overview
from tacit.report.page import render
from tacit.report.section import SECTIONS, Section, find_sections
from tacit.report.study_tables import StudyTables
from tacit.report.thinning import choose_rounds

OWN_CODE = """
from dataclasses import dataclass

import numpy as np

from tacit.federated.algorithm import Algorithm


@dataclass(frozen=True)
class Mine(Algorithm):
    '''FedAvg under another name.'''


def make_data():
    y = np.arange(60) % 2
    return np.random.default_rng(0).normal(size=(60, 3)) + y[:, None], y
"""


def test_the_page_has_a_section_for_every_folder(results: tacit.Results) -> None:
    folders = {path.parent.name for path in SECTIONS.glob("*/section.html.jinja")}
    assert {section.name for section in find_sections()} == folders
    page = render(results)
    for section in find_sections():
        is_shown = section.is_shown(results)
        link = f'<a href="#{section.name}">{section.title}</a>'
        assert (f'<section id="{section.name}">' in page) == is_shown
        assert (link in page) == is_shown


def test_sections_stand_in_their_order() -> None:
    orders = [section.order for section in find_sections()]
    assert orders == sorted(set(orders))
    assert all(isinstance(section, Section) for section in find_sections())


@pytest.mark.parametrize(("longest", "most"), [(5, 10), (10, 10), (11, 10), (1000, 7), (2, 2)])
def test_thinning_keeps_the_first_and_the_last_round(longest: int, most: int) -> None:
    rounds = choose_rounds(longest, most)
    assert {1, longest} <= rounds
    assert len(rounds) == min(longest, most)


def test_a_page_computes_the_summary_and_reads_the_history_once(
    results: tacit.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many sections ask for it."""
    computed: Counter[str] = Counter()

    def counting(owner: type, name: str) -> cached_property[Any]:
        compute = vars(owner)[name].func

        def count_and_compute(instance: Any) -> Any:
            computed[name] += 1
            return compute(instance)

        counted: cached_property[Any] = cached_property(count_and_compute)
        counted.__set_name__(owner, name)
        return counted

    for owner, name in (
        (StudyTables, "_summary"),
        (StudyTables, "_frame"),
        (StudyReader, "rounds"),
    ):
        monkeypatch.setattr(owner, name, counting(owner, name))
    render(tacit.Results(results.folder))
    assert computed == {"_summary": 1, "_frame": 1, "rounds": 1}


def test_who_changes_a_table_changes_a_copy(results: tacit.Results) -> None:
    summary = results.summary()
    summary["accuracy"] = 0.0
    assert (results.summary()["accuracy"] > 0).any()
    table = results.table()
    table[:] = 0.0
    assert (results.table() > 0).any(axis=None)


def test_a_study_that_has_just_begun_has_a_page(results: tacit.Results, tmp_path: Path) -> None:
    begun = with_history(results, tmp_path, [])
    assert "No round is done yet" in render(begun)
    history = (results.folder / "history.jsonl").read_text()
    half_written = history[: len(history) // 2]
    (tmp_path / "history.jsonl").write_text(half_written)
    half = tacit.Results(tmp_path)
    head = overview(half)
    assert 0 < head["done"] < head["runs"]
    assert half.write_report().exists()


@pytest.mark.parametrize("chosen", ["references", "methods", "one run", "first rounds"])
def test_runs_may_begin_in_any_order(results: tacit.Results, tmp_path: Path, chosen: str) -> None:
    """Workers take the largest first, which may be the references."""
    references = {run for run in results.runs if results.runs[run].is_reference}
    wanted = {
        "references": lambda record: record["run"] in references,
        "methods": lambda record: record["run"] not in references,
        "one run": lambda record: record["run"] == list(results.runs)[4],
        "first rounds": lambda record: record["round"] == 1,
    }[chosen]
    records = [record for record in history_of(results) if wanted(record)]
    partial = with_history(results, tmp_path, records)
    ended = {record["run"] for record in records if record["status"] != "running"}
    assert overview(partial)["done"] == len(ended)
    assert partial.write_report().exists()


def test_small_local_tests_are_pointed_out_but_not_that_there_are_none(tmp_path: Path) -> None:
    study = {"dataset": "digits", "model": "linear", "rounds": 1, "clients": 4}
    for share, is_small in ((0.1, False), (0.01, True), (0.0, False)):
        results = tacit.run({**study, "local_test": share}, tmp_path / str(share))
        cautions = overview(results)["cautions"]
        assert any("fewer than 10 samples" in text for text in cautions) == is_small


def test_the_smallest_local_test_of_all_seeds_is_named(tmp_path: Path) -> None:
    study = {"dataset": "digits", "model": "linear", "rounds": 1, "seed": [0, 1, 2]}
    skewed = tacit.run({**study, "split": "quantity_skew"}, tmp_path / "a")
    sizes = {}
    for portrait in skewed.portraits:
        sizes[portrait.seed] = min(sum(row) for row in portrait.test)
    least = min(sizes.values())
    assert sizes[2] > least
    assert any(f"on {least})" in text for text in overview(skewed)["cautions"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("splits.json", "{"),
        ("splits.json", "[1]"),
        ("history.jsonl", "null\n"),
        ("history.jsonl", "{}\n"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(
    results: tacit.Results, tmp_path: Path, name: str, text: str
) -> None:
    damaged = with_history(results, tmp_path, [])
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=f"{name} is damaged"):
        render(damaged)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"runs": {"a": {}}}'])
def test_a_damaged_outline_is_named_in_one_line(
    results: tacit.Results, tmp_path: Path, text: str
) -> None:
    with_history(results, tmp_path, [])
    (tmp_path / "outline.json").write_text(text)
    with pytest.raises(DataError, match=r"outline\.json is damaged; resume the study"):
        tacit.Results(tmp_path)


def test_a_study_that_was_never_run_has_no_results(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("name: planned\n")
    with pytest.raises(DataError, match="holds no results; run the study"):
        tacit.Results(tmp_path)


def test_a_report_needs_none_of_the_code_that_made_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "mine.py").write_text(OWN_CODE)
    monkeypatch.syspath_prepend(here)
    study = {"dataset": {"name": "function", "path": "mine:make_data"}, "algorithm": "mine:Mine"}
    before = tacit.run({**study, "clients": 2, "rounds": 1}, here / "study")
    page = render(before)
    (here / "mine.py").unlink()
    monkeypatch.delitem(sys.modules, "mine")
    after = tacit.Results(here / "study")
    assert after.write_report().exists()
    assert render(after) == page
    with pytest.raises(StudyError, match="mine"):
        after.model(after.best())
