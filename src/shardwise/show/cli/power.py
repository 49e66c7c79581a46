"""`shardwise calc power`: watts, megawatt hours and dollars of any number of GPUs."""

from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.power import power_answer
from shardwise.show.cli._options import Json, within
from shardwise.show.cli._output import answered
from shardwise.spec.load import gpu_of
from shardwise.units import count_of, seconds_of, watts_of


def power(
    *,
    gpus: Annotated[str, Parameter(help="GPUs, any number: 50,000 or 100k.")],
    time: Annotated[str, Parameter(help="How long, such as '60 d'.")],
    watts: Annotated[str, Parameter(help="Of each: '350 W', or a GPU of the catalog for its board power.")] = "h100",
    kwh: Annotated[float, Parameter(help="USD per kWh."), within(0, 100)] = 0.10,
    pue: Annotated[float, Parameter(help="Energy of the site over that of the GPUs."), within(1, 10)] = 1.0,
    json: Json = False,
) -> int:
    """Power, energy and the bill for electricity, without a fabric or a model."""
    each = watts_of(watts, "watts") if watts[:1].isdigit() else gpu_of(watts).power_watts
    number = count_of(gpus, "gpus")
    if number < 1:
        raise ValueError(f"gpus: {number} is out of range; write a number above 0")
    return answered(power_answer(number, each, seconds_of(time, "time"), kwh, pue), json)
