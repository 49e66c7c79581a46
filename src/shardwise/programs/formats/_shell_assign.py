"""Assignments of a shell script: text, arrays, members of arrays."""

import re

from shardwise.programs.formats._shell_words import NAME, Environment, Expander

ASSIGNS = re.compile(rf"({NAME})(\[[^\]]*\])?(\+?=)", re.ASCII)


def assign(raw: str, environment: Environment) -> None:
    """NAME=VALUE, NAME+=VALUE, NAME[KEY]=VALUE or NAME=(MEMBERS)."""
    match = ASSIGNS.match(raw)
    if match is None:
        return
    name, index, sign = match.groups()
    value, variables = raw[match.end() :], environment.variables
    before = variables.get(name, []) if sign == "+=" or index else []
    if value.startswith("(") and value.endswith(")"):
        variables[name] = [*before, *Expander(value[1:-1], environment).words()]
        return
    text = " ".join(Expander(value, environment).word(whole=True)) if value else ""
    if index:
        key = "".join(Expander(index[1:-1], environment).words())
        variables[name] = [*(member for member in before if not member.startswith(f"[{key}]=")), f"[{key}]={text}"]
    else:
        variables[name] = [("".join(before) if sign == "+=" else "") + text]
