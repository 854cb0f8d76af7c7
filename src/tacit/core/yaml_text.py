"""YAML that may come from anybody: no key comes twice, and little text does not become much data.

YAML lets a value be named once and used often, and so again inside of what it is used in: a text of
300 letters can stand for a thousand million values. So what a text stands for is counted first.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from tacit.core.errors import shown

LONGEST = 2 << 20  # letters of a text
DEEPEST = 50  # values inside each other
LONGEST_NUMBER = 100  # digits
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class _Loader(yaml.SafeLoader):
    """YAML lets the last of two equal keys win; here that is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # it cannot be a key, which the parser says
            line = key.start_mark.line + 1
            if key.value in lines:
                raise _DoubleKey(key.value, lines[key.value], line)
            lines[key.value] = line
        return super().construct_mapping(node, deep)


class _DoubleKey(yaml.YAMLError):
    def __init__(self, key: str, first: int, second: int) -> None:
        lines = f"lines {first} and {second}" if first != second else f"line {first}"
        super().__init__(f"{shown(key)} is set twice, in {lines}; keep one of them")


def parse(text: str) -> Any:
    """The values of a YAML text; a YAMLError says where it cannot be read."""
    if len(text) > LONGEST:
        raise yaml.YAMLError(f"it has more than {LONGEST:,} letters")
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _Weighing().weigh(node)
        return loader.construct_document(node)
    except yaml.YAMLError:
        raise
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    except ValueError as error:  # a date such as 2024-13-45
        raise yaml.YAMLError(_one_line(str(error))) from None
    except (TypeError, LookupError, AttributeError, OverflowError):  # the parser trusts tags
        raise yaml.YAMLError("a value is not what its tag says") from None
    finally:
        loader.dispose()


class _Weighing:
    """Counts the letters and values that nodes stand for, those of an alias at each of its uses."""

    def __init__(self) -> None:
        self.sizes: dict[yaml.Node, tuple[int, int]] = {}  # and how deep they are nested
        self.open: set[yaml.Node] = set()

    def weigh(self, node: yaml.Node) -> tuple[int, int]:
        """The size and the depth of a node, if they are sane."""
        if node in self.open:
            raise _complaint(node, "a value contains itself; write it out")
        if node not in self.sizes:
            self.open.add(node)
            self.sizes[node] = self._weigh(node)
            self.open.remove(node)
        return self.sizes[node]

    def _weigh(self, node: yaml.Node) -> tuple[int, int]:
        if isinstance(node, yaml.ScalarNode):
            if node.tag in NUMBERS and len(node.value) > LONGEST_NUMBER:
                raise _complaint(node, f"a number has more than {LONGEST_NUMBER} digits")
            return len(node.tag) + len(node.value), 1
        size, depth = len(node.tag), 1
        for child in _children(node):
            child_size, child_depth = self.weigh(child)
            size += child_size
            depth = max(depth, 1 + child_depth)
        if size > 2 * LONGEST:
            raise _complaint(node, "its aliases stand for too much; write it out")
        if depth > DEEPEST:
            raise _complaint(node, f"it is nested too deeply, more than {DEEPEST} times")
        return size, depth


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value)


def _complaint(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def reason(error: Exception) -> str:
    """The parser's complaint in one line, with the line of the file that it is about."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return _one_line(str(error))
    problem = error.problem or error.context or "it cannot be read"
    hint = _hint(problem)
    if problem.startswith("but "):  # it goes on with the sentence of the context
        problem = f"{error.context}, {problem}"
    problem = _one_line(problem)
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return f"{problem}{hint}"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}{hint}"


def _one_line(text: str, most: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _hint(problem: str) -> str:
    if problem.startswith("mapping values are not allowed"):
        return "; quote a text that holds a colon, or check the indentation"
    if "'\\t'" in problem:
        return "; indent with spaces"
    return ""
