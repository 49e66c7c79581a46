"""A sample subject of preflight: whether the site's own file says that the node may be used."""

from shardwise.run.preflight.finding import Finding, Probe, Subject, failed, passed
from shardwise.run.preflight.node import Node
from shardwise.run.preflight.planned import PlannedJob


def released(node: Node, plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    return passed("released") if node.read("/etc/sample-released") else failed("not released", "ask the site")


SUBJECT = Subject(
    "sample", 500, (Probe("sample-released", "the site has released it", "/etc/sample-released", released),)
)
