"""The flags of `shardwise plan --joint`, apart from the search: a plan without it starts sooner."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.show.cli._groups import CLUSTER, QUESTION
from shardwise.show.cli._shown import RARE

COMPARE = "compare"
MOST_PARTS = 4


@Parameter(name="*", show=RARE)
@dataclass(frozen=True, kw_only=True)
class JointFlags:
    joint: Annotated[
        bool,
        Parameter(
            negative=(), group=QUESTION,
            help="One search over policy, uneven stages, recompute of each layer, placement and parts of a cluster.",
        ),
    ] = False  # fmt: skip
    methods: Annotated[
        str | None,
        Parameter(group=QUESTION, help="With --joint: a method of `shardwise search`, or compare: all of them."),
    ] = None
    mixed: Annotated[
        list[str] | None,
        Parameter(negative=(), group=CLUSTER, help="With --joint: another cluster that takes part; may repeat."),
    ] = None
    link: Annotated[
        str | None, Parameter(group=CLUSTER, help="With --mixed: total bandwidth between two parts, as '100 Gbps'.")
    ] = None
    per_dollar: Annotated[
        bool, Parameter(negative=(), group=QUESTION, help="With --joint: the least dollars a step instead of seconds.")
    ] = False
    rent: Annotated[
        str | None,
        Parameter(group=QUESTION, help="With --per-dollar: USD per GPU hour of each cluster, as 2.5,1.1; spot prices."),
    ] = None
    routing: Annotated[
        Path | None,
        Parameter(group=QUESTION, help="With --joint: measured experts of tokens, one token a line; places experts."),
    ] = None


NO_JOINT = JointFlags()


def check_joint(asked: JointFlags) -> None:
    """Bad flags fail before anything long."""
    if not asked.joint:
        for field in fields(JointFlags):
            if getattr(asked, field.name) not in (None, False):
                name = field.name.replace("_", "-")
                raise ValueError(f"{name}: --{name} is asked of the joint search; write --joint too, or leave it out")
        return
    from shardwise.plan.search.methods import methods  # a plan of one cluster needs none of them

    if asked.methods is not None and asked.methods not in (known := [COMPARE, *sorted(methods())]):
        raise ValueError(f"methods: {asked.methods!r} is unknown; known: {', '.join(known)}")
    if len(asked.mixed or ()) >= MOST_PARTS:
        raise ValueError(f"mixed: {len(asked.mixed or ())} further clusters; write at most {MOST_PARTS - 1}")
    if bool(asked.mixed) != (asked.link is not None):
        raise ValueError("link: says how the clusters of --mixed are joined; write both, such as --link '100 Gbps'")
    if asked.rent is not None and not asked.per_dollar:
        raise ValueError("rent: is asked for dollars; write --per-dollar too, or leave it out")
