"""A policy that fits and may still crawl: with little memory left free, the allocator gives blocks back to the driver
and asks for new ones, each time waiting for the GPU."""

FULL = 0.88
"""share of a GPU's memory that tensors fill. Of nanotron's published runs with 4 or more stages on 16 to 64 GPUs all 11
above it took 4 to 9 times the predicted step, and 24 of the 122 below it more than twice (docs/validation.md)"""


def nearly_full(peak_bytes: float, capacity_bytes: float) -> list[str]:
    """What to say of a policy's peak; nothing where there is room."""
    share = peak_bytes / capacity_bytes
    if not FULL < share <= 1.0:
        return []
    return [
        f"tensors fill {share:.0%} of the GPU: where the allocator gives blocks back and asks for new ones, every step "
        f"waits. All 11 published runs of nanotron above {FULL:.0%} took 4 to 9 times as long as predicted. Watch "
        "num_alloc_retries of torch.cuda.memory_stats(), or leave more free: recompute, a smaller micro-batch, "
        "--headroom 0.85"
    ]
