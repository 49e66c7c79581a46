"""`calc power`: energy and electricity of GPUs that run for a while, by any number of them."""

from collections.abc import Iterator

from shardwise.answers.answer import Answer, FactList, Part
from shardwise.units import time_text

KWH = 3.6e6
"""joules"""


class PowerAnswer(Answer, frozen=True, kw_only=True):
    gpus: int
    watts_per_gpu: float
    pue: float
    """energy of the whole site over that of the GPUs"""
    power_watts: float
    seconds: float
    energy_j: float
    energy_kwh: float
    usd_per_kwh: float
    usd: float
    gpu_hours: float

    def parts(self) -> Iterator[Part]:
        each = f"{self.gpus:,} GPUs x {self.watts_per_gpu:,.0f} W" + ("" if self.pue == 1 else f" x {self.pue:g}")
        yield FactList(f"{each} for {time_text(self.seconds)}", [
            ("power", f"{self.power_watts / 1e6:,.4g} MW"),
            ("energy", f"{self.energy_kwh / 1e3:,.0f} MWh"),
            ("electricity", f"{self.usd:,.0f} USD at {self.usd_per_kwh:g} USD/kWh"),
            ("GPU hours", f"{self.gpu_hours:,.0f}"),
        ])  # fmt: skip


ANSWERS = (PowerAnswer,)


def power_answer(gpus: int, watts: float, seconds: float, usd_per_kwh: float, pue: float) -> PowerAnswer:
    power = gpus * watts * pue
    kwh = power * seconds / KWH
    return PowerAnswer(
        gpus=gpus, watts_per_gpu=watts, pue=pue, power_watts=power, seconds=seconds, energy_j=power * seconds,
        energy_kwh=kwh, usd_per_kwh=usd_per_kwh, usd=kwh * usd_per_kwh, gpu_hours=gpus * seconds / 3600,
    )  # fmt: skip
