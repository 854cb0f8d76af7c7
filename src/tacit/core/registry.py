"""Named families of frozen dataclasses: algorithms, splits, optimisers and the rest.

Subclassing with a name registers a class, so a new method is one new file:

>>> from dataclasses import dataclass
>>> class Shape(Registered, family="shapes"):
...     pass
>>> @dataclass(frozen=True)
... class Square(Shape, name="square"):
...     side: float = 1.0
>>> Shape.build({"name": "square", "side": 2})
Square(side=2.0)
>>> Shape.build("sqare")
Traceback (most recent call last):
tacit.core.errors.StudyError: no shape is called 'sqare'; did you mean square?
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
from abc import ABC
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from tacit.core.errors import StudyError, TacitError, shown, suggest
from tacit.core.fields import check_names, conform, field_types
from tacit.core.own_code import summarise

FAMILIES: dict[str, type[Registered]] = {}


class Registered(ABC):
    """Base of every family. `home` is the module or folder whose import registers the family's own members.

    `key` is the word that names a member in a file, `name` unless the family says `kind`.
    """

    family: ClassVar[str]
    home: ClassVar[str | None]
    key: ClassVar[str]
    name: ClassVar[str]
    members: ClassVar[dict[str, type[Any]]]

    def __init_subclass__(
        cls,
        family: str | None = None,
        home: str | None = None,
        name: str | None = None,
        key: str = "name",
    ) -> None:
        super().__init_subclass__()
        if family:
            cls.family, cls.home, cls.key, cls.members = family, home, key, {}
            FAMILIES[family] = cls
        if name:
            twin = cls.members.get(name, cls)
            if twin.__module__ != cls.__module__:  # the same module again is a reload
                raise StudyError(
                    f"two {cls.family} are called {name!r}: {twin.__module__} and {cls.__module__}"
                )
            cls.members[name] = cls
        cls.name = name or cls.__name__

    @property
    def calls(self) -> str | None:
        """The import path of code of the user's own that it calls, beside its own class."""
        return None

    @classmethod
    def known(cls) -> dict[str, type[Self]]:
        """The family's members by name, in alphabetical order."""
        if cls.home:
            import_folder(cls.home)
        return dict(sorted(cls.members.items()))

    @classmethod
    def find(cls, name: str) -> type[Self]:
        """The member of that name, or any class by its import path, `package.module:Class`."""
        if name[:1] in ("{", "["):
            raise StudyError(
                f"{cls.singular()}: {shown(name)} is text; leave out the quotes around it"
            )
        if ":" in name:
            found = import_object(name)
            if not (inspect.isclass(found) and issubclass(found, cls)):
                raise StudyError(f"{name} is not a subclass of {cls.__module__}:{cls.__name__}")
            return found
        known = cls.known()
        if name not in known:
            raise StudyError(
                f"no {cls.singular()} is called {name!r}; {_meant(name, known) or suggest(name, known)}"
            )
        return known[name]

    @classmethod
    def singular(cls) -> str:
        """The family's name for one member."""
        return cls.family.removesuffix("s")

    @classmethod
    def check_settings(cls, name: str, given: Mapping[str, Any]) -> None:
        """Refuses a setting that the member of this name does not have, and names one that does."""
        known = field_types(cls.find(name))
        strange = next((key for key in given if key not in known), None)
        if strange is None or "did you mean" in suggest(str(strange), known):
            return check_names(given, known, name)
        if owner := next(
            (other for other, member in cls.known().items() if strange in field_types(member)), None
        ):
            value = given[strange] if isinstance(given[strange], int | float | str) else "..."
            raise StudyError(
                f"{name} has no setting {strange!r}; {owner} has: {{{cls.key}: {owner}, {strange}: {value}}}"
            )
        return check_names(given, known, name)

    @classmethod
    def build(cls, spec: str | Mapping[str, Any] | Self) -> Self:
        """An object from `"name"` or `{"name": ..., fields}`; an object passes through."""
        if isinstance(spec, cls):
            return spec
        settings = (
            {cls.key: spec}
            if isinstance(spec, str)
            else dict(spec)
            if isinstance(spec, Mapping)
            else {}
        )
        name = settings.pop(cls.key, None)
        if not isinstance(name, str):
            raise StudyError(cls._unnamed(spec))
        member = cls.find(name)
        types = field_types(member)
        cls.check_settings(name, settings)
        values = {
            key: conform(value, types[key], f"{name}.{key}") for key, value in settings.items()
        }
        required = {field.name for field in dataclasses.fields(member) if _required(field)}  # type: ignore[arg-type]
        if missing := sorted(required - values.keys()):
            example = "".join(f", {key}: ..." for key in missing)
            raise StudyError(
                f"{name} needs {' and '.join(missing)}; write {{{cls.key}: {name}{example}}}"
            )
        if inspect.isabstract(member):
            raise StudyError(
                f"{name} is not finished: it lacks {' and '.join(sorted(member.__abstractmethods__))}"
            )
        return member(**values)

    @classmethod
    def _unnamed(cls, spec: Any) -> str:
        other = "kind" if cls.key == "name" else "name"
        if isinstance(spec, Mapping) and isinstance(spec.get(other), str):
            return f"{cls.singular()}: expected the word {cls.key} in place of {other}: {{{cls.key}: {spec[other]}, ...}}"
        example = next(iter(cls.known()), "...")
        wanted = f"a {cls.key} or {{{cls.key}: {example}, settings}}"
        by_hand = callable(spec) or hasattr(spec, "forward")  # a class, a function, a torch module
        remedy = (
            "name your own by import path, package.module:name"
            if by_hand
            else f"see tacit list {cls.family}"
        )
        return f"{cls.singular()}: expected {wanted}, got {shown(spec)}; {remedy}"

    def spec(self) -> dict[str, Any]:
        """The object as `{"name": ..., fields}`; `build` undoes it."""
        cls = type(self)
        at_home = cls.home is None or cls.__module__.startswith(
            cls.home
        )  # a name is found again only there
        known = at_home and cls.members.get(getattr(cls, "name", "")) is cls
        name = cls.name if known else f"{cls.__module__}:{cls.__qualname__}"
        return {cls.key: name} | {key: getattr(self, key) for key in field_types(cls)}


