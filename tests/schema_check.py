"""What of a value breaks a JSON Schema: the words of it that msgspec writes."""

from collections.abc import Iterator
from typing import Any

KINDS = {
    "null": lambda v: v is None, "boolean": lambda v: isinstance(v, bool), "string": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool), "object": lambda v: isinstance(v, dict),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool), "array": lambda v: isinstance(v, list),
}  # fmt: skip
KNOWN = {
    "$schema", "$defs", "$ref", "title", "description", "default", "type", "anyOf", "enum", "properties", "required",
    "items", "prefixItems", "additionalProperties", "minItems", "maxItems", "minLength", "maxLength", "discriminator",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
}  # fmt: skip


def faults(value: Any, schema: dict[str, Any], whole: dict[str, Any], at: str = "") -> Iterator[str]:
    """One line for each place; a word of the schema that is not known is a fault too."""
    yield from (f"{at}: {word} is not understood" for word in set(schema) - KNOWN)
    if "$ref" in schema:
        yield from faults(value, whole["$defs"][schema["$ref"].removeprefix("#/$defs/")], whole, at)
    if "anyOf" in schema:
        ways = [list(faults(value, way, whole, at)) for way in schema["anyOf"]]
        if all(ways):
            yield f"{at}: fits no way: {min(ways, key=len)[0]}"
    kinds = schema.get("type", [])
    if kinds and not any(KINDS[kind](value) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        yield f"{at}: {str(value)[:40]!r} is no {kinds}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if isinstance(value, int | float) and not _in_range(value, schema):
        yield f"{at}: {value} is out of range"
    if isinstance(value, str) and not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        yield f"{at}: {len(value)} characters"
    if isinstance(value, dict):
        yield from (f"{at}: {key} is missing" for key in schema.get("required", ()) if key not in value)
        known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        for key, each in value.items():
            inside = known.get(key, others)
            if inside is False:
                yield f"{at}: {key} is too much"
            elif isinstance(inside, dict):
                yield from faults(each, inside, whole, f"{at}.{key}")
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{at}: {len(value)} entries"
        first, rest = schema.get("prefixItems", []), schema.get("items", {})
        for number, each in enumerate(value):
            inside = first[number] if number < len(first) else rest
            if isinstance(inside, dict):
                yield from faults(each, inside, whole, f"{at}[{number}]")


def _in_range(value: float, schema: dict[str, Any]) -> bool:
    return (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
        and value > schema.get("exclusiveMinimum", float("-inf"))
        and value < schema.get("exclusiveMaximum", float("inf"))
    )
