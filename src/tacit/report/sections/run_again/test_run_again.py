"""The page shows how to run the study again."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import tacit
from tacit.report.page import render


def test_versions_are_those_of_the_run_and_not_of_the_report(
    results: tacit.Results, tmp_path: Path
) -> None:
    (environment,) = results.environment
    assert environment["tacit"] == tacit.__version__
    assert environment["threads"] >= 1
    for path in results.folder.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    entries = [{**environment, "torch": "1.2.3"}, environment]
    (tmp_path / "environment.json").write_text(json.dumps(entries))
    page = render(tacit.Results(tmp_path))
    assert re.search(r"Run with tacit .* torch 1\.2\.3", page)
    assert "Resumed with tacit" in page


def test_the_page_holds_the_study_as_it_can_be_run_again(
    results: tacit.Results, tmp_path: Path
) -> None:
    shown = re.search(r'<pre id="study"[^>]*>(.*?)</pre>', render(results), re.DOTALL)
    assert shown
    (tmp_path / "again.yaml").write_text(html.unescape(shown[1]))
    again = tacit.Study.from_file(tmp_path / "again.yaml")
    assert again.to_yaml() == results.study.to_yaml()
