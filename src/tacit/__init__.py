"""tacit: organisations learn from each other's data without showing it to each other."""

from __future__ import annotations

from tacit.core.current_folder import leave_current_folder

leave_current_folder()  # before anything else is imported

# ruff: noqa: E402
import importlib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from tacit.core.signatures import takes_options
from tacit.core.version import __version__ as __version__
from tacit.execution.placement import EXECUTION_DEFAULTS, ExecutionOptions
from tacit.vertical.psi_options import PSI_DEFAULTS, PsiOptions

if TYPE_CHECKING:
    from tacit.core.errors import TacitError as TacitError
    from tacit.core.events import Event, Listeners, OnEvent
    from tacit.execution.plan import Plan as Plan
    from tacit.federated.fusion.fusion import Fusion
    from tacit.report.fused_model import FusedModel as FusedModel
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
    "FusedModel": "tacit.report.fused_model",
    "Intersection": "tacit.vertical.intersection",
    "Plan": "tacit.execution.plan",
    "Study": "tacit.study.study",
    "Results": "tacit.report.results",
    "Splits": "tacit.report.splits",
    "TacitError": "tacit.core.errors",
}


@takes_options(ExecutionOptions, EXECUTION_DEFAULTS)
def run(
    study: Study | str | Path | Mapping[str, Any],
    folder: str | Path | None = None,
    *,
    on_event: Listeners | None = None,
    **options: Unpack[ExecutionOptions],
) -> Results:
    """Runs a study, or the study in a file, and writes its report.

    `folder` is the folder for the results, which must be new or empty; without it, a new one is
    made in `runs/`.

    The options say where the study is played and where its data are. The results are the same,
    except for last digits where `device`, `threads` or `exact` change how sums round.

    - `data`: a folder with data files, in place of the one that `TACIT_DATA` names.
    - `device`: `"cpu"`, `"cuda"`, or several GPUs, `"cuda:0,cuda:1"`.
    - `workers`: how many processes share the work; chosen automatically unless given. 1 keeps the
      study in this process.
    - `threads`: how many threads compute one client; 1 unless given.
    - `on`: the address of a Ray cluster, `"ray"`, `"HOST:PORT"` or `"ray://HOST:PORT"`.
    - `exact`: on a GPU, do not round products to TF32.

    `on_event` is a function, or several, to be called with every event, in place of the display in
    a notebook and of the lines that a script gets on stderr after two seconds and then about every
    ten; `on_event=[]` shows nothing. Events are in `tacit.core.events`. If it raises
    KeyboardInterrupt, the study stops as it does after Ctrl-C. Any other exception ends the study
    too. Either way it can be resumed.
    """
    from tacit.execution.placement import Placement
    from tacit.execution.runner import run_study
    from tacit.study.study import Study

    target = _target(folder)
    study = Study.of(study)
    placement = Placement.of(options)
    listener = _listener(on_event)
    target = run_study(study, target, placement, data=options["data"], on_event=listener)
    return _conclude(target, listener)


@takes_options(ExecutionOptions, EXECUTION_DEFAULTS)
def resume(
    folder: str | Path,
    *,
    on_event: Listeners | None = None,
    **options: Unpack[ExecutionOptions],
) -> Results:
    """Continues the study in this folder; the results are the same, bit for bit, as without a stop.

    The options and `on_event` are those of `tacit.run`.
    """
    from tacit.execution.placement import Placement
    from tacit.execution.runner import resume_study

    target = Path(folder).expanduser()
    placement = Placement.of(options)
    listener = _listener(on_event)
    resume_study(target, placement, data=options["data"], on_event=listener)
    return _conclude(target, listener)


@takes_options(ExecutionOptions, EXECUTION_DEFAULTS)
def plan(
    study: Study | str | Path | Mapping[str, Any], **options: Unpack[ExecutionOptions]
) -> Plan:
    """What `tacit.run` would do with this study and these options; `print` shows it.

    Nothing is run or written.
    """
    from tacit.execution.placement import Placement
    from tacit.execution.runner import plan_study
    from tacit.study.study import Study

    placement = Placement.of(options)
    return plan_study(Study.of(study), placement, data=options["data"])


