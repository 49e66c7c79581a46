"""The learning rate of each step: linear warm-up, then constant, cosine, linear, or stable with a decay at the end."""

import math

from shardwise.plugins.optimizers import update_rule
from shardwise.run.runtime.train.task import TrainingSettings
from shardwise.spec.model import Model

GPT3_RATE, GPT3_WIDTH = 6e-4, 768
"""of GPT-3 Small (arXiv:2005.14165, table 2.1), whose larger sisters' rates fall nearly as one over their width, as
Adam's should (arXiv:2203.03466)"""
LARGEST_RATE = 1e-3
"""Adam's own default (arXiv:1412.6980)"""


def usual_rate(model: Model, optimizer: str) -> float:
    """For who states none."""
    if not update_rule(optimizer).adaptive:
        return LARGEST_RATE
    return min(GPT3_RATE * GPT3_WIDTH / model.hidden, LARGEST_RATE)


def usual_warmup(optimizer: str, beta2: float, steps: int) -> int:
    """Adam: 2 / (1 - beta2) steps (arXiv:1910.04209), but no more than half of a short run."""
    if not update_rule(optimizer).adaptive:
        return 0
    return min(round(2 / max(1 - beta2, 1e-6)), steps // 2)


def rate_at(settings: TrainingSettings, step: int) -> float:
    """Of the step with this number, from 0; a decay ends at `floor` times the rate."""
    if step < settings.warmup:
        return settings.rate * (step + 1) / settings.warmup
    return settings.rate * (settings.floor + (1.0 - settings.floor) * _left(settings, step))


def _left(settings: TrainingSettings, step: int) -> float:
    """1 at the full rate, 0 at the floor."""
    if settings.decay == "constant":
        return 1.0
    first = settings.warmup
    if settings.decay == "wsd":
        # warm-up, stable, decay (arXiv:2404.06395): the last tenth of the steps unless told
        first = max(first, settings.steps - (settings.decay_steps or max(settings.steps // 10, 1)))
    done = min(max((step - first) / max(settings.steps - first, 1), 0.0), 1.0)
    return 0.5 * (1.0 + math.cos(math.pi * done)) if settings.decay == "cosine" else 1.0 - done
