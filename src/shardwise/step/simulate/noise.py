"""What makes a step slower than its plan: one slow GPU or link, and times that vary from step to step."""

from statistics import NormalDist
from typing import Literal

import numpy as np
from msgspec import Struct

from shardwise.arrays import Floats
from shardwise.fields import state_once
from shardwise.registry import closest

Tail = Literal["lognormal", "exponential"]
TAILS = ("lognormal", "exponential")
MOST_FACTOR = 1e6
MOST_STEPS = 100_000


class Straggler(Struct, frozen=True, kw_only=True):
    """A slow GPU holds up its tensor-parallel group, so a whole stage of one pipeline; a slow link one cut."""

    stage: int
    factor: float
    """its time over a healthy one's"""
    link: bool = False
    """the link from this stage to the next, instead of the GPU"""
    replicas: int = 1
    """how many of the data-parallel pipelines have it"""

    def __post_init__(self) -> None:
        if not 0 < self.factor <= MOST_FACTOR:
            raise ValueError(f"straggler: factor is {self.factor:g}; write a number above 0, such as 1.2")
        if self.stage < 0 or self.replicas < 1:
            raise ValueError(
                f"straggler: stage {self.stage}, replicas {self.replicas}; write a stage from 0 and 1 replica or more"
            )


class Jitter(Struct, frozen=True, kw_only=True):
    share: float
    """standard deviation of a task's time, as a share of it"""
    steps: int = 200
    seed: int = 0
    tail: str = "lognormal"
    """lognormal varies around the plan; exponential only ever adds"""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 10:
            raise ValueError(f"jitter: {self.share:g} is out of range; write a share such as 0.05")
        if not 1 <= self.steps <= MOST_STEPS:
            raise ValueError(f"steps: {self.steps} is out of range; write a whole number from 1 to {MOST_STEPS:,}")
        if self.seed < 0:
            raise ValueError(f"seed: {self.seed} is out of range; write a whole number of 0 or more")
        if self.tail not in TAILS:
            raise ValueError(f"tail: {self.tail!r} is unknown; {closest(self.tail, list(TAILS))}")

    def factors(self, tasks: int, steps: int, generator: "np.random.Generator") -> Floats:
        """tasks x steps: what each time is multiplied by."""
        if self.tail == "exponential":
            return np.asarray(1.0 + generator.exponential(self.share, (tasks, steps)))
        spread = np.sqrt(np.log1p(self.share**2))
        return np.asarray(generator.lognormal(-(spread**2) / 2, spread, (tasks, steps)))


def straggler_of(text: str) -> Straggler:
    """'stage=2,factor=1.2', 'link=0,factor=3', and replicas=N for more than one pipeline."""
    values: dict[str, float] = {}
    for word in text.split(","):
        name, _, value = word.partition("=")
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"straggler: {word!r} in {text!r}; write stage=2,factor=1.2") from None
        state_once(values, name.strip(), number, "straggler")
    known = {"stage", "link", "factor", "replicas"}
    if set(values) - known or "factor" not in values or ("stage" in values) == ("link" in values):
        raise ValueError(f"straggler: {text!r}; write stage=2,factor=1.2 or link=2,factor=3, and replicas=4 for more")
    where = values.get("stage", values.get("link", 0.0))
    replicas = values.get("replicas", 1.0)
    if not all(v.is_integer() for v in (where, replicas)):
        raise ValueError(f"straggler: {text!r}: stage, link and replicas are whole numbers; write stage=2,factor=1.2")
    return Straggler(stage=int(where), factor=values["factor"], link="link" in values, replicas=int(replicas))


def slowest_of(samples: Floats, replicas: int, generator: "np.random.Generator") -> Floats:
    """The slowest of so many equal pipelines in each step: drawn from a normal of the samples' mean and spread, as a
    pipeline's time is a sum of many; so a thousand replicas cost no more than one."""
    if replicas <= 1 or len(samples) < 2:
        return samples
    normal = NormalDist()
    tops = np.clip(generator.random(len(samples)) ** (1.0 / replicas), 1e-12, 1 - 1e-12)
    return np.asarray(samples.mean() + samples.std(ddof=1) * np.array([normal.inv_cdf(float(u)) for u in tops]))
