"""How much memory this machine has left, and what a model takes of it."""

import os
from pathlib import Path

GIB = 2.0**30
MEMINFO, LIMIT, USED = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
VALUES_SHARE = 0.25
"""of what is free: what a program with all its values may take"""
VALUES_BYTES = 8 * 30
"""a parameter in 64 bits: as built, copied, split and stepped, and its gradient of twenty steps"""
MOST_WORK, MOST_TOKENS = 2e11, 2**14
"""parameters times tokens, and tokens, of a step that is run, with values, some sixty times"""
MOST_TRAINED = 1e15
"""FLOPs of training on this machine: hours"""
COPIES = 3
"""of a block whose cuts are tried, beside itself: its gradient, that of the ranks' shares, and shares that are not a
part in one piece"""
TRIED_BYTES = 8 * (1 + COPIES)
"""a parameter of such a block, in 64 bits"""
TRAINED_BYTES = 4 * 4
"""a parameter that is trained in 32 bits by AdamW, shared by all ranks"""


def free_bytes() -> float:
    """Of this machine, or of the share of it that this process may use."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        lines = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
        free = min(free, int(LIMIT.read_text()) - int(USED.read_text()))
    except (OSError, ValueError, KeyError):
        return free
    return free


def fits_with_values(parameters: int, tokens: int) -> bool:
    """A program is built, copied, split and proven as it is; otherwise it is understood without its weights."""
    few = parameters * VALUES_BYTES <= VALUES_SHARE * free_bytes()
    return few and parameters * tokens <= MOST_WORK and tokens <= MOST_TOKENS


def refuse_tried(what: str, parameters: int, each: int = TRIED_BYTES) -> str:
    """Empty, or why a block's cuts cannot be tried here. `each`: bytes that a parameter takes."""
    need, free = parameters * each, free_bytes()
    if need <= free:
        return ""
    size = f"{need / GIB:,.0f} GiB, {free / GIB:,.0f} are free"
    return f"{what} has {parameters:,} parameters, and to try its cuts takes {size}"


def refuse_trained(parameters: int, ranks: int, tokens: int) -> str:
    """Empty, or why it is not trained here. Every rank begins with a copy of its own. `tokens`: of all steps."""
    need, free = parameters * (TRAINED_BYTES + 4 * (ranks + 1)), free_bytes()
    if need <= free:
        work = 6 * parameters * tokens
        told = f"device: {tokens:,} tokens of {parameters:,} parameters are {work:.1e} FLOPs, hours on this machine"
        return "" if work <= MOST_TRAINED else f"{told}; write fewer --steps or tokens, or leave --device out"
    return (
        f"device: {parameters:,} parameters on {ranks} ranks of this machine take {need / GIB:,.0f} GiB, "
        f"{free / GIB:,.0f} are free; leave --device out"
    )
