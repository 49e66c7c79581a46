"""Options as cyclopts takes them, made of the table of parameters, and those that several verbs share besides."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from cyclopts import Parameter

from shardwise.cost.calibrate.profile import Profile, profile_of
from shardwise.show.cli._groups import CLUSTER, JOB, OUTPUT, OVERLAP, POLICY
from shardwise.show.cli._shown import RARE
from shardwise.spec import parameters as table
from shardwise.spec.parameter import Parameter as Row
from shardwise.spec.parameters import ON

ACTS = "writes a file or runs something"
"""in the `Annotated` of an option that does: it is not for agents"""
T = TypeVar("T")
GROUPS = {"cluster": CLUSTER, "job": JOB, "program": JOB, "policy": POLICY, "overlap": OVERLAP, "space": POLICY}
Json = Annotated[
    bool, Parameter(name="--json", negative=(), group=OUTPUT, help="Write JSON to stdout; keys carry their unit.")
]
Verbose = Annotated[
    bool, Parameter(name="--verbose", negative=(), group=OUTPUT, help="Also details: codes, sources, the rest.")
]
Explain = Annotated[
    bool,
    Parameter(
        name="--explain", negative=(), group=OUTPUT, help="Also where widely read texts are wrong about these numbers."
    ),
]


def option(row: Row, name: str = "", **changed: Any) -> Parameter:
    """A row of the table as cyclopts takes it; `changed`: fields of the row that differ in this verb."""
    row = replace(row, **changed)
    given: dict[str, Any] = {
        "group": GROUPS[row.acts_on],
        "help": f"{row.text} [default: {row.default}]" if row.default else row.text,
        "negative": row.off or (),
    }
    if not row.usual:
        given["show"] = RARE
    if row.also:
        given["name"] = (f"--{name}", *row.also)
    return Parameter(**given)


def of_table(name: str, **changed: Any) -> Parameter:
    """An option that one verb takes by itself, as the table has it."""
    return option(table.parameters()[name], table.flag_of(name), **changed)


def within(least: float, most: float | None = None, *, above: bool = False, cure: str = "") -> Parameter:
    """The range of an option of one verb: `Annotated[int, Parameter(help=...), within(1, 1000)]`."""
    row = Row(acts_on="", help="", least=least, most=most, above=above, cure=cure)

    def check(_: Any, value: object) -> None:
        row.check("", value)

    return Parameter(validator=check)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def flags(cls: type[T]) -> type[T]:
    """A frozen dataclass whose rows of the table become options of the command line."""
    hints = get_type_hints(cls, include_extras=True)
    # one without fields of its own has the methods of its parent
    made = dataclass(frozen=True, kw_only=True)(cls) if "__annotations__" in cls.__dict__ else cls
    made.__annotations__ = {name: _as_option(name, hint) for name, hint in hints.items()}
    return Parameter(name="*")(made)


@cache
def _as_option(name: str, hint: Any) -> Any:
    if get_origin(hint) is not Annotated:
        return hint
    kind, *notes = get_args(hint)
    return Annotated[kind, *(option(n, table.flag_of(name)) if isinstance(n, Row) else n for n in notes)]


On = Annotated[str, option(ON)]
Seq = Annotated[str | None, of_table("seq")]
GlobalBatch = Annotated[str | None, of_table("global_batch")]
OptimizerName = Annotated[str | None, of_table("optimizer")]
PrecisionName = Annotated[str | None, of_table("precision")]
StackName = Annotated[str | None, of_table("stack")]
ProfileFile = Annotated[Path | None, of_table("profile")]
ModelName = Annotated[str, Parameter(help=table.MODEL)]
PlanName = Annotated[
    str, Parameter(help="JSON of `plan` or `estimate`; or a model (catalog name, config.json) with policy flags.")
]


def profile_or_none(path: Path | None) -> Profile | None:
    return None if path is None else profile_of(path)
