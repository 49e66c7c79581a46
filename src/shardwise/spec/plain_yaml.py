"""YAML from strangers -> dicts, lists and text, nothing else.

Only the structure is taken from YAML. Every scalar stays text, so tags, dates, `no` and `1e3` cannot
surprise; aliases (the way to make a small file explode) are refused, and so are deep, very large and repeated
structures.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from shardwise.fields import read_file

T = TypeVar("T")
LARGEST_FILE = 1 << 20
DEEPEST = 12
MOST_NODES = 20_000


class _BoundedLoader(yaml.SafeLoader):
    deepest = DEEPEST
    _depth = 0
    _nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not allowed: write the value out", problem_mark=mark
            )
        self._depth += 1
        self._nodes += 1
        if self._depth > self.deepest:
            raise yaml.MarkedYAMLError(problem=f"nested more than {self.deepest} deep", problem_mark=mark)
        if self._nodes > MOST_NODES:
            raise yaml.MarkedYAMLError(problem=f"more than {MOST_NODES} values", problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _DeepLoader(_BoundedLoader):
    """Of jobs on Kubernetes, whose containers lie deep."""

    deepest = 2 * DEEPEST


def read_yaml(path: Path, what: str = "cluster") -> str:
    """The text of a YAML file of reasonable size."""
    data = read_file(path, what, LARGEST_FILE, "the path of a YAML file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{what}: {str(path)!r} is not UTF-8 text (byte {error.start}); write the path of a YAML file"
        ) from error


def parse_yaml(text: str, where: str, *, last_holds: bool = False) -> Any:
    """Nested dicts and lists whose leaves are text; None for an empty document. `last_holds`: of a key that is given
    twice, as in the programs whose files they are; else that is an error."""
    node = composed(text, where)
    return None if node is None else _plain(node, where, last_holds)


def parse_all(text: str, where: str) -> list[Any]:
    """As `parse_yaml`, of a file that may hold several documents; of a key that is given twice the last holds."""
    nodes = _composed(text, where, lambda: list(yaml.compose_all(text, _DeepLoader)))
    return [_plain(node, where, True) for node in nodes]


def composed(text: str, where: str) -> yaml.Node | None:
    """The structure, whose nodes know where in the text they stand."""
    return _composed(text, where, lambda: yaml.compose(text, Loader=_BoundedLoader))


def _composed(text: str, where: str, compose: Callable[[], T]) -> T:
    if len(text) > LARGEST_FILE:
        raise ValueError(f"{where}: more than {LARGEST_FILE} characters; write less")
    try:
        return compose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f" line {mark.line + 1}" if mark else ""
        raise ValueError(f"{where}{line}: not readable as YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # outside its own errors the scanner lets bad escapes (chr) and over-long numbers (int) through
        raise ValueError(f"{where}: not readable as YAML: {str(error).splitlines()[0]}") from error


def _plain(node: yaml.Node, where: str, last_holds: bool) -> Any:
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key, value in node.value:
            line = f"{where} line {key.start_mark.line + 1}"
            if not isinstance(key, yaml.ScalarNode):
                raise ValueError(f"{line}: a key must be a word, not a list or mapping")
            if key.value in found and not last_holds:
                raise ValueError(f"{line}: {key.value[:60]!r} is given twice; keep one")
            found[key.value] = _plain(value, where, last_holds)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, where, last_holds) for item in node.value]
    return node.value