def import_object(path: str) -> Any:
    """What `package.module:name` names."""
    module, colon, name = path.partition(":")
    if module.endswith(".py"):
        raise StudyError(
            f"cannot import {path!r}; write {module.removesuffix('.py')}:{name}, without .py"
        )
    if not (colon and module and name):
        example = _dotted(path) or "expected package.module:name"
        raise StudyError(f"cannot import {path!r}; {example}")
    try:
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise StudyError(
            f"cannot import {path!r}: {summarise(error)}; expected package.module:name, importable from here"
        ) from error
    except TacitError:
        raise
    except SyntaxError as error:
        at = f"{Path(str(error.filename)).name}:{error.lineno}"
        raise StudyError(f"cannot import {path!r}: {error.msg} ({at})") from error
    except (Exception, SystemExit) as error:  # whatever the user's module raises
        raise StudyError(f"cannot import {path!r}: its module raised {summarise(error)}") from error


def _meant(name: str, known: Mapping[str, Any]) -> str | None:
    """What a text that is no name was probably meant as."""
    if name.endswith((".csv", ".tsv", ".parquet")):
        return f"a file is {{name: table, path: {name}, target: column}}"
    words = [word for word in re.split(r"[,\s]+", name) if word]
    if len(words) > 1 and words[0] in known:
        settings = ", ".join(word.replace("=", ": ") for word in words[1:])
        return (
            f"write [{', '.join(words)}]"
            if words[1] in known
            else f"write {{name: {words[0]}, {settings}}}"
        )
    return _dotted(name)


def _dotted(path: str) -> str | None:
    """A hint for those who write a dot where an import path has a colon."""
    module, dot, name = path.rpartition(".")
    return (
        f"an import path has a colon: {module}:{name}"
        if dot and module and name and ":" not in path
        else None
    )


def import_folder(name: str) -> None:
    """Imports a module and, where it is a folder, every file in it."""
    module = importlib.import_module(name)
    for found in pkgutil.iter_modules(getattr(module, "__path__", [])):
        importlib.import_module(f"{name}.{found.name}")


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
