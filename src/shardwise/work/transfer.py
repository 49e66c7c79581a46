"""What pipeline stages hand to each other."""

from shardwise.work import Work
from shardwise.work.layout import Numbers
from shardwise.work.ops import element_bytes


def transfer_bytes(work: Work) -> Numbers:
    """What one rank sends of one activation (or its gradient) to the next stage."""
    split = work.layout.tp if work.stack.network.scatter_gather_p2p else work.layout.sp
    width = work.model.streams * work.model.hidden
    return element_bytes(work.job.precision) * work.layout.tokens * width / split
