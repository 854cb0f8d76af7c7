"""What a study names by import path, `package.module:name`: the user's own code, and only that.

A study may come from somebody else. Were any path followed, it could have Python's own library
called, such as `subprocess:check_output`, without a line of code beside it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tacit.core.errors import StudyError, TacitError, shown
from tacit.core.own_code import summarise

STANDARD = sys.stdlib_module_names | {"test"}
ROOTS = ("tacit", "pip")  # what these need is no user's own code either


def import_object(path: str, *, classes_of: Sequence[str] = ()) -> Any:
    """What `package.module:name` names.

    Python's own library, tacit and the packages that it needs are refused, the module before it is
    imported. `classes_of` are packages of which classes may be named nevertheless.
    """
    module, name = _divide_import_path(path)
    if not _is_in(module, classes_of):
        _refuse_library(path, module)
    try:
        value, holder = _follow(path, module, name, classes_of)
    except AttributeError as error:
        file = getattr(sys.modules.get(module), "__file__", None)
        raise _not_found(path, error, f" ({file})" if file else "") from error
    except (ImportError, ValueError) as error:
        raise _not_found(path, error) from error
    except TacitError:
        raise
    except SyntaxError as error:
        line = f"{Path(str(error.filename)).name}:{error.lineno}"
        raise StudyError(f"cannot import {path!r}: {error.msg} ({line})") from error
    except (Exception, SystemExit) as error:  # whatever the user's module raises
        raise StudyError(f"cannot import {path!r}: its module raised {summarise(error)}") from error
    home = _home(value) or holder
    if not (isinstance(value, type) and _is_in(home, classes_of)):
        _refuse_library(path, home)
    return value


def _follow(path: str, module: str, name: str, classes_of: Sequence[str]) -> tuple[Any, str]:
    """The object at the end of the path, and the last module on the way to it.

    A path that leads out of the user's modules, as `my_module:os.system` does, is refused.
    """
    value: Any = importlib.import_module(module)
    holder = module
    for attribute in name.split("."):
        if attribute.startswith("__"):
            raise StudyError(f"cannot import {shown(path)}: {attribute} belongs to Python itself")
        value = getattr(value, attribute)
        if isinstance(value, ModuleType):
            holder = value.__name__
            if not _is_in(holder, classes_of):
                _refuse_library(path, holder)
    return value, holder


def _not_found(path: str, error: Exception, source: str = "") -> StudyError:
    remedy = "expected package.module:name, importable from here"
    module, _, _ = path.partition(":")
    top, _, _ = module.partition(".")
    if isinstance(error, ModuleNotFoundError) and error.name == top:
        remedy = f"expected package.module:name; run this in the folder where {top}.py lies"
    return StudyError(f"cannot import {shown(path)}: {summarise(error)}{source}; {remedy}")


def _home(value: Any) -> str | None:
    """The module that defines a class or a function; None for an object that a module has made."""
    if isinstance(value, ModuleType) or not hasattr(value, "__name__"):
        return None
    return str(getattr(value, "__module__", None) or type(value).__module__)


def _refuse_library(path: str, module: str) -> None:
    owner = _library_of(module)
    if owner is None:
        return
    remedy = "name a class or a function of your own, in a module with a name of its own"
    raise StudyError(f"cannot import {shown(path)}: {module} belongs to {owner}; {remedy}")


def _library_of(module: str) -> str | None:
    """Python or the package that a module belongs to; None for the user's own."""
    top, _, _ = module.partition(".")
    if top in STANDARD:
        return "Python itself"
    if top in ROOTS:
        return top
    owners = _owners().get(top, [])
    for owner in map(_normal, owners):
        if owner in _needed():
            return f"{owner}, which tacit needs"
    return None


def _is_in(module: str, packages: Sequence[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@cache
def _owners() -> dict[str, list[str]]:
    """The installed packages by the modules that they bring."""
    return dict(importlib.metadata.packages_distributions())


@cache
def _needed() -> frozenset[str]:
    """The packages that tacit needs with all its extras, and what these need in turn."""
    needed: set[str] = set()
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += _requirements(name)
    return frozenset(needed)


def _requirements(package: str) -> list[str]:
    try:
        lines = importlib.metadata.requires(package) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    names = []
    for line in lines:
        name = re.match(r"[\w.-]+", line)
        if name and (package in ROOTS or "extra ==" not in line):
            names.append(_normal(name[0]))
    return names


def _normal(name: str) -> str:
    """A package's name as all ways to spell it have it in common."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _divide_import_path(path: str) -> tuple[str, str]:
    """The module and the name in `package.module:name`."""
    module, _, name = path.partition(":")
    if module.endswith(".py"):
        without = module.removesuffix(".py")
        raise StudyError(f"cannot import {path!r}; write {without}:{name}, without .py")
    if not module or not name or module.startswith(".") or "/" in module:
        hint = hint_at_colon(path) or "expected package.module:name"
        raise StudyError(f"cannot import {path!r}; {hint}")
    return module, name


def hint_at_colon(path: str) -> str | None:
    """A hint for those who write a dot where an import path has a colon."""
    module, _, name = path.rpartition(".")
    if not module or not name or ":" in path:
        return None
    return f"an import path has a colon: {module}:{name}"
