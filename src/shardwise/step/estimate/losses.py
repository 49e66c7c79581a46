"""What a step loses besides its work and its messages, as a share of them: waiting for the slowest GPU, and what
programs of which no run was fitted take longer."""

from shardwise.spec.software import Stack
from shardwise.step.estimate.band import untuned_share
from shardwise.step.estimate.stragglers import waiting_share
from shardwise.work.layout import Numbers


def lost_share(gpus: Numbers | float, stack: Stack) -> Numbers:
    """Of so many GPUs that wait for each other."""
    waiting = waiting_share(gpus, stack)
    return waiting + untuned_share(stack) * (1.0 + waiting)
