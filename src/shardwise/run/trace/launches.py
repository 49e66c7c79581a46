"""What the host needs until an operator is launched, in operations as `calibrate` measures the machine's host.

Fitted on the host time of forward and backward passes and optimizers of programs with batches so small that the GPU
waits: 49 (`evidence/timed/trace-host-h200.csv`) and 62 (`trace-threads-h200.csv`), one H200's machine, torch 2.11. The
host was measured before each step, in the second table for the script's thread and for autograd's, which runs the
backward on another core: cores of one machine differ by 1.4 (`host-cores-h200.csv`). Products, convolutions, attention,
casts, other kernels, views and calls of Python's own each have one weight, held towards those of single calls
(`trace-machine-h200.csv`). Left out one at a time, a program's host time is 8.2 and 8.8 % off (medians 5.6 and 6.8 %).
Hooks of FSDP and of checkpoints have no weight of their own: their Python is counted.
"""

from shardwise.run.trace.events import COPIES, AttentionCall, Convolution, Product, StepEvent

USUAL_S = 2e-5
"""of an operation, where nobody has measured the machine: medians beside programs on six occasions are from 17.5 to 28
us (host_us in evidence/accuracy/h200_programs_*_measured.csv and _look.csv); of 16 to 24 us it and 21 err least
over 235 measured steps (`evidence/trace_sets.py`)"""
CAST, LIST = "_to_copy", "_foreach"
FORWARD = {"product": 1.93, "convolution": 2.85, "attention": 2.6, "cast": 1.05, "list": 5.5, "plain": 0.87}
"""autograd writes down the backward"""
BACKWARD = {"product": 1.37, "convolution": 5.5, "attention": 2.5, "cast": 1.25, "list": 5.5, "plain": 0.83}
"""of autograd's own thread"""
OPTIMIZER = {"product": 1.0, "convolution": 1.0, "attention": 1.0, "cast": 0.58, "list": 5.5, "plain": 0.58}
"""nothing is written down; measured in optimizers that go from tensor to tensor (Lion, Adafactor)"""
BARE = 0.5
"""of an operator that torch's own C++ calls outside autograd: a launch alone (`trace-threads-h200.csv`, `launch_us`)"""
KERNEL = {"forward": FORWARD, "recompute": FORWARD, "backward": BACKWARD, "optimizer": OPTIMIZER}
VIEW = {"forward": 0.375, "recompute": 0.375, "backward": 0.34, "optimizer": 0.4}
QUIET = {"forward": 0.28, "recompute": 0.28, "backward": 0.65, "optimizer": 0.47}
"""of a call that neither runs a kernel nor makes a view: memory asked for, a tensor detached; in an optimizer, a number
it keeps on the host: two for each parameter"""
PYTHON = 0.030, 0.087
"""of a function of Python's own, and of a built-in one; an optimizer's are in its lists and numbers"""
COMPILED = {"forward": 1.4, "recompute": 1.4, "backward": 1.6, "optimizer": 1.0}
"""of each kernel, where a compiler has made them (12 and 24 small layers on one H200)"""
ENTERED = {"forward": 11.4, "recompute": 11.4, "backward": 10.2, "optimizer": 0.0}
"""of each call of a compiled module or function, before its first kernel: guards, and autograd's wrapper around it
(evidence/timed/compiled-calls-h200.csv: 16 small blocks compiled one by one)"""
FUSED = "fused"
"""what a compiler joined"""


def launches(event: StepEvent, of_message: float) -> float:
    """Mean calls the host spends until the event is launched; `of_message`: on a message."""
    python = 0.0
    if event.phase != "optimizer":
        python = sum(weight * many for weight, many in zip(PYTHON, event.python, strict=True))
    if event.is_message:
        return of_message + python
    if event.compiled or event.name == FUSED:
        return COMPILED[event.phase] * bool(event.calls)
    if not event.calls:
        return python
    phase = event.phase
    views = event.calls - 1 - event.quiet
    kernel = BARE if event.scope == COPIES else KERNEL[phase][kind_of(event)]
    return kernel + VIEW[phase] * views + QUIET[phase] * event.quiet + python


def kind_of(event: StepEvent) -> str:
    if event.name == CAST:
        return "cast"
    if event.name.startswith(LIST):
        return "list"
    kinds: dict[type, str] = {Product: "product", Convolution: "convolution", AttentionCall: "attention"}
    return kinds.get(type(event.work), "plain")
