"""Benchmarks that others wrote, run where they are installed, for a limited time and size; none needs root."""

import shlex

DIAGNOSTIC = "dcgmi diag -r 1 -j"
WRITE = "ib_write_bw"
WRITE_S = 2
PORT = 18_731
TOOL_S = 120.0
"""a tool may take"""


def all_reduce_test(gpus: int) -> str:
    return f"all_reduce_perf -b 256M -e 256M -f 2 -n 20 -w 5 -g {gpus}"


def write_test(card: str) -> str:
    """A card to itself: a server in the background, a client in front, both for seconds."""
    each = f"{WRITE} -d {shlex.quote(card)} -p {PORT} -D {WRITE_S} --report_gbits"
    return shlex.join(["sh", "-c", f"{each} >/dev/null 2>&1 & sleep 1; {each} localhost"])
