"""Between which values a fitted setting may lie, and why: outside them it would not mean what it says."""

from math import exp, log
from typing import NamedTuple


class Bound(NamedTuple):
    low: float
    high: float
    reason: str
    memory: bool = False
    """fitted on peak memory instead of step time"""
    logarithmic: bool = False
    """searched by factors: the setting spans decades"""

    def unit(self, value: float) -> float:
        """The value's place between the bounds, 0 to 1."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            return log(value / self.low) / log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def value(self, unit: float) -> float:
        if self.logarithmic:
            return self.low * exp(unit * log(self.high / self.low))
        return self.low + unit * (self.high - self.low)


BOUNDS = {
    "kernel_efficiency": Bound(
        0.5, 1.05, "the kernel curves are sustained rates: little above them, and below half something else is slow"
    ),
    "attention_efficiency": Bound(0.4, 1.2, "older or unfused kernels reach half of the curve, newer ones pass it"),
    "grouped_gemm_efficiency": Bound(
        0.3, 1.2, "many small products: a third of one large one, or its curve and a little"
    ),
    "pointwise_passes": Bound(0.7, 4.0, "full fusion saves a third of the counted traffic; eager code repeats it"),
    "host_s_per_op": Bound(1e-6, 5e-5, "a launch takes microseconds, through Python tens", logarithmic=True),
    "ops_per_layer": Bound(8.0, 100.0, "kernels of one layer's forward, all fused to all apart"),
    "ops_per_end": Bound(2.0, 60.0, "a lookup, or a product and the dozens of operations of an unfused loss"),
    "ops_per_recompute": Bound(0.0, 300.0, "a checkpoint saves and restores state and sets hooks: within milliseconds"),
    "gap_s_per_op": Bound(0.0, 1e-5, "one kernel drains and the next fills the GPU: a few microseconds"),
    "ops_per_expert_layer": Bound(
        0.0, 600.0, "routing, permuting, a few launches for each local expert, and waits for the token counts"
    ),
    "ops_per_collective": Bound(0.0, 40.0, "copies, checks and waits around a collective, in launches"),
    "stall_s_per_peer": Bound(0.0, 5e-4, "a fraction of a millisecond is one outstanding transfer"),
    "grad_accumulation_bytes": Bound(
        0.0, 24.0, "cast to a copy in fp32 (6), add it (12), clear the 16-bit gradient (2), read it once more (4)"
    ),
    "step_overhead_s": Bound(0.0, 0.1, "data loading and logging, not compute"),
    "optimizer_passes": Bound(0.8, 5.0, "an unfused Adam touches its state a few times"),
    "loss_passes": Bound(4.0, 24.0, "fused loss to one tensor per operation"),
    "hidden_share": Bound(0.0, 1.0, "a share"),
    "overlap_slowdown": Bound(0.0, 0.3, "collectives take a few of the multiprocessors"),
    "bucket_bytes": Bound(1e6, 1e9, "from one tensor to the whole gradient", logarithmic=True),
    "bucket_bytes_per_rank": Bound(0.0, 1e7, "beyond this a bucket of a thousand ranks is the whole gradient"),
    "gather_bucket_bytes": Bound(1e6, 1e9, "from one tensor to all parameters", logarithmic=True),
    "fabric_efficiency": Bound(0.25, 1.0, "a network never passes its line rate; below a quarter it is broken"),
    "boundary_message_s": Bound(0.0, 1e-4, "a proxy thread hands each message to the card: tens of microseconds"),
    "overlap_ep": Bound(0.0, 0.95, "a share; the first and the last exchange cannot hide"),
    "expert_imbalance": Bound(1.0, 1.5, "the fullest rank has at least the mean"),
    "transfer_overhead_s": Bound(0.0, 1e-3, "a handshake, not a transfer"),
    "selective_repeat": Bound(0.0, 1.0, "a share of a layer's forward"),
    "selective_kept": Bound(0.2, 1.0, "a share of the saved tensors", memory=True),
    "act_overhead": Bound(0.8, 1.6, "the list of saved tensors is nearly complete", memory=True),
    "base_bytes": Bound(0.0, 1.2e10, "context, workspaces and communication buffers of one GPU", memory=True),
    "fragmentation": Bound(0.0, 0.3, "a caching allocator loses some percent", memory=True),
    "loss_logit_bytes": Bound(2.0, 24.0, "one to six copies of a logit in two or four bytes", memory=True),
    "grad_copy_bytes": Bound(0.0, 4.0, "one second gradient at most", memory=True),
}


def bound_of(setting: str) -> Bound:
    if setting not in BOUNDS:
        raise ValueError(f"fitted: {setting!r} has no bounds; add it with a reason to benchmarks/_accuracy_bounds.py")
    return BOUNDS[setting]
