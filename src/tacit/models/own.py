"""Models that come as Python objects: a class, a function that makes a module, or a module with its weights.

A study's file cannot hold an object, so it holds a text that names it. What cannot be imported by that text, such as a
class of a notebook, is kept here for as long as Python runs.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

from tacit.core.errors import StudyError
from tacit.core.registry import Registered, import_object
from tacit.core.seeds import derive

OWN: dict[str, Any] = {}  # by the text that a study's file has for it
PLAIN = (bool, int, float, str, bytes, type(None))


def is_own(value: Any) -> bool:
    """Whether a model's setting is an object of the user's."""
    if isinstance(value, type) and issubclass(value, Registered):
        return False
    return isinstance(value, nn.Module) or callable(value)


def remember(value: Any) -> str:
    """The text that names this object from now on: `module:name`, with a digest where that names more than one."""
    kind = type(value) if isinstance(value, nn.Module) else value
    path = f"{getattr(kind, '__module__', '?')}:{getattr(kind, '__qualname__', type(kind).__qualname__)}"
    if isinstance(value, nn.Module):
        path = f"{path}#{_digest(_class_parts(kind) + _weights(value))}"
        OWN[path] = copy.deepcopy(value)
        return path
    parts = _class_parts(value) if isinstance(value, type) else _code_parts(value)
    vague = "<locals>" in path if isinstance(value, type) else not _importable(path, value)
    if (
        vague or OWN.get(path, value) is not value
    ):  # a class of that name that was given before is another one
        path = f"{path}#{_digest(parts)}"
    OWN[path] = value
    return path


def recall(path: str) -> Any:
    """The object of that name: one that was given to a study since Python started, or one that can be imported."""
    if path in OWN:
        return OWN[path]
    with torch.random.fork_rng(
        devices=[]
    ):  # what a module draws when it is imported must not depend on when that is
        torch.manual_seed(derive(0, "import", path.partition(":")[0]))
        return _imported(path)


def _imported(path: str) -> Any:
    if "#" in path or "<" in path or path.startswith("__main__:"):
        try:
            return import_object(path)
        except StudyError:
            raise StudyError(
                f"the model {path} was given as a Python object, and is not known here; pass the same object to a Study"
                " first, or put its class into a module"
            ) from None
    return import_object(path)


def make(found: Any, arguments: Mapping[str, Any], shape: Sequence[int], outputs: int) -> Any:
    """The module: a copy of one that is ready, or a new one, told of the data's sizes if it asks for them."""
    if isinstance(found, nn.Module):
        return copy.deepcopy(found)
    sizes = {
        "shape": tuple(shape),
        "inputs": math.prod(shape),
        "outputs": outputs,
        "classes": outputs,
    }
    asked = {name: sizes[name] for name in _parameters(found) if name in sizes}
    return found(**{**asked, **arguments})


def _parameters(found: Callable[..., Any]) -> list[str]:
    try:
        known = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):  # some classes written in C have none
        return []
    return [p.name for p in known if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def _importable(path: str, value: Any) -> bool:
    try:
        return import_object(path) is value
    except StudyError:
        return False


def _digest(parts: list[str | bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode())
    return digest.hexdigest()[:12]


def _weights(module: nn.Module) -> list[str | bytes]:
    tensors = {name: t.detach().cpu().reshape(-1) for name, t in module.state_dict().items()}
    return [
        repr(module),
        *(
            part
            for name, t in tensors.items()
            for part in (name, t.view(torch.uint8).numpy().tobytes())
        ),
    ]


def _class_parts(kind: type) -> list[str | bytes]:
    """What a class's own functions do, and its plain attributes."""
    functions = [value for value in vars(kind).values() if isinstance(value, FunctionType)]
    values = {
        name: value
        for name, value in vars(kind).items()
        if not name.startswith("__") and _is_plain(value)
    }
    return [
        kind.__qualname__,
        _repr(values),
        *(part for value in functions for part in _code_parts(value)),
    ]


def _code_parts(value: Any) -> list[str | bytes]:
    """What a function does: its code, and the plain values that it has from outside."""
    if isinstance(value, functools.partial):
        inner = (
            _class_parts(value.func) if isinstance(value.func, type) else _code_parts(value.func)
        )
        return [*inner, repr(value.args), repr(sorted(value.keywords.items()))]
    code = getattr(value, "__code__", None)
    if code is None:  # an object that can be called
        return [
            repr(
                sorted(
                    (name, item) for name, item in vars(value).items() if isinstance(item, PLAIN)
                )
            )
        ]
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    given = (*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).items())
    outside = [_repr(item) for item in given if _is_plain(item)]
    return [*_bytes_of(code), *outside]


def _bytes_of(code: CodeType) -> list[str | bytes]:
    inner = [
        part for const in code.co_consts if isinstance(const, CodeType) for part in _bytes_of(const)
    ]
    consts = [_repr(const) for const in code.co_consts if not isinstance(const, CodeType)]
    return [code.co_code, repr(code.co_names), *consts, *inner]


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(item) for pair in value.items() for item in pair)
    return (
        all(map(_is_plain, value))
        if isinstance(value, list | tuple | set)
        else isinstance(value, PLAIN)
    )


def _repr(const: Any) -> str:
    """A constant as a text that is the same in every session; the order of a set is not."""
    return repr(sorted(map(repr, const))) if isinstance(const, frozenset | set) else repr(const)
