"""The options of a verb as JSON Schema, from the table of parameters and its own: what agents may write as options."""

from typing import Any, get_type_hints

from shardwise.show.cli._agent_tools import AgentTool, options_of
from shardwise.spec.parameter import Parameter
from shardwise.spec.parameters import Options, PosttrainOptions, flag_of, parameters, posttrain_parameters

KINDS = {"int": "integer", "float": "number", "bool": "boolean", "list": "array"}


def verb_schema(tool: AgentTool) -> dict[str, Any]:
    """All options of the tool that leave files alone, and the one with which it writes."""
    from shardwise.show.cli._frame import app  # which names the module of this verb

    acts, known, found = options_of(tool.verb), question_schema(tool.verb), dict[str, Any]()
    for argument in app[tool.verb].assemble_argument_collection():
        name = next((name.removeprefix("--") for name in argument.names if name.startswith("--")), "")
        if not name or name in ("json", "on") or (acts[name] and name != tool.writes):
            continue
        word = name.replace("-", "_")
        kind = str(argument.hint)
        named = next((found for word, found in KINDS.items() if word in kind), "string")
        found[word] = known.get(word) or {
            "type": ["string", "number"] if named == "string" else named, "description": argument.parameter.help or "",
            **({"items": {"type": "string"}} if named == "array" else {}),
        }  # fmt: skip
    return found


def question_schema(verb: str = "") -> dict[str, Any]:
    """Option -> schema of its value; `posttrain` has a table of its own."""
    of_posttrain = verb == "posttrain"
    hints = get_type_hints(PosttrainOptions if of_posttrain else Options)
    rows = posttrain_parameters() if of_posttrain else parameters()
    return {flag_of(name): _schema(str(hints[name]), row) for name, row in rows.items()}


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
