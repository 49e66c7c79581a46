"""`shardwise fabric`: what a cluster's network should do, and what it does."""

from cyclopts import App, Parameter

from shardwise.cli._verbs import VERBS
from shardwise.cli.fabric_expect import expect

fabric = App(
    name="fabric",
    help=VERBS["fabric"],
    default_parameter=Parameter(negative=()),
    result_action="return_value",
)
fabric.command(expect)
