"""Causes of a slow or failed run, in words and with cures, for `why`, `watch` and `doctor`.

Kinds of failure are in failures.toml.
"""

from msgspec import Struct

from shardwise.measured.diagnose.failure_lines import UNEXPLAINED, failure_kinds

CAUSES: dict[str, str] = {
    **{kind.code: kind.name for kind in failure_kinds().values()},
    UNEXPLAINED: "an error that is not understood",
    "compute": "kernels",
    "clocks": "low clocks",
    "tp_comm": "tensor-parallel collectives",
    "cp_comm": "context-parallel exchange",
    "ep_comm": "expert exchange",
    "fsdp_comm": "ZeRO 3 gathers and scatters",
    "grad_comm": "gradient reduction",
    "param_comm": "parameter gather",
    "bubble": "pipeline bubble and transfers",
    "comm": "collectives, axis unknown",
    "wait": "waiting for slower ranks",
    "straggler": "one slow rank",
    "host": "host launches late",
    "data": "waiting for data",
    "checkpoint": "checkpoints",
    "evaluation": "evaluations",
    "stalls": "stalls at a fixed interval",
    "spikes": "single slow steps",
    "drift": "steps growing slower",
    "shift": "permanent slowdown",
    "jitter": "steps that vary",
    "copy": "copies to and from the host",
    "idle": "GPU idle, reason unknown",
    "restart": "work done again",
    "level": "steady step time above prediction",
    "slow_stage": "one slow pipeline stage",
    "slow_link": "a slow network",
    "hot_expert": "a hot expert",
    "sequence": "sequences of uneven length",
    "memory_leak": "memory that grows",
    "memory": "memory beyond its prediction",
    "retries": "memory so full that the allocator starts again",
    "contention": "processors shared with others",
    "network": "a collective that does not end",
    "throttled": "a GPU below its clock",
    "losses": "packets lost",
    "paused": "a port stopped by flow control",
    "idle_gpu": "a GPU that runs kernels less than before",
    "slow_port": "a port with less traffic than its peers",
    "marked": "packets marked for congestion (ECN)",
    "queued": "a queue that stands in a switch",
    "slow_collective": "a collective slower than before",
}
"""code -> in words; of communication what is exposed"""
CURES: dict[str, str] = {
    **{kind.code: kind.cure for kind in failure_kinds().values()},
    UNEXPLAINED: "read that log from there on, and those of the other ranks: it fits no kind known here",
    "compute": "larger micro-batches or less recompute; give the clocks too (a log of `nvidia-smi` or DCGM)",
    "clocks": "look at power limit, cooling and clocks set by hand (`nvidia-smi -q -d PERFORMANCE,POWER,CLOCK`)",
    "tp_comm": "sequence parallelism, overlap of tensor-parallel collectives, or fewer GPUs in a tensor-parallel group",
    "cp_comm": "fewer context-parallel ranks, or those of one node",
    "ep_comm": "expert-parallel groups inside a node, or overlap of the exchange; look at how even the routing is",
    "fsdp_comm": "larger micro-batches, sharding inside groups (HSDP), or prefetch of the next layer",
    "grad_comm": "overlap of the reduction with the backward pass, more accumulation, or larger buckets",
    "param_comm": "overlap of the gather with the forward pass",
    "bubble": "more micro-batches, or several chunks on each stage (interleaving)",
    "comm": "name its axis by --config or the policy's flags; then overlap it or put its ranks nearer",
    "wait": "profile several ranks: the one that comes last is the one to look at",
    "straggler": "swap the node, or look at its clocks, temperature, PCIe, CPU and links (`shardwise fabric expect`)",
    "host": "CUDA graphs or torch.compile, fewer .item() and print, garbage collection at fixed steps",
    "data": "more workers, prefetch and pinned memory in the data loader; the files nearer to the nodes",
    "checkpoint": "asynchronous or sharded checkpoints, a faster disk, or a longer interval",
    "evaluation": "evaluate less often, or on fewer batches",
    "stalls": "find what the program does at that interval: checkpoints, evaluations, garbage collection, logging",
    "spikes": "garbage collection at the same step on all ranks; look for other jobs on the nodes and the file system",
    "drift": "look for growing lists, logs and caches on the host, memory fragments, and temperature",
    "shift": "look at what changed then: a node, a link, a phase of the data, another job",
    "jitter": "pin processes to cores, garbage collection at fixed steps, nothing else on the nodes",
    "copy": "no offloading, or less of it; pinned memory",
    "idle": "profile with ProfilerActivity.CPU too: launches tell whether the host is late",
    "restart": "shorter checkpoint intervals, if restarts are frequent",
    "level": "profile a few steps (torch.profiler) and give the trace: a log cannot say which part is slow",
    "slow_stage": "give that stage fewer layers (`shardwise search stages`); the last also has the head and loss",
    "slow_link": "look at its cables, ports and counters (`shardwise fabric expect`); leave that node out",
    "hot_expert": "a stronger balancing loss or bias, a capacity limit, or copies of hot experts",
    "sequence": "deal sequences out by their cost, not by their number: balance sum of length and of its square",
    "memory_leak": "look for tensors kept from step to step: lists of losses without .item(), hooks, caches, logging",
    "retries": "leave a few GiB free: a smaller micro-batch or more recompute; expandable segments against fragments",
    "memory": "less micro-batch or more recompute, before it runs out",
    "contention": "nothing else on these nodes; pin processes to cores",
    "network": "all ranks came and the collective did not end: look at links, NICs and their counters",
    "throttled": "look at temperature, power cap and fans of that GPU; clocks of a healthy one do not fall",
    "losses": "packets are lost there: cable, optics, or a buffer without flow control",
    "paused": "a port is stopped by flow control: find the receiver that cannot drain (slow host, PCIe, NIC)",
    "idle_gpu": "it waits: for data, for the host, or for a slower rank; a trace of that rank says which",
    "slow_port": "look at speed, width and errors of that port, and whether its rank has less to send",
    "marked": "many senders meet there: look at placement, hashes (ECMP) and other jobs (`shardwise fabric --packets`)",
    "queued": "more arrives there than leaves: incast of an all-to-all, a slow receiver or two flows on one uplink",
    "slow_collective": "compare with `shardwise fabric expect`; look at links and at the rank that comes last",
}  # fmt: skip
"""code -> what to do about it: of `why`, `watch` and `doctor` alike"""


class Cause(Struct, frozen=True, kw_only=True):
    code: str
    seconds: float
    """of an average step; with a prediction, what is beyond it is `excess_s`"""
    predicted_s: float | None = None
    """None where nothing predicts it"""
    where: str = ""
    """rank, stage, group of ranks or step"""
    evidence: str = ""
    """by what it was told"""
    rank: int | None = None
    """where it is one"""
    since: int | None = None
    """the first step that shows it"""

    @property
    def excess_s(self) -> float:
        return self.seconds - (self.predicted_s or 0.0)

    @property
    def what(self) -> str:
        return CAUSES[self.code]


def ranked(causes: "list[Cause] | tuple[Cause, ...]") -> tuple[Cause, ...]:
    """The largest loss first."""
    return tuple(sorted(causes, key=lambda cause: -cause.excess_s))
