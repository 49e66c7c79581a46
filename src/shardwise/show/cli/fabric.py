"""`shardwise fabric`: what a job does to a cluster's network. Further questions are sub-commands."""

from cyclopts import App, Parameter

from shardwise.show.cli._examples import EXAMPLES, epilogue
from shardwise.show.cli._verbs import VERBS
from shardwise.show.cli.fabric_expect import expect
from shardwise.show.cli.fabric_step import step

fabric = App(
    name="fabric",
    help=VERBS["fabric"],
    help_epilogue=epilogue(EXAMPLES["fabric"], "fabric", paged=True),
    default_parameter=Parameter(negative=()),
    result_action="return_value",
)
fabric.default(step)
fabric.command(expect)
