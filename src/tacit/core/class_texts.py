"""Classes as the source text has them, without importing it: `import torch` alone takes seconds.

It understands what dataclasses of methods are written with: bases, annotated fields, defaults that
are constants, `Literal`, and names that other modules of tacit define.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1]
CLASS_WITH_KEYWORD = re.compile(r"^class \w+\([^)]*\b(family|name|kind)=", re.MULTILINE)
FACTORIES: dict[str, Any] = {"dict": {}, "list": [], "tuple": ()}
REQUIRED = "required"


@dataclass(frozen=True)
class ClassText:
    """A class, and the module that defines it."""

    module: str
    node: ast.ClassDef

    def keyword(self, name: str) -> str | None:
        """A text among the keywords of the class, as in `class Mean(Combiner, name="mean")`."""
        for keyword in self.node.keywords:
            if keyword.arg == name and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
        return None

    @property
    def summary(self) -> str:
        """The first paragraph of its docstring, in one line."""
        text = ast.get_docstring(self.node) or ""
        return text.split("\n\n")[0].replace("\n", " ")

    @property
    def line_of_bases(self) -> list[ClassText]:
        """The class, and the classes of tacit that it inherits from, the nearest first."""
        line = [self]
        for base in self.node.bases:
            parent = _find(self.module, base.id) if isinstance(base, ast.Name) else None
            if isinstance(parent, ClassText):
                line += parent.line_of_bases
        return line

    def fields(self) -> dict[str, FieldText]:
        """Its dataclass fields and those that it inherits, in their order."""
        fields: dict[str, FieldText] = {}
        for owner in reversed(self.line_of_bases):
            for node in owner.node.body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    field = FieldText(owner.module, node)
                    if "ClassVar" not in field.names:
                        fields[node.target.id] = field
        return fields


@dataclass(frozen=True)
class FieldText:
    """A field of a dataclass, and the module that defines it."""

    module: str
    node: ast.AnnAssign

    @property
    def names(self) -> list[str]:
        """The names in its annotation."""
        return [node.id for node in ast.walk(self.node.annotation) if isinstance(node, ast.Name)]

    @property
    def default(self) -> Any:
        """Its default, or the word `required`."""
        value = self.node.value
        if isinstance(value, ast.Call):
            factory = self.option("default_factory")
            if isinstance(factory, ast.Name):
                return FACTORIES[factory.id]
            value = self.option("default")
        if value is None:
            return REQUIRED
        if isinstance(value, ast.Name):
            value = _find(self.module, value.id)
        return ast.literal_eval(value)

    @property
    def choices(self) -> list[Any] | None:
        """The values of its `Literal`, if that is its type."""
        annotation: Any = self.node.annotation
        if isinstance(annotation, ast.Name):
            annotation = _find(self.module, annotation.id)
        if not isinstance(annotation, ast.Subscript) or _name_of(annotation.value) != "Literal":
            return None
        values = ast.literal_eval(annotation.slice)
        return list(values) if isinstance(values, tuple) else [values]

    def option(self, name: str) -> Any:
        """What the call that makes its default gets by this name, as in `field(repr=False)`."""
        for keyword in getattr(self.node.value, "keywords", []):
            if keyword.arg == name:
                return keyword.value
        return None

    def classes(self) -> list[ClassText]:
        """The classes of tacit in its annotation."""
        values = [_find(self.module, name) for name in self.names]
        return [value for value in values if isinstance(value, ClassText)]


def class_texts() -> Iterator[ClassText]:
    """All classes of tacit in whose modules a class has the keyword family, name or kind."""
    for path in sorted(SOURCE.rglob("*.py")):
        if CLASS_WITH_KEYWORD.search(path.read_text("utf-8")):
            module = ".".join(["tacit", *path.relative_to(SOURCE).with_suffix("").parts])
            for node in _parse(module).body:
                if isinstance(node, ast.ClassDef):
                    yield ClassText(module, node)


def _find(module: str, name: str) -> Any:
    """What the name stands for in the module: a class, the text of a value, or None elsewhere."""
    if not module.startswith("tacit."):
        return None
    for node in _parse(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return ClassText(module, node)
        if isinstance(node, ast.Assign) and name in map(_name_of, node.targets):
            return node.value
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return _find(node.module, alias.name)
    return None


@cache
def _parse(module: str) -> ast.Module:
    path = SOURCE.joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text("utf-8"))


def _name_of(node: ast.AST) -> str | None:
    return node.id if isinstance(node, ast.Name) else None
