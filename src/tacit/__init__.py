"""tacit: organisations learn from each other's data without showing it to each other."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.core.events import OnEvent
    from tacit.engines.results import Results as Results
    from tacit.engines.study import Study as Study

__version__ = "0.1.0"
__all__ = ["Results", "Study", "resume", "run"]

_HOMES = {"Study": "tacit.engines.study", "Results": "tacit.engines.results"}


def run(
    study: Study,
    folder: str | Path | None = None,
    *,
    data: str | None = None,
    device: str = "cpu",
    on_event: OnEvent | None = None,
) -> Results:
    """Runs a study into a folder (by default a new one under `runs/`), with its report and tables."""
    from tacit.core.errors import StudyError
    from tacit.core.events import ignore
    from tacit.engines.runner import new_folder, run_study

    if folder is not None and (Path(folder) / "study.yaml").exists():
        raise StudyError(f"{folder} holds a study already; resume it, or name another folder")
    place = Path(folder) if folder is not None else new_folder(study)
    run_study(study, place, data=data, device=device, on_event=on_event or ignore)
    return _conclude(place)


def resume(
    folder: str | Path, *, data: str | None = None, device: str = "cpu", on_event: OnEvent | None = None
) -> Results:
    """Goes on where the study in this folder was stopped, to the same bits as if it never was."""
    from tacit.core.events import ignore
    from tacit.engines.runner import resume_study

    resume_study(Path(folder), data=data, device=device, on_event=on_event or ignore)
    return _conclude(Path(folder))


def _conclude(folder: Path) -> Results:
    from tacit.engines.results import Results
    from tacit.report.html import write_report

    results = Results(folder)
    results.write_tables()
    write_report(results)
    return results


def __getattr__(name: str) -> Any:  # torch and pandas are imported when they are first needed
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")
