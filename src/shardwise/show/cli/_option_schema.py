"""The options of a question as JSON Schema, from the table of parameters: what agents may write into `options`."""

from typing import Any, get_type_hints

from shardwise.spec.parameter import Parameter
from shardwise.spec.parameters import Options, flag_of, parameters

KINDS = {"int": "integer", "float": "number", "bool": "boolean", "list": "array"}


def question_schema() -> dict[str, Any]:
    """Option -> schema of its value."""
    hints = get_type_hints(Options)
    return {flag_of(name): _schema(str(hints[name]), row) for name, row in parameters().items()}


def _schema(kind: str, row: Parameter) -> dict[str, Any]:
    named = next((found for word, found in KINDS.items() if word in kind), "string")
    found: dict[str, Any] = {
        "type": ["string", "number"] if named == "string" else named,
        "description": f"{row.text} Default: {row.default}.",
    }
    if named == "array":
        found["items"] = {"type": "string"}
    if named in ("integer", "number"):
        if row.least is not None:
            found["exclusiveMinimum" if row.above else "minimum"] = row.least
        if row.most is not None:
            found["maximum"] = row.most
    if row.words and not row.open:
        found["enum"] = [word for word in row.words if word]
    return found
