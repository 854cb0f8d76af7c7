"""What all metrics cost, beside the forward pass that they judge and beside scikit-learn.

A test set is answered by an MLP of about 10,000 parameters (64 features), in chunks as tacit does.
Then every metric is computed from the answers, as after a round, or accuracy alone; and the same
metrics by scikit-learn. All of it takes turns in one process, with one thread; medians.
Usage: python benchmarks/metrics.py [repeats] [most rows]
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable

import torch
from sklearn import metrics as theirs
from torch import nn

from tacit.training.evaluation import Answers, evaluate
from tacit.training.metrics import METRICS
from tacit.training.yardstick import Yardstick

FEATURES = 64
ROWS = (1_000, 10_000, 100_000, 1_000_000)
Task = Callable[[], object]


def model_of(outputs: int) -> nn.Module:
    """A model whose hidden layer makes it just larger than 10,000 parameters."""
    hidden = 10_500 // (FEATURES + 1 + outputs)
    return nn.Sequential(nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def by_sklearn(answers: Answers, y: torch.Tensor) -> None:
    """The metrics that tacit reports, by scikit-learn."""
    labels = y.numpy()
    probabilities = answers.predicted.double().numpy()
    predicted = answers.classes.numpy()
    classes = probabilities.shape[1]
    theirs.accuracy_score(labels, predicted)
    theirs.balanced_accuracy_score(labels, predicted)
    if classes == 2:
        theirs.roc_auc_score(labels, probabilities[:, 1])
        theirs.average_precision_score(labels, probabilities[:, 1])
        theirs.f1_score(labels, predicted)
        theirs.recall_score(labels, predicted)
        theirs.recall_score(labels, predicted, pos_label=0)
        theirs.brier_score_loss(labels, probabilities[:, 1])
        return
    sums = probabilities.sum(1, keepdims=True)
    theirs.roc_auc_score(labels, probabilities / sums, multi_class="ovr")
    for label in range(classes):
        theirs.average_precision_score(labels == label, probabilities[:, label])
    theirs.f1_score(labels, predicted, average="macro")
    theirs.brier_score_loss(labels, probabilities / sums)


def measure(rows: int, classes: int, repeats: int) -> list[float]:
    """Median milliseconds of the forward pass, all metrics, accuracy alone, and scikit-learn's."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(rows, FEATURES, generator=draw)
    y = torch.randint(0, classes, (rows,), generator=draw)
    module = model_of(classes)
    answers = evaluate(module, x, y)
    yardstick = Yardstick(METRICS["accuracy"], classes)
    tasks: list[Task] = [
        lambda: evaluate(module, x, y),
        lambda: yardstick.measure(answers, y),
        lambda: answers.hits(y).double().mean().item(),
        lambda: by_sklearn(answers, y),
    ]
    seconds: list[list[float]] = [[] for _ in tasks]
    for turn in range(repeats + 1):
        for task, times in zip(tasks, seconds, strict=True):
            start = time.perf_counter()
            task()
            if turn:  # the first one warms up
                times.append(time.perf_counter() - start)
    return [1000 * statistics.median(times) for times in seconds]


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    most = int(sys.argv[2]) if len(sys.argv) > 2 else ROWS[-1]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    head = ("rows", "classes", "forward", "metrics", "accuracy", "sklearn")
    print(
        "".join(f"{name:>11}" for name in head),
        " metrics/forward  round/accuracy-only  sklearn/ours",
    )
    for rows in ROWS:
        if rows > most:
            continue
        for classes in (2, 10):
            forward, ours, accuracy, sklearn = measure(rows, classes, repeats)
            figures = "".join(f"{value:>11.2f}" for value in (forward, ours, accuracy, sklearn))
            whole = (forward + ours) / (forward + accuracy)
            print(
                f"{rows:>11,}{classes:>11}{figures}"
                f"{ours / forward:>17.2f}{whole:>21.2f}{sklearn / ours:>14.1f}"
            )


if __name__ == "__main__":
    main()
