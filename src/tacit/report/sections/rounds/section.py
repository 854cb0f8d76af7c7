"""Round by round: the global model's score and loss on the test set."""

from __future__ import annotations

from tacit.report.line_panels import name_rows
from tacit.report.section import Drawings, Section
from tacit.report.sections.rounds.pictures import draw_rounds
from tacit.report.study_tables import StudyTables


class RoundsSection(Section):
    title = "Round by round"
    order = 20

    def drawings(self, results: StudyTables) -> Drawings:
        if not results.records:
            return {}
        rounds = name_rows(results, results.frame())
        score = results.score
        label = f"global test {results.score_name}"
        return {
            score: lambda: draw_rounds(rounds, score, ylabel=label),
            "loss": lambda: draw_rounds(rounds, "loss", ylabel="global test loss"),
        }
