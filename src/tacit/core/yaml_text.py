"""YAML in which no key comes twice, and complaints about it in one line."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """YAML lets the last of two equal keys win; here that is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise _DoubleKey(key.value, seen[key.value], line)
            seen[str(key.value)] = line
        return super().construct_mapping(node, deep)


class _DoubleKey(yaml.YAMLError):
    def __init__(self, key: str, first: int, second: int) -> None:
        lines = f"lines {first} and {second}" if first != second else f"line {first}"
        super().__init__(f"{key!r} is set twice, in {lines}; keep one of them")


def parse(text: str) -> Any:
    """YAML as plain values; a YAMLError says where it is none."""
    return yaml.load(text, _Loader)  # a SafeLoader


def reason(error: Exception) -> str:
    """The parser's complaint in one line, with the line of the file that it is about."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(error)
    mark = error.problem_mark or error.context_mark
    said = error.problem or error.context or "it cannot be read"
    hint = "; indent with spaces" if "'\\t'" in said else ""
    if said.startswith("mapping values are not allowed"):
        hint = "; quote a text that holds a colon, or check the indentation"
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    if said.startswith("but "):
        said = f"{error.context}, {said}"
    return f"{where}{said}{hint}"
