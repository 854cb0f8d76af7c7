"""What was found out about each run's last model: a JSON file per run in `assessments/`.

Folders of results are sent around, so what is read is checked before anything is made of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tacit.core.errors import DataError
from tacit.core.files import read_at_most, replacing

FOLDER = "assessments"
LARGEST = 256 << 20  # bytes of a file
Check = Callable[[Any], bool]


def write_assessment(folder: Path, run: str, findings: Mapping[str, Any]) -> None:
    path = _path(folder, run)
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as file:
        json.dump(findings, file, allow_nan=False)


def read_assessment(folder: Path, run: str, clients: int) -> dict[str, Any] | None:
    """None where the run has left none: it has not ended, or it has diverged."""
    path = _path(folder, run)
    if not path.exists():
        return None
    advice = "delete it, and the report leaves out what it says"
    try:
        findings: Any = json.loads(read_at_most(path, LARGEST))
        is_sound = _is_assessment(findings, clients)
    except (OSError, ValueError, RecursionError):
        is_sound = False
    if not is_sound:
        raise DataError(f"{path} is damaged; {advice}") from None
    sound: dict[str, Any] = findings
    return sound


def _path(folder: Path, run: str) -> Path:
    return folder / FOLDER / f"{run}.json"


def _is_assessment(findings: Any, clients: int) -> bool:
    checks = {"bootstrap": _is_bootstrap, "clients": _lists(_is_client)}
    if not (_is_test(findings) and _has(findings, checks)):
        return False
    numbers = [client["client"] for client in findings["clients"]]
    thresholds = findings.get("thresholds", [])
    is_known = all(number < clients for number in numbers) and len(set(numbers)) == len(numbers)
    return is_known and _lists(_is_threshold)(thresholds)


def _is_test(findings: Any) -> bool:
    """Whether this is what is known of one test: all rows', or a client's."""
    checks = {
        "rows": _is_count,
        "metrics": _is_figures,
        "groups": _is_groups,
        "importance": _lists(_is_column),
    }
    if not (isinstance(findings, dict) and _has(findings, checks)):
        return False
    return _is_calibration(findings.get("calibration")) and _is_matrix(findings.get("confusion"))


def _is_client(value: Any) -> bool:
    return _is_test(value) and _is_count(value.get("client"))


def _is_bootstrap(value: Any) -> bool:
    checks = {"metric": _is_text, "draws": _lists(_is_figure), "intervals": _is_intervals}
    return isinstance(value, dict) and _has(value, checks)


def _is_intervals(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return all(limits is None or _is_pair(limits) for limits in value.values())


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))


def _is_groups(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_lists(_is_group), value.values()))


def _is_group(value: Any) -> bool:
    if not (isinstance(value, dict) and _has(value, {"group": _is_text, "rows": _is_count})):
        return False
    return all(_is_figure(figure) for name, figure in value.items() if name != "group")


def _is_column(value: Any) -> bool:
    checks = {"column": _is_text, "drop": _is_figure, "deviation": _is_figure}
    return isinstance(value, dict) and _has(value, checks)


def _is_threshold(value: Any) -> bool:
    names = ("found", "alarms", "positives", "negatives")
    checks: dict[str, Check] = {"threshold": _is_number, **dict.fromkeys(names, _is_count)}
    return isinstance(value, dict) and _has(value, checks)


def _is_calibration(value: Any) -> bool:
    if value is None:
        return True
    figures = _lists(_is_figure)
    checks = {"rows": _lists(_is_count), "predicted": figures, "observed": figures}
    if not (isinstance(value, dict) and _has(value, checks)):
        return False
    sizes = {len(value[name]) for name in checks}
    return len(sizes) == 1 and _is_figure(value.get("error"))


def _is_matrix(value: Any) -> bool:
    """Whether this is a square of counts, or nothing."""
    if value is None:
        return True
    if not _lists(_lists(_is_count))(value):
        return False
    return all(len(row) == len(value) for row in value)


def _is_figures(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_figure, value.values()))


def _is_figure(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) < 1e300


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _lists(check: Check) -> Check:
    """Whether something is a list of such values."""

    def check_list(value: Any) -> bool:
        return isinstance(value, list) and all(map(check, value))

    return check_list


def _has(value: Mapping[str, Any], parts: Mapping[str, Check]) -> bool:
    """Whether all these parts are there and sound."""
    return all(name in value and check(value[name]) for name, check in parts.items())
