"""`--host-memory`: how much of a node's host may hold what is offloaded."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.cli._groups import CLUSTER
from shardwise.units import bytes_of, gib

HostMemory = Annotated[
    str | None,
    Parameter(
        name="--host-memory", group=CLUSTER, help="Host memory of a node that may hold what is offloaded: '1 TiB'."
    ),
]


def host_bytes_of(text: str | None) -> float | None:
    if text is None:
        return None
    size = bytes_of(text, "host-memory")
    if size < 0:
        raise ValueError(f"host-memory: {text!r} is out of range; write 0 or more, such as '1 TiB'")
    return size


def host_refusal(needed: float, limit: float | None) -> str:
    """Empty: it holds what is offloaded."""
    if limit is None or needed <= limit:
        return ""
    return f"each node offloads {gib(needed)} GiB to its host, --host-memory allows {gib(limit)}"
