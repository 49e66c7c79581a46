"""Writes the JSON Schemas of verbs whose answers have no type yet, from samples: `python docs/write_schemas.py [VERB]`.

What a verb prints is caught before it becomes text, so that parts with a type of their own (structs, dataclasses) give
the schema of the type, and only dicts made on the way are told by what was in them: a key that every answer had is
required, and a key has the types it had in any of them. Needs torch for `run`, `verify` and `trace`.
"""

import contextlib
import dataclasses
import io
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from shardwise.show.cli import _output, main
from shardwise.show.cli._verbs import BESIDE, VERBS
from shardwise.show.cli.schema import DRAFT, FOLDER, answer_types, modules_of
from shardwise.show.page.wire import FORMS
from shardwise.spec.policy import Policy

ROOT = Path(__file__).resolve().parents[1]
BESIDE_FOLDER = ROOT / "lab" / "src" / "shardwise_lab" / "schemas"
MOST_KEYS = 40
"""of a dict that has more in one answer the keys are data, not names"""
DATA_KEYS = (
    "files", "environment", "levels", "traffic_bytes", "kinds_bytes", "methods", "boxes", "parts_s", "default_parts_s",
    "time_s", "hidden_s", "blocks_used", "inside", "communication_s", "closed_form_s", "slowed_s", "switches",
    "matrix_bytes", "crossing_bytes", "axes_bytes", "money", "peak_flops", "settings", "changes", "instead",
    "summary", "sources", "prices", "parameters_by_kind", "tensors", "counts", "bytes", "lanes", "seconds_by_lane",
    "groups", "dynamic_shares",
)  # fmt: skip
"""keys of dicts whose own keys are data"""
TYPED_FORMS = {"serve": FORMS}
"""documents of a verb that no command line prints and ends, by what they are: those of the page's server"""
TYPED_KEYS = {"policy": Policy}
"""keys whose dict is one of these, taken apart on the way"""


@dataclasses.dataclass
class Shape:
    """What was seen in one place of the answers."""

    kinds: set[str] = dataclasses.field(default_factory=set)
    types: dict[str, type] = dataclasses.field(default_factory=dict)
    keys: "dict[str, Shape]" = dataclasses.field(default_factory=dict)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    objects: int = 0
    items: "Shape | None" = None
    values: "Shape | None" = None
    """of a dict whose keys are data"""

    def see(self, value: Any, name: str = "") -> None:
        typed = _typed(value, name)
        if typed is not None:
            self.types[typed.__name__] = typed
        elif isinstance(value, dict):
            self._see_keys(value, name)
        elif isinstance(value, list | tuple):
            self.items = self.items or Shape()
            for each in value:
                self.items.see(each, name)
        elif isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
            self.see(msgspec.to_builtins(value), name)
        else:
            self.kinds.add(_kind(value))

    def _see_keys(self, value: dict[str, Any], name: str) -> None:
        if name in DATA_KEYS or (len(value) > MOST_KEYS and name):
            self.values = self.values or Shape()
            for each in value.values():
                self.values.see(each)
            return
        self.objects += 1
        for key, each in value.items():
            self.counts[str(key)] = self.counts.get(str(key), 0) + 1
            self.keys.setdefault(str(key), Shape()).see(each, str(key))

    def schema(self, components: dict[str, Any]) -> dict[str, Any]:
        ways: list[dict[str, Any]] = []
        kinds = self.kinds - {"integer"} if "number" in self.kinds else self.kinds
        if kinds:
            ordered = sorted(kinds)
            ways.append({"type": ordered[0] if len(ordered) == 1 else ordered})
        if self.objects:
            ways.append(self._object(components))
        if self.values is not None:
            ways.append({"type": "object", "additionalProperties": self.values.schema(components)})
        if self.items is not None:
            inside = self.items.schema(components)
            ways.append({"type": "array", "items": inside} if inside else {"type": "array"})
        for each in sorted(self.types):
            (found,), defined = msgspec.json.schema_components([self.types[each]], ref_template="#/$defs/{name}")
            components.update(defined)
            ways.append(found)
        return ways[0] if len(ways) == 1 else {"anyOf": ways} if ways else {}

    def _object(self, components: dict[str, Any]) -> dict[str, Any]:
        required = [key for key, count in self.counts.items() if count == self.objects]
        properties = {key: shape.schema(components) for key, shape in self.keys.items()}
        return {"type": "object", "properties": properties, **({"required": sorted(required)} if required else {})}


def _typed(value: Any, name: str) -> type | None:
    """The type, where it has a schema that the value keeps to."""
    kind = TYPED_KEYS.get(name, type(value)) if isinstance(value, dict) else type(value)
    if not isinstance(kind, type) or not (issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind)):
        return None
    try:
        msgspec.json.schema(kind)
        msgspec.convert(msgspec.to_builtins(value), kind)
    except (TypeError, msgspec.ValidationError, ValueError):
        return None
    return kind


def _kind(value: Any) -> str:
    if value is None or (isinstance(value, float) and value != value):
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number" if abs(value) != float("inf") else "null"
    return "string"


def answers(command: str) -> list[Any]:
    """What a command line prints as JSON, before it is text: the last that was caught; `serve --export` asks others
    on its way."""
    caught: list[Any] = []

    def encode(data: Any) -> bytes:
        caught.append(data)
        return msgspec.json.encode(data)

    kept = _output.msgspec
    _output.msgspec = SimpleNamespace(json=SimpleNamespace(encode=encode, format=msgspec.json.format))  # type: ignore
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
            code = main(shlex.split(command))
    finally:
        _output.msgspec = kept
    if code not in (0, 1) or not caught:
        raise SystemExit(f"{command}: exit code {code}, {len(caught)} answers: {told.getvalue().strip()}")
    return caught[-1:]


def schema_of(verb: str, forms: dict[str, list[str]]) -> dict[str, Any]:
    """`forms`: what is asked -> command lines that ask it."""
    components: dict[str, Any] = {}
    ways = []
    for form, commands in forms.items():
        shape = Shape()
        for command in commands:
            for answer in answers(command):
                shape.see(answer)
        ways.append({"title": form, **shape.schema(components)})
    for form, kind in TYPED_FORMS.get(verb, {}).items():
        (found,), defined = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
        components.update(defined)
        ways.append({"title": form, **found})
    head = {"$schema": DRAFT, "title": f"shardwise {verb} --json"}
    body = ways[0] if len(ways) == 1 else {"anyOf": ways}
    return head | {key: value for key, value in body.items() if key != "title"} | (
        {"$defs": dict(sorted(components.items()))} if components else {}
    )  # fmt: skip


def written(verb: str, schema: dict[str, Any]) -> None:
    folder = BESIDE_FOLDER if verb in BESIDE else FOLDER
    (folder / f"{verb}.json").write_bytes(msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n")


@contextlib.contextmanager
def in_folder_of_files() -> Iterator[Path]:
    """A folder with the files that the command lines name."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "importers")]
    from schema_answers import files

    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files().items():
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).write_bytes(content)
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def run(verbs: list[str]) -> None:
    with in_folder_of_files():
        from schema_answers import ASKED

        modules = [*(module for verb in VERBS for module in modules_of(verb)), *BESIDE]
        missing = [module for module in modules if module not in ASKED]
        if missing:
            raise SystemExit(f"tests/schema_answers.py asks nothing of {', '.join(missing)}")
        for verb in (verb for verb in verbs or modules if not answer_types(verb)):
            print(verb, flush=True)
            written(verb, schema_of(verb, ASKED[verb]))


if __name__ == "__main__":
    run(sys.argv[1:])