def fuse(
    models: Sequence[Any],
    method: str | Mapping[str, Any] | Fusion | None = None,
    *,
    counts: Any = None,
    seed: int = 0,
) -> FusedModel:
    """Makes one model of several that were trained apart, by matching neurons or components.

    Models are fully connected networks of any widths, as modules, dicts of tensors or files; or
    fitted Gaussian mixtures of scikit-learn; or matrices of vectors. The method is `pfnm` for
    networks and `spahm` for the others, unless it is named. `counts` says how many samples of each
    class each model was trained on; for mixtures, how many samples each was fitted to.
    """
    from tacit.report.fused_model import fuse

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
    """Finds the people known to all parties; no party shows the others the rest of its data.

    With `party`, this process is that party of the consortium and `data` are its own: a data frame,
    the path of a CSV or parquet file, or a list of identifiers. The other parties run theirs
    elsewhere. The result is an `Intersection`. Without `party`, `data` is `{name: data, ...}`, and
    all parties run in this process, to try it out; the results are `{name: Intersection, ...}`.
    `key` names the column that identifies people, or several columns.

    These options have to be the same for all parties:
    `learns`: "all", or the name of the one party that learns the result.
    `size_only`: learn how many people are known to all, and not who they are.
    `column`: what the identifiers are, where the names of the parties' columns differ.
    `group`: how identifiers are encrypted; `tacit list groups` shows the choice.
    `spelling`: which spellings are the same; {"unicode": "nfc", "case": "fold", "spaces":
    "collapse"} by default.

    These are each party's own:
    `consortium`: its file, or its folder; by default `consortium.yaml`, here or in `consortium/`.
    `others`: the parties to compare with, if not all of the consortium.
    `listen`, `connect`: "host:port" where this party waits, or where the other one does, if not as
    in the consortium's file.
    `proxy`: the HTTP proxy through which this party connects, "http://host:port"; by default that
    of the environment (`HTTPS_PROXY`, `NO_PROXY`), and "none" is none.
    `passphrase`: of this party's key, or a function that asks for it, such as `getpass.getpass`; by
    default it is in `TACIT_PASSPHRASE`, or asked for on the terminal, if the key has one.
    `most`: how many identifiers another party may bring; by default ten times as many as this
    party, and 1,000 at least.
    `log`: the file in which this party keeps a line for each session: with whom, about what, how
    many identifiers each brought, and how it ended; by default `PARTY-sessions.jsonl`, beside the
    consortium's file.
    `patience`: seconds to wait for a party that is not there.
    `threads`: by default one for each core.
    `on_event`: a function, or several, to be called with every event; by default, cautions become
    warnings.
    """
    from tacit.vertical.intersection import compare_tables, take_part

    if options["on_event"] is None:
        options["on_event"] = _warn
    if party is None:
        return compare_tables(data, key, **options)
    own_data = cast("PartyData", data)  # a mapping is refused where the data are read
    return take_part(own_data, key, party, **options)


def _target(folder: str | Path | None) -> Path | None:
    """The folder that the user names for the results."""
    from tacit.core.errors import StudyError

    if folder is None:
        return None
    if not isinstance(folder, str | Path) or not str(folder):
        text = f"expected a folder's name for the results, got {folder!r}"
        raise StudyError(text, parameters=("folder",))
    return Path(folder).expanduser()


def _listener(on_event: Listeners | None) -> OnEvent:
    """The user's listeners; without any, a display in a notebook, and lines on stderr elsewhere."""
    from tacit.core.events import tell
    from tacit.report.notebook import Notebook, in_notebook
    from tacit.report.progress_lines import ProgressLines

    if on_event is not None:
        return tell(on_event)
    if in_notebook():
        return Notebook().on_event
    return tell([_warn, ProgressLines().on_event])


def _warn(event: Event) -> None:
    """Cautions become Python's warnings, at the caller's line."""
    from tacit.core.events import Warned
    from tacit.core.own_code import outside

    if isinstance(event, Warned):
        warnings.warn(event.text, stacklevel=outside())


def _conclude(folder: Path, on_event: OnEvent) -> Results:
    """Writes the tables and the report."""
    from tacit.core.events import ReportWritten, TableWritten
    from tacit.records.folder import resumable
    from tacit.report.page import write_page
    from tacit.report.results import Results

    with resumable(folder):
        results = Results(folder)
        for name, path in results.write_tables().items():
            on_event(TableWritten(name, str(path)))
        report = write_page(results)
        on_event(ReportWritten(str(report)))
    return results


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:  # torch and pandas are imported when they are first needed
    if name not in _HOMES:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name])
    return getattr(module, name)
