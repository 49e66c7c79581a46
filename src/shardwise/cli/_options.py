"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.calibrate.profile import Profile, profile_of
from shardwise.cli._groups import CLUSTER, OUTPUT

ACTS = "writes a file or runs something"
"""in the `Annotated` of an option that does: it is not for agents"""
Json = Annotated[
    bool, Parameter(name="--json", negative=(), group=OUTPUT, help="Write JSON to stdout; keys carry their unit.")
]
Explain = Annotated[
    bool,
    Parameter(
        name="--explain", negative=(), group=OUTPUT, help="Also where widely read texts are wrong about these numbers."
    ),
]
ProfileFile = Annotated[
    Path | None,
    Parameter(name="--profile", group=CLUSTER, help="What `calibrate` measured on such a GPU, instead of the catalog."),
]
Nic = Annotated[
    str | None,
    Parameter(
        name="--nic", group=CLUSTER, help="Network cards, as '100Gbps/node', '400Gbps/gpu' or '8x400Gbps' a node."
    ),
]


def profile_or_none(path: Path | None) -> Profile | None:
    return None if path is None else profile_of(path)
