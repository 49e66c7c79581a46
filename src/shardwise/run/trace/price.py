"""Seconds of each operator and message of a traced step, by the planner's own kernel curves and network."""

from dataclasses import dataclass, field, replace
from math import ceil

from shardwise.cost.calibrate.overlay import curve_with, stack_with
from shardwise.cost.calibrate.profile import Profile
from shardwise.cost.gpu import Curve, gemm_seconds
from shardwise.cost.network import Network
from shardwise.run.trace.attention_rates import attention_kernel_seconds
from shardwise.run.trace.convolution_rates import convolution_seconds
from shardwise.run.trace.events import AttentionCall, Capture, CollectiveCall, Convolution, Pass, Product, StepEvent
from shardwise.run.trace.launches import USUAL_S
from shardwise.run.trace.rates import (
    FLOOR_SHARE,
    GROUPED_TIME,
    cut_seconds,
    least_seconds,
    misaligned,
    oddly,
    padded_bytes,
    pass_seconds,
    thin_seconds,
)
from shardwise.spec.cluster import Cluster
from shardwise.spec.software import Stack
from shardwise.step.estimate.odd_rows import EVEN
from shardwise.work.case import driven_network

PRICED_AS = {"receive": "send", "reduce": "broadcast", "gather": "all_gather", "scatter": "all_gather"}
"""what the network model has no law for, by what moves the same bytes"""
DTYPES = {"fp64": "fp32", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "int8": "fp8"}


@dataclass
class KernelPrices:
    cluster: Cluster
    stack: Stack
    curve: Curve
    network: Network
    tf32: bool
    duty: float = 1.0
    """share of the step in which matrix units work: the power limit lowers the clock by the mean of the step"""
    seen: dict[tuple[str, int, int, int], float] = field(default_factory=dict)

    def of(self, event: StepEvent, cached: float = 0.0) -> float:
        """`cached`: bytes that are in the GPU's cache."""
        work = event.work
        if isinstance(work, CollectiveCall):
            return self._message(work)
        gap = self.stack.host.gap_s_per_op
        if isinstance(work, Product):
            return gap + (self._padded(work) if event.compiled else self._product(work))
        if isinstance(work, AttentionCall):
            return gap + self._attention(work)
        if isinstance(work, Convolution):
            return gap + self._convolution(work)
        floor = self.curve.kernel_floor_s * FLOOR_SHARE
        return gap + floor + pass_seconds(self.curve, self.cluster.gpu, work, cached)

    def _message(self, message: CollectiveCall) -> float:
        size, stride = message.group.size, message.group.stride
        if size < 2:
            return 0.0
        op = PRICED_AS.get(message.op, message.op)
        bytes_ = message.bytes * size if message.op in ("gather", "scatter") else message.bytes
        ranks = 2 if op == "send" else size
        key = (op, bytes_, ranks, stride)
        if key not in self.seen:
            self.seen[key] = float(self.network.seconds(op, bytes_, ranks, stride))
        return self.seen[key]

    def _product(self, work: Product) -> float:
        dtype = self.dtype(work.dtype)
        slowed = misaligned(self.cluster.gpu, work)
        # what odd rows cost is stated over the clock of long runs
        duty = 1.0 if oddly(work) else self.duty
        batch = None if work.batch == 1 else float(work.batch)
        seconds = float(gemm_seconds(self.curve, work.m, work.n, work.k, dtype, batch=batch, duty=duty))
        least = least_seconds(self.cluster.gpu, work)
        if dtype == "fp32":
            least = max(least, thin_seconds(self.curve, self.cluster.gpu, work))
        priced = max(seconds * slowed * GROUPED_TIME.get(work.grouped, 1.0), least) + cut_seconds(work)
        return priced / self.stack.kernels.kernel_efficiency

    def _padded(self, work: Product) -> float:
        """A compiler's product: what does not lie on 16 bytes is copied to where it does."""
        copied = padded_bytes(work)
        even = replace(work, rows=tuple(ceil(row / EVEN) * EVEN for row in work.rows)) if oddly(work) else work
        return self._product(even) + pass_seconds(self.curve, self.cluster.gpu, Pass(2 * copied))

    def _convolution(self, work: Convolution) -> float:
        seconds = convolution_seconds(self.curve, self.cluster.gpu, work)
        return seconds / self.stack.kernels.kernel_efficiency

    def _attention(self, work: AttentionCall) -> float:
        kernel = self.stack.kernels.attention_kernel
        seconds = attention_kernel_seconds(self.curve, self.cluster.gpu, work, kernel)
        return seconds / self.stack.kernels.attention_efficiency

    def dtype(self, name: str) -> str:
        """fp32 products run on tensor cores only where the script allows it."""
        if name == "fp32" and self.tf32:
            return "tf32"
        known = DTYPES.get(name, name)
        return known if known in self.curve.gemm else "fp32"


def prices_of(captured: Capture, cluster: Cluster, stack: Stack, profile: Profile | None = None) -> KernelPrices:
    if cluster.gpus < captured.world:
        raise ValueError(
            f"on: {cluster.name} has {cluster.gpus} GPUs, the traced world {captured.world} ranks; write a larger one"
        )
    # the operations are counted here, so the time of one is the machine's
    measured = profile.host.seconds_per_op if profile is not None and profile.host is not None else USUAL_S
    stack = stack_with(stack, profile).changed(host_s_per_op=measured)
    return KernelPrices(
        cluster=cluster, stack=stack, curve=curve_with(cluster.gpu, profile), tf32=captured.tf32,
        network=driven_network(cluster, stack, profile),
    )  # fmt: skip
