from __future__ import annotations

import os

import pytest

from tacit.core.machine import usable_cores


def test_the_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert usable_cores() == 2


@pytest.mark.parametrize(("count", "cores"), [(6, 6), (None, 1)])
def test_where_a_process_may_use_all_cores_these_are_counted(
    count: int | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert usable_cores() == cores
