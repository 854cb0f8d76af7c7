"""YAML in which no key comes twice, and the parser's complaints in one line."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """YAML lets the last of two equal keys win; here that is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.value in lines:
                raise _DoubleKey(key.value, lines[key.value], line)
            lines[str(key.value)] = line
        return super().construct_mapping(node, deep)


class _DoubleKey(yaml.YAMLError):
    def __init__(self, key: str, first: int, second: int) -> None:
        lines = f"lines {first} and {second}" if first != second else f"line {first}"
        super().__init__(f"{key!r} is set twice, in {lines}; keep one of them")


def parse(text: str) -> Any:
    """The values of a YAML text; a YAMLError says where it cannot be read."""
    return yaml.load(text, _Loader)  # a SafeLoader


def reason(error: Exception) -> str:
    """The parser's complaint in one line, with the line of the file that it is about."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(error)
    problem = error.problem or error.context or "it cannot be read"
    hint = _hint(problem)
    if problem.startswith("but "):  # it goes on with the sentence of the context
        problem = f"{error.context}, {problem}"
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return f"{problem}{hint}"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}{hint}"


def _hint(problem: str) -> str:
    if problem.startswith("mapping values are not allowed"):
        return "; quote a text that holds a colon, or check the indentation"
    if "'\\t'" in problem:
        return "; indent with spaces"
    return ""
