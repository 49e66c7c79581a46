"""`shardwise lab`: real jobs over an emulated fabric. What it does is in its sub-commands."""

from cyclopts import App, Parameter

from shardwise.show.cli._examples import epilogue
from shardwise_lab.cli.chaos import chaos
from shardwise_lab.cli.jobs import demo, run
from shardwise_lab.cli.stands import down, listed, up

EXAMPLES = ("lab list --json", "lab run --on star4 --train tp=2,pp=2 --dry-run")

lab = App(
    name="lab",
    help="Real jobs on an emulated fabric, against the prediction.",
    help_epilogue=epilogue(EXAMPLES),
    default_parameter=Parameter(negative=()),
    result_action="return_value",
)
lab.command(listed, name="list")
lab.command(demo)
lab.command(run)
lab.command(chaos)
lab.command(up)
lab.command(down)
