"""What is found out about a run's last model, once: more than a round can be asked for.

Beside the metrics there are their intervals, a confusion matrix, a calibration curve, the metrics
of groups such as women and men, and which columns the model relies on. All of it is sums and
figures of at least five rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from tacit.core.arrays import Index
from tacit.data.dataset import Dataset
from tacit.simulation.importance import FeatureColumn, feature_columns, importance
from tacit.training.bootstrap import draw_again, interval
from tacit.training.calibration import calibrate
from tacit.training.evaluation import Answers
from tacit.training.metrics import Figures
from tacit.training.yardstick import Yardstick

LEAST_ROWS = 5  # of a group, or of a point of a curve: fewer would tell of single people
MOST_CLASSES = 30  # of a confusion matrix
THRESHOLDS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
Findings = dict[str, Any]  # as JSON can hold them

# (x, y, client) -> what the model that the client uses answers; None is the global model
Answer = Callable[[Tensor, Tensor, int | None], Answers]


@dataclass(frozen=True)
class LocalTest:
    """A client's own test."""

    x: Tensor
    y: Tensor
    rows: Index  # where they are among the training rows of the data set


@dataclass(frozen=True)
class Assessor:
    """Assesses the models of a data set."""

    dataset: Dataset
    yardstick: Yardstick
    repeats: int  # how often each column is shuffled to see how much it matters

    def assess(self, answer: Answer, local_tests: Mapping[int, LocalTest]) -> Findings:
        """What is to be known of a model, and of how it serves clients."""
        x = self.dataset.test_x
        y = self.dataset.test_y
        on_test_set = answer(x, y, None)
        findings = self._describe(on_test_set, y)
        findings["bootstrap"] = self._bootstrap(on_test_set, y)
        if self.yardstick.classes == 2:
            findings["thresholds"] = self._thresholds(on_test_set, y)
        findings["groups"] = self._groups(on_test_set, y)
        findings["importance"] = self._importance(answer, x, y, None)
        findings["clients"] = self._clients(answer, local_tests)
        return findings

    def _clients(
        self, answer: Answer, local_tests: Mapping[int, LocalTest]
    ) -> list[dict[str, Any]]:
        """The same of each client's own test, with the model that it uses."""
        clients = []
        for client, test in local_tests.items():
            if not len(test.y):
                continue
            answers = answer(test.x, test.y, client)
            findings = self._describe(answers, test.y)
            findings["groups"] = self._groups(answers, test.y, test.rows)
            findings["importance"] = self._importance(answer, test.x, test.y, client)
            clients.append({"client": client, **findings})
        return clients

    def _describe(self, answers: Answers, y: Tensor) -> Findings:
        y = y.cpu()
        figures = self.yardstick.measure(answers, y)
        findings: Findings = {
            "rows": len(y),
            "metrics": _rounded(self.yardstick.figures(figures)),
        }
        if self.yardstick.classes:
            findings["calibration"] = self._calibration(answers, y)
        if 0 < self.yardstick.classes <= MOST_CLASSES:
            findings["confusion"] = self._confusion(answers, y)
        return findings

    def _bootstrap(self, answers: Answers, y: Tensor) -> Findings:
        """The intervals of the metrics, and each draw's figure of the one that decides."""
        draws = draw_again(self.yardstick, answers, y.cpu())
        intervals = {}
        for name, values in draws.items():
            limits = interval(values)
            intervals[name] = None if limits is None else [_round(limit) for limit in limits]
        deciding = [_round(value) for value in draws[self.yardstick.name].tolist()]
        return {"metric": self.yardstick.name, "draws": deciding, "intervals": intervals}

    def _thresholds(self, answers: Answers, y: Tensor) -> list[dict[str, Any]]:
        """What is found and what is wrongly taken for positive, from several probabilities on."""
        is_positive = y.cpu() == self.yardstick.positive
        probabilities = answers.predicted[:, self.yardstick.positive]
        rows = []
        for threshold in THRESHOLDS:
            is_taken = probabilities >= threshold
            rows.append(
                {
                    "threshold": threshold,
                    "found": int((is_taken & is_positive).sum()),
                    "alarms": int((is_taken & ~is_positive).sum()),
                    "positives": int(is_positive.sum()),
                    "negatives": int((~is_positive).sum()),
                }
            )
        return rows

    def _calibration(self, answers: Answers, y: Tensor) -> Findings:
        """Of two classes, that of the positive one; of more, that of the most likely one."""
        if self.yardstick.classes == 2:
            probabilities = answers.predicted[:, self.yardstick.positive]
            happened = y == self.yardstick.positive
        else:
            probabilities = answers.predicted.max(1).values
            happened = answers.classes == y
        curve = calibrate(probabilities.numpy(), happened.numpy())
        is_told = curve.rows[0] >= LEAST_ROWS
        predicted = np.where(is_told, curve.predicted[0], np.nan)
        observed = np.where(is_told, curve.observed[0], np.nan)
        return {
            "rows": curve.rows[0].tolist(),
            "predicted": [_round(value) for value in predicted.tolist()],
            "observed": [_round(value) for value in observed.tolist()],
            "error": _round(float(curve.error[0])),
        }

    def _confusion(self, answers: Answers, y: Tensor) -> list[list[int]]:
        """A row per class, with how many of it were taken for each class."""
        classes = self.yardstick.classes
        pairs = y * classes + answers.classes
        counts = pairs.bincount(minlength=classes * classes)
        matrix: list[list[int]] = counts.view(classes, classes).tolist()
        return matrix

    def _groups(
        self, answers: Answers, y: Tensor, rows: Index | None = None
    ) -> dict[str, list[dict[str, Any]]]:
        """The metrics of the groups of every column, of the test set or of these training rows."""
        by_column = {}
        for grouping in self.dataset.groupings:
            codes = grouping.test.numpy() if rows is None else grouping.train.numpy()[rows]
            groups = len(grouping.names)
            figures = self.yardstick.measure(answers, y.cpu(), codes, groups, own_variance=True)
            positives = None
            if self.yardstick.classes == 2:
                is_positive = (y == self.yardstick.positive).cpu().numpy()
                positives = np.bincount(codes[is_positive], minlength=groups)
            rows_of = self._group_rows(grouping.names, codes, figures, positives)
            by_column[grouping.column] = rows_of
        return by_column

    def _group_rows(
        self, names: tuple[str, ...], codes: Index, figures: Figures, positives: Index | None
    ) -> list[dict[str, Any]]:
        """A group without rows is left out, and of few rows nothing is told but their number.

        Of two classes, the positives are counted too.
        """
        sizes = np.bincount(codes, minlength=len(names))
        rows = []
        for code, name in enumerate(names):
            if sizes[code] and sizes[code] < LEAST_ROWS:
                rows.append({"group": name, "rows": int(sizes[code])})
            elif sizes[code]:
                metrics = _rounded(self.yardstick.figures(figures, code))
                counts = {"rows": int(sizes[code])}
                if positives is not None:
                    counts["positives"] = int(positives[code])
                rows.append({"group": name, **counts, **metrics})
        return rows

    def _importance(
        self, answer: Answer, x: Tensor, y: Tensor, client: int | None
    ) -> list[dict[str, Any]]:
        """How much worse the deciding metric becomes where a column is shuffled."""
        columns: list[FeatureColumn] = feature_columns(self.dataset) if self.repeats else []
        if not columns:
            return []
        drops = importance(
            self.yardstick,
            lambda x, y: answer(x, y, client),
            (x, y),
            columns,
            self.repeats,
        )
        rows = []
        for column, (drop, deviation) in zip(columns, drops, strict=True):
            rows.append(
                {"column": column.name, "drop": _round(drop), "deviation": _round(deviation)}
            )
        return rows


def _rounded(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: _round(value) for name, value in figures.items()}


def _round(value: float | None) -> float | None:
    """Six digits are enough to read; JSON has no NaN."""
    if value is None or not np.isfinite(value):
        return None
    return float(f"{value:.6g}")
