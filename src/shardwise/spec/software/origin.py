"""Where a number of a stack comes from, as its file states it.

A plain value states what the program does, read in its source or documentation (the file's `source` says where). A
number that is not read says so: `{ timed = 20.0, by = "evidence/timed/….csv" }`, `{ fitted = 0.91 }` (on the runs of
`fitted_on`), `{ set = 0.27, on = "source of the rows" }` (chosen on measured rows, not by the fit), or
`{ assumed = 0.4, after = "what it was taken from" }`. A number of another stack is `{ like = "megatron-core" }`.
"""

from typing import Any, Literal, NamedTuple

from shardwise.registry import closest

Kind = Literal["default", "read", "timed", "fitted", "set", "assumed"]
REFERENCE = {"timed": "by", "fitted": "", "set": "on", "assumed": "after"}
"""kind of origin -> the key that says which timings or rows"""
SUPPORT = ("rows", "groups", "sources")
"""how many measured runs a number moves, beside it in the table of fitted ones"""


class Origin(NamedTuple):
    kind: Kind
    reference: str
    """which source, timings or rows"""
    stack: str
    """whose file states it; empty for a default"""

    def __str__(self) -> str:
        words = {
            "default": "shardwise's default",
            "read": f"read in the program: {self.reference}",
            "timed": f"timed: {self.reference}",
            "fitted": f"fitted on {self.reference}",
            "set": f"set on rows of {self.reference}",
            "assumed": f"assumed: {self.reference}",
        }
        return words[self.kind] + (f" (stack {self.stack})" if self.stack else "")


def stated(value: Any, *, where: str, stack: str, source: str, fitted_on: str) -> tuple[Any, Origin]:
    """A setting as its file has it -> (value, origin); `where` names file and field in errors."""
    if not isinstance(value, dict):
        return value, Origin("read", source, stack)
    kinds = [key for key in value if key in REFERENCE]
    if len(kinds) != 1:
        raise ValueError(f"{where}: {value!r} does not say where the number comes from; write a plain value, or one of "
                         f"{', '.join(REFERENCE)}, such as {{ fitted = 0.9 }}")  # fmt: skip
    kind = kinds[0]
    key = REFERENCE[kind]
    for other in value:
        if other not in (kind, key, *SUPPORT):
            raise ValueError(
                f"{where}: {other!r} is unknown next to {kind!r}; {closest(other, [key] if key else [kind])}"
            )
    reference = value.get(key, "") if key else fitted_on
    if not reference:
        missing = f"write {key} = '…'" if key else "write fitted_on = 'sources of the rows' at the top of the file"
        raise ValueError(f"{where}: {kind} {value[kind]!r} does not say on what; {missing}")
    return value[kind], Origin(kind, reference, stack)
