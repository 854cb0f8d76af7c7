"""Models and losses that come as Python objects.

Such an object is a class, a function, or a module with its weights. A study's
file cannot hold an object, so it holds a text that names it. An object that cannot be imported by
that text, such as a class of a notebook, is kept here for as long as Python runs.
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

from tacit.core.errors import StudyError, shown
from tacit.core.import_paths import import_object
from tacit.core.registry import Registered
from tacit.core.seeds import derive

OWN: dict[str, Any] = {}  # the text that names an object in a study's file -> the object
LIBRARIES = ("tacit", "torch.nn")  # their classes may be named too
PLAIN = (bool, int, float, str, bytes, type(None))
Traits = list[str | bytes]  # what tells an object from others of its name


def is_own(value: Any) -> bool:
    """Whether a setting is an object of the user's."""
    if isinstance(value, type) and issubclass(value, Registered):
        return False
    return isinstance(value, nn.Module) or callable(value)


def remember(value: Any) -> str:
    """The text that names this object from now on.

    It is `module:name`, with a digest behind it where that names more than one object.
    """
    if isinstance(value, nn.Module):
        return _remember_module(value)
    path = _import_path(value)
    if isinstance(value, type):
        traits = _class_traits(value)
        is_ambiguous = "<locals>" in path
    else:
        traits = _function_traits(value)
        is_ambiguous = not _importable(path, value)
    if OWN.get(path, value) is not value:  # an object of that name was given before
        is_ambiguous = True
    if is_ambiguous:
        path = f"{path}#{_digest(traits)}"
    OWN[path] = value
    return path


def _remember_module(module: nn.Module) -> str:
    kind = type(module)
    traits = _class_traits(kind) + _weight_traits(module)
    path = f"{_import_path(kind)}#{_digest(traits)}"
    OWN[path] = copy.deepcopy(module)
    return path


def _import_path(value: Any) -> str:
    module = getattr(value, "__module__", "?")
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{module}:{name}"


def recall(path: str) -> Any:
    """The object of that name: one that this session has remembered, or one that is imported."""
    if path in OWN:
        return OWN[path]
    module = path.partition(":")[0]
    # What a module draws when it is imported must not depend on when it is imported.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(0, "import", module))
        return _imported(path)


def _imported(path: str) -> Any:
    if "#" in path or "<" in path or path.startswith("__main__:"):
        try:
            return import_object(path, classes_of=LIBRARIES)
        except StudyError:
            raise StudyError(
                f"{path} was given as a Python object, and is not known here;"
                " pass the same object to a Study first, or put what it names into a module"
            ) from None
    return import_object(path, classes_of=LIBRARIES)


def make(maker: Any, arguments: Mapping[str, Any], shape: Sequence[int], outputs: int) -> Any:
    """A copy of a module that is ready, or a new one from a class or a function.

    A class or function that has parameters for the data's sizes gets them. No other class is made.
    """
    if isinstance(maker, nn.Module):
        return copy.deepcopy(maker)
    if isinstance(maker, type) and not issubclass(maker, nn.Module):
        raise StudyError(f"expected a class of torch.nn.Module, got the class {maker.__name__}")
    if not callable(maker):
        raise StudyError(f"expected a class or a function, got {shown(maker)}")
    sizes = {
        "shape": tuple(shape),
        "inputs": math.prod(shape),
        "outputs": outputs,
        "classes": outputs,
    }
    filled = {name: sizes[name] for name in _parameters(maker) if name in sizes}
    return maker(**{**filled, **arguments})


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some classes written in C have no signature
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def _importable(path: str, value: Any) -> bool:
    try:
        return import_object(path, classes_of=LIBRARIES) is value
    except StudyError:
        return False


def _digest(traits: Traits) -> str:
    digest = hashlib.sha256()
    for trait in traits:
        digest.update(trait if isinstance(trait, bytes) else trait.encode())
    return digest.hexdigest()[:12]


def _weight_traits(module: nn.Module) -> Traits:
    traits: Traits = [repr(module)]
    for name, tensor in module.state_dict().items():
        values = tensor.detach().cpu().reshape(-1)
        traits += [name, values.view(torch.uint8).numpy().tobytes()]
    return traits


def _class_traits(kind: type) -> Traits:
    """What a class's own functions do, and its plain attributes."""
    values: dict[str, Any] = {}
    functions: Traits = []
    for name, value in vars(kind).items():
        if isinstance(value, FunctionType):
            functions += _function_traits(value)
        elif not name.startswith("__") and _is_plain(value):
            values[name] = value
    return [kind.__qualname__, _repr(values), *functions]


def _function_traits(value: Any) -> Traits:
    """What a function does: its code, and the plain values that it has from outside."""
    if isinstance(value, functools.partial):
        return _partial_traits(value)
    code = getattr(value, "__code__", None)
    if code is None:  # an object that can be called
        attributes = {name: v for name, v in vars(value).items() if isinstance(v, PLAIN)}
        return [repr(sorted(attributes.items()))]
    outside = [cell.cell_contents for cell in value.__closure__ or ()]
    outside += value.__defaults__ or ()
    outside += (value.__kwdefaults__ or {}).items()
    plain = [_repr(item) for item in outside if _is_plain(item)]
    return [*_code_traits(code), *plain]


def _partial_traits(partial: functools.partial[Any]) -> Traits:
    if isinstance(partial.func, type):
        traits = _class_traits(partial.func)
    else:
        traits = _function_traits(partial.func)
    keywords = sorted(partial.keywords.items())
    return [*traits, repr(partial.args), repr(keywords)]


def _code_traits(code: CodeType) -> Traits:
    constants: Traits = []
    inner: Traits = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):  # a function inside the function
            inner += _code_traits(constant)
        else:
            constants.append(_repr(constant))
    return [code.co_code, repr(code.co_names), *constants, *inner]


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(pair) for pair in value.items())
    if isinstance(value, list | tuple | set):
        return all(_is_plain(item) for item in value)
    return isinstance(value, PLAIN)


def _repr(constant: Any) -> str:
    """A constant as a text that is the same in every session; the order of a set is not."""
    if isinstance(constant, frozenset | set):
        return repr(sorted(repr(item) for item in constant))
    return repr(constant)
