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
import importlib
import inspect
import pkgutil
import re
from abc import ABC
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Self

from tacit.core.errors import StudyError, shown, suggest
from tacit.core.fields import check_names, conform, field_types
from tacit.core.import_paths import hint_at_colon, import_object

FAMILIES: dict[str, type[Registered]] = {}


class Registered(ABC):
    """Base of every family.

    `home` is the module or folder whose import registers the family's own members. `key` is the
    word that names a member in a file, `name` unless the family says `kind`.
    """

    family: ClassVar[str]
    home: ClassVar[str | None]
    key: ClassVar[str]
    name: ClassVar[str]
    # whether `build` takes objects of the user's too, such as a class or a function
    takes_objects: ClassVar[bool] = False
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
            cls.family = family
            cls.home = home
            cls.key = key
            cls.members = {}
            FAMILIES[family] = cls
        if name:
            cls._register(name)
        cls.name = name or cls.__name__

    @classmethod
    def _register(cls, name: str) -> None:
        namesake = cls.members.get(name, cls)
        modules = (namesake.__module__, cls.__module__)
        if modules[0] != modules[1]:  # the same module again is a reload
            raise StudyError(f"two {cls.family} are called {name!r}: {' and '.join(modules)}")
        cls.members[name] = cls

    @property
    def calls(self) -> str | None:
        """The import path of the user's code that it calls, beside its own class."""
        return None

    def variants(self) -> Sequence[Self]:
        """The members that it stands for in a grid: itself, unless a setting asks for more."""
        return (self,)

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
            text = shown(name)
            raise StudyError(f"{cls.singular()}: {text} is text; leave out the quotes around it")
        if ":" in name:
            return cls._find_imported(name)
        members = cls.known()
        if name not in members:
            hint = _guess_meaning(name, members) or suggest(name, members)
            raise StudyError(f"no {cls.singular()} is called {shown(name)}; {hint}")
        return members[name]

    @classmethod
    def _find_imported(cls, path: str) -> type[Self]:
        member = import_object(path, classes_of=("tacit",))
        if not (inspect.isclass(member) and issubclass(member, cls)):
            base = f"{cls.__module__}:{cls.__name__}"
            raise StudyError(f"{cls.singular()}: {path} is not a subclass of {base}")
        return member

    @classmethod
    def singular(cls) -> str:
        """The family's name for one member."""
        return cls.family.removesuffix("s")

    @classmethod
    def check_settings(cls, name: str, settings: Mapping[str, Any]) -> None:
        """Refuses a setting that the member of this name does not have, and names one that does."""
        fields = field_types(cls.find(name))
        strange = [key for key in settings if key not in fields]
        if strange and "did you mean" not in suggest(str(strange[0]), fields):
            cls._refuse_setting_of_another(name, strange[0], settings[strange[0]])
        check_names(settings, fields, name)

    @classmethod
    def _refuse_setting_of_another(cls, name: str, key: str, value: Any) -> None:
        """Where another member has this setting, says which; else does nothing."""
        for owner, member in cls.known().items():
            if key in field_types(member):
                example = value if isinstance(value, int | float | str) else "..."
                spec = f"{{{cls.key}: {owner}, {key}: {example}}}"
                raise StudyError(f"{name} has no setting {shown(key)}; {owner} has: {spec}")

    @classmethod
    def build(cls, spec: str | Mapping[str, Any] | Self) -> Self:
        """An object from `"name"` or `{"name": ..., fields}`; an object passes through."""
        if isinstance(spec, cls):
            return spec
        settings: dict[str, Any] = {}
        if isinstance(spec, str):
            settings = {cls.key: spec}
        elif isinstance(spec, Mapping):
            settings = dict(spec)
        name = settings.pop(cls.key, None)
        if not isinstance(name, str):
            raise StudyError(cls._explain_unnamed(spec))
        member = cls.find(name)
        types = field_types(member)
        cls.check_settings(name, settings)
        values: dict[str, Any] = {}
        for key, value in settings.items():
            values[key] = conform(value, types[key], f"{name}.{key}")
        cls._check_complete(name, member, values)
        return member(**values)

    @classmethod
    def _check_complete(cls, name: str, member: type[Self], values: Mapping[str, Any]) -> None:
        """Refuses a member without a setting that it needs, and one with abstract hooks."""
        required = {field.name for field in dataclasses.fields(member) if _is_required(field)}  # type: ignore[arg-type]
        missing = sorted(required - values.keys())
        if missing:
            blanks = "".join(f", {key}: ..." for key in missing)
            example = f"{{{cls.key}: {name}{blanks}}}"
            raise StudyError(f"{name} needs {' and '.join(missing)}; write {example}")
        if inspect.isabstract(member):
            hooks = " and ".join(sorted(member.__abstractmethods__))
            raise StudyError(f"{name} is not finished: it lacks {hooks}")

    @classmethod
    def _explain_unnamed(cls, spec: Any) -> str:
        """Why a spec names no member, and what to write instead."""
        family = cls.singular()
        wrong_key = "kind" if cls.key == "name" else "name"
        if isinstance(spec, Mapping) and isinstance(spec.get(wrong_key), str):
            example = f"{{{cls.key}: {spec[wrong_key]}, ...}}"
            return f"{family}: expected the word {cls.key} in place of {wrong_key}: {example}"
        names = list(cls.known())
        example = names[0] if names else "..."
        remedy = f"known: {', '.join(names)}"
        if callable(spec) or hasattr(spec, "forward"):  # a class, a function, a torch module
            remedy = "name your own by import path, package.module:name"
        wanted = f"a {cls.key} or {{{cls.key}: {example}, settings}}"
        return f"{family}: expected {wanted}, got {shown(spec)}; {remedy}"

    def spec(self) -> dict[str, Any]:
        """The object as `{"name": ..., fields}`; `build` undoes it."""
        cls = type(self)
        path = f"{cls.__module__}:{cls.__qualname__}"
        name = cls.name if cls._is_found_by_name() else path
        values = {key: getattr(self, key) for key in field_types(cls)}
        return {cls.key: name, **values}

    @classmethod
    def _is_found_by_name(cls) -> bool:
        """Whether its name alone leads to it in another process, which imports only `home`."""
        at_home = cls.home is None or cls.__module__.startswith(cls.home)
        return at_home and cls.members.get(getattr(cls, "name", "")) is cls


def _guess_meaning(text: str, names: Collection[str]) -> str | None:
    """What was probably meant by a text that is no name, and how to write it."""
    if text.endswith((".csv", ".tsv", ".parquet")):
        return f"a file is {{name: table, path: {text}, target: column}}"
    words = [word for word in re.split(r"[,\s]+", text) if word]
    if len(words) < 2 or words[0] not in names:
        return hint_at_colon(text)
    if words[1] in names:
        return f"write [{', '.join(words)}]"
    settings = ", ".join(word.replace("=", ": ") for word in words[1:])
    return f"write {{name: {words[0]}, {settings}}}"


def import_folder(name: str) -> None:
    """Imports a module and, where it is a folder, every file in it."""
    module = importlib.import_module(name)
    for file in pkgutil.iter_modules(getattr(module, "__path__", [])):
        importlib.import_module(f"{name}.{file.name}")


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
