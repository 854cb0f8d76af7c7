"""Metrics in words."""

from __future__ import annotations

from tacit.training.metrics import METRICS


def title_of(metric: str) -> str:
    """A metric as people write it."""
    return METRICS[metric].title


def about_metric(metric: str) -> str:
    """What a metric says, in a sentence."""
    return METRICS[metric].about
