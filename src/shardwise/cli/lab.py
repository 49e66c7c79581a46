"""`shardwise lab`: real jobs over an emulated fabric. What it does is in its sub-commands."""

from cyclopts import App, Parameter

from shardwise.cli._examples import EXAMPLES, epilogue
from shardwise.cli._verbs import VERBS
from shardwise.cli.lab_chaos import chaos
from shardwise.cli.lab_jobs import demo, run
from shardwise.cli.lab_stands import down, listed, up

lab = App(
    name="lab",
    help=VERBS["lab"],
    help_epilogue=epilogue(EXAMPLES["lab"]),
    default_parameter=Parameter(negative=()),
    result_action="return_value",
)
lab.command(listed, name="list")
lab.command(demo)
lab.command(run)
lab.command(chaos)
lab.command(up)
lab.command(down)
