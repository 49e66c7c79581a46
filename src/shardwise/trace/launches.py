"""What the host needs until an operator is launched, in operations as `calibrate` measures the machine's host.

Fitted on the host time of the forward and of the backward pass of 36 programs with batches so small that the GPU waits
(`docs/benchmarks/trace-host-h200.csv`, one H200's machine, torch 2.11: products, convolutions, attention, casts, other
kernels, views and modules each have one weight, held towards those of single calls, `trace-machine-h200.csv`). Left out
one at a time, a pass is predicted within 16 % on average; a host's own speed spreads as much from minute to minute.
"""

from shardwise.trace.events import AttentionCall, Convolution, Product, StepEvent

CAST, LIST = "_to_copy", "_foreach"
FORWARD = {"product": 2.3, "convolution": 4.2, "attention": 13.5, "cast": 0.33, "list": 3.0, "plain": 1.37}
"""Python calls the operator, autograd writes down its backward; what autocast rounds, nobody calls"""
BACKWARD = {"product": 1.63, "convolution": 5.7, "attention": 6.9, "cast": 0.93, "list": 3.0, "plain": 0.87}
"""of autograd's own thread"""
OPTIMIZER = {"product": 1.6, "convolution": 1.6, "attention": 1.6, "cast": 1.1, "list": 3.0, "plain": 1.1}
KERNEL = {"forward": FORWARD, "recompute": FORWARD, "backward": BACKWARD, "optimizer": OPTIMIZER}
VIEW = {"forward": 0.42, "recompute": 0.42, "backward": 0.41, "optimizer": 0.4}
QUIET = {"forward": 0.1, "recompute": 0.1, "backward": 0.27, "optimizer": 0.55}
"""of a call that neither runs a kernel nor makes a view: memory asked for, a tensor detached; in an optimizer, a number
it keeps on the host: two for each parameter"""
MODULE = 0.24
UNIT = {"FSDP": {"forward": 33.0, "backward": 100.0}, "FullyShardedDataParallel": {"forward": 47.0, "backward": 150.0}}
"""of FSDP2's and FSDP1's hooks around one unit (`own-gpt-titan` and `xlnetlmheadmodel-fsdp2`; `llama-900m-fsdp1`)"""
COMPILED = {"forward": 1.4, "recompute": 1.4, "backward": 1.6, "optimizer": 1.0}
"""of each kernel, where a compiler has made them (12 and 24 small layers on one H200)"""
FUSED = "fused"
"""what a compiler joined"""


def launches(event: StepEvent, of_message: float) -> float:
    """Mean calls the host spends until the event is launched; `of_message`: on a message."""
    units = sum(UNIT[kind].get(event.phase, 0.0) * count for kind, count in event.units.items())
    if event.is_message:
        return of_message + units
    if event.compiled or event.name == FUSED:
        return COMPILED[event.phase] * bool(event.calls) + units
    if not event.calls:
        return units
    phase = event.phase
    views = event.calls - 1 - event.quiet
    around = VIEW[phase] * views + QUIET[phase] * event.quiet + MODULE * event.modules
    return KERNEL[phase][kind_of(event)] + around + units


def kind_of(event: StepEvent) -> str:
    if event.name == CAST:
        return "cast"
    if event.name.startswith(LIST):
        return "list"
    kinds: dict[type, str] = {Product: "product", Convolution: "convolution", AttentionCall: "attention"}
    return kinds.get(type(event.work), "plain")
