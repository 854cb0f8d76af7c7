"""tacit: organisations learn from each other's data without showing it to each other."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from tacit.core.signatures import takes_options
from tacit.core.version import __version__ as __version__
from tacit.vertical.psi_options import PSI_DEFAULTS, PsiOptions

if TYPE_CHECKING:
    from tacit.core.errors import TacitError as TacitError
    from tacit.core.events import Event, Listeners, OnEvent
    from tacit.execution.plan import Plan as Plan
    from tacit.federated.fusion.fusion import Fusion
    from tacit.report.fused import FusedModel as FusedModel
    from tacit.report.results import Results as Results
    from tacit.report.splits import Splits as Splits
    from tacit.study.study import Study as Study
    from tacit.vertical.intersection import Intersection as Intersection
    from tacit.vertical.psi_options import PartyData

__all__ = [
    "FusedModel",
    "Intersection",
    "Plan",
    "Results",
    "Splits",
    "Study",
    "TacitError",
    "fuse",
    "plan",
    "psi",
    "resume",
    "run",
]

_HOMES = {
    "FusedModel": "tacit.report.fused",
    "Intersection": "tacit.vertical.intersection",
    "Plan": "tacit.execution.plan",
    "Study": "tacit.study.study",
    "Results": "tacit.report.results",
    "Splits": "tacit.report.splits",
    "TacitError": "tacit.core.errors",
}


def run(
    study: Study | str | Path | Mapping[str, Any],
    folder: str | Path | None = None,
    *,
    data: str | None = None,
    device: str = "cpu",
    workers: int | None = None,
    threads: int | None = None,
    on: str | None = None,
    exact: bool = False,
    on_event: Listeners | None = None,
) -> Results:
    """Runs a study, or the study in a file, into a folder (by default a new one under `runs/`), with its report.

    `workers` processes share the work, or as many as pay; `device="cuda:0,cuda:1"` uses two GPUs; `on` is the address
    of a Ray cluster. The results are the same. `exact` keeps a GPU from rounding products to TF32.

    `on_event` is a function, or several, that hear of all that happens, in place of a notebook's display; events are
    in `tacit.core.events`. If one raises KeyboardInterrupt, the study stops in order. Any other exception of a listener
    ends the study too. Either way it can be resumed.
    """
    from tacit.core.errors import StudyError
    from tacit.execution.planner import Placement
    from tacit.execution.runner import new_folder, run_study
    from tacit.study.study import Study

    if folder is not None and (not isinstance(folder, str | Path) or not str(folder)):
        raise StudyError(f"expected a folder's name for the results, got {folder!r}")
    study, placement = Study.of(study), Placement(device, workers, threads, on, exact)
    place = Path(folder).expanduser() if folder is not None else new_folder(study.name)
    hear = _listener(on_event)
    with _resumable(place):
        run_study(study, place, placement, data=data, on_event=hear)
    return _conclude(place, hear)


def resume(
    folder: str | Path,
    *,
    data: str | None = None,
    device: str = "cpu",
    workers: int | None = None,
    threads: int | None = None,
    on: str | None = None,
    exact: bool = False,
    on_event: Listeners | None = None,
) -> Results:
    """Goes on where the study in this folder was stopped, to the same bits as if it never was."""
    from tacit.execution.planner import Placement
    from tacit.execution.runner import resume_study

    place, placement = Path(folder).expanduser(), Placement(device, workers, threads, on, exact)
    hear = _listener(on_event)
    with _resumable(place):
        resume_study(place, placement, data=data, on_event=hear)
    return _conclude(place, hear)


def plan(
    study: Study | str | Path | Mapping[str, Any],
    *,
    data: str | None = None,
    device: str = "cpu",
    workers: int | None = None,
    threads: int | None = None,
    on: str | None = None,
    exact: bool = False,
) -> Plan:
    """What `run` would do with this study, and where; `print` shows it. Nothing is run or written."""
    from tacit.execution.planner import Placement
    from tacit.execution.runner import plan_study
    from tacit.study.study import Study

    return plan_study(Study.of(study), Placement(device, workers, threads, on, exact), data=data)


def fuse(
    models: Sequence[Any],
    method: str | Mapping[str, Any] | Fusion | None = None,
    *,
    counts: Any = None,
    seed: int = 0,
) -> FusedModel:
    """Makes one model of several that were trained apart, by matching their parts, which are in no common order.

    Models are fully connected networks of any widths, as modules, dicts of tensors or files; or fitted Gaussian
    mixtures of scikit-learn; or matrices of vectors. The method is by default `pfnm` for networks and `spahm` for the
    others. `counts` are the samples that each model saw of each class; of mixtures, how many each saw.
    """
    from tacit.report.fused import fuse

    return fuse(models, method, counts=counts, seed=seed)


@overload
def psi(
    data: PartyData,
    key: str | Sequence[str],
    *,
    party: str,
    **options: Unpack[PsiOptions],
) -> Intersection: ...


@overload
def psi(
    data: Mapping[str, PartyData],
    key: str | Sequence[str],
    *,
    party: None = None,
    **options: Unpack[PsiOptions],
) -> dict[str, Intersection]: ...


@takes_options(PsiOptions, PSI_DEFAULTS)
def psi(
    data: PartyData | Mapping[str, PartyData],
    key: str | Sequence[str],
    *,
    party: str | None = None,
    **options: Unpack[PsiOptions],
) -> Intersection | dict[str, Intersection]:
    """Finds the people known to all parties; none shows the others the rest of its data.

    With `party`, this process is that party of the consortium and `data` are its own: a data frame,
    the path of a CSV or parquet file, or a list of identifiers. The other parties run theirs
    elsewhere. The result is an `Intersection`. Without `party`, `data` is `{name: data, ...}` and
    all of it happens here, for a try-out; the results are `{name: Intersection, ...}`.
    `key` names the column that identifies people, or several columns.

    These options have to be the same for all parties:
    `learns`: "all", or the name of the one party that learns the result.
    `size_only`: learn how many people all know, and not who they are.
    `column`: what the identifiers are, where the names of the parties' columns differ.
    `group`: how identifiers are encrypted; `tacit list groups` shows the choice.
    `spelling`: which spellings are the same; {"unicode": "nfc", "case": "fold", "spaces":
    "collapse"} unless told otherwise.

    These are each party's own:
    `consortium`: its file, or its folder; by default `consortium.yaml`, here or in `consortium/`.
    `others`: the parties to compare with, if not all of the consortium.
    `listen`, `connect`: "host:port" where this party waits, or where the other one does, if not as
    in the consortium's file.
    `most`: how many identifiers another party may bring.
    `patience`: seconds to wait for a party that is not there.
    `threads`: by default one for each core.
    `on_event`: a function, or several, that hear what happens; by default cautions become warnings.
    """
    from tacit.vertical.intersection import compare_tables, take_part

    if options["on_event"] is None:
        options["on_event"] = _warn
    if party is None:
        return compare_tables(data, key, **options)
    own_data = cast("PartyData", data)  # a mapping is refused where the data are read
    return take_part(own_data, key, party, **options)


def _listener(on_event: Listeners | None) -> OnEvent:
    """For those who bring none: a display in a notebook, elsewhere nothing but cautions."""
    from tacit.core.events import tell
    from tacit.report.notebook import Notebook, in_notebook

    if on_event is not None:
        return tell(on_event)
    return Notebook().on_event if in_notebook() else _warn


def _warn(event: Event) -> None:
    """Cautions become Python's warnings, at the caller's line."""
    from tacit.core.events import Warned
    from tacit.core.own_code import outside

    if isinstance(event, Warned):
        warnings.warn(event.text, stacklevel=outside())


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Tells whoever stops a study how to go on."""
    from tacit.core.errors import TacitError

    try:
        yield
    except BaseException as error:
        stopped = not isinstance(error, TacitError)  # by the user, or by a listener
        if stopped and (folder / "study.yaml").exists():
            error.add_note(f"go on with: tacit.resume({str(folder)!r})")
        raise


def _conclude(folder: Path, on_event: OnEvent) -> Results:
    from tacit.core.events import ReportWritten, TableWritten
    from tacit.report.html import write_page
    from tacit.report.results import Results

    results = Results(folder)
    for name, path in results.write_tables().items():
        on_event(TableWritten(name, str(path)))
    report = write_page(results)
    on_event(ReportWritten(str(report)))
    return results


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:  # torch and pandas are imported when they are first needed
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")
