"""What products take longer whose rows do not lie well in memory: off 128-byte lines, off 16 bytes, odd."""

import numpy as np

from shardwise.work.ops import Value

ALIGNED = 64.0
"""elements of 2 bytes in a 128-byte line (NVIDIA, Matrix Multiplication Background: full efficiency from there on)"""
MISALIGNED_TIME = 1.2
"""time of a product whose width is not a multiple of that, over one whose is: BigScience's runs with hidden 14,400
(1,800 columns a rank) against the same cluster's runs with hidden 12,288 to 14,336, their attention (below) apart"""
EVEN = 8.0
"""elements of 2 bytes in the 16 that a tensor core's loads take at once"""
UNEVEN_TIME = 2.8
"""time of a product whose width is not a multiple of that: the head of vTrain's runs on one A100 rank, 50,257 columns,
against the split and padded one on two ranks (hidden 1,024 and 2,048, three micro-batches each)"""
WITH_COPY_ENGINE = ("Hopper", "Blackwell")
"""architectures whose copy engine loads rows that start on 16 bytes; from there on they are as fast as on 128: 50,264
columns take as long as 50,304"""
ODD_WRITE, ODD_READ, UNEVEN_READ = 6.6, 4.75, 2.55
"""time of their product whose result, or whose factor, has rows that do not start on 16 bytes: kernels of earlier
generations run. Of an odd number of elements: 50,257; of an even one: 30,522, 50,260 and 250,002 (one H200, torch 2.11,
evidence/timed/trace-stream-h200.csv)"""
KEPT_APART_TIME = 1.3
"""of the gradient of a weight where such a result was written with room behind each row (GPT-2's head in `shardwise
run`, the same machine: 1.26 ms of 8,192 tokens)"""


def odd_rows(result: Value, *factors: Value) -> Value:
    """Time of a product of Hopper and later over one whose rows start on 16 bytes, by the elements (of 2 bytes) from
    one row to the next."""
    if not any(np.any(np.mod(row, EVEN)) for row in (result, *factors)):
        return 1.0
    slowed: Value = np.where(np.mod(result, 2.0) != 0, ODD_WRITE, np.where(np.mod(result, EVEN) != 0, UNEVEN_READ, 1.0))
    for row in factors:
        its = np.where(np.mod(row, 2.0) != 0, ODD_READ, np.where(np.mod(row, EVEN) != 0, UNEVEN_READ, 1.0))
        slowed = np.maximum(slowed, its)
    return slowed


def misalignment(*rows: Value) -> Value:
    """Rows (of so many elements of 2 bytes) that do not start on 128-byte lines take the tensor cores' slow path, those
    that do not even start on 16 bytes a slower one."""
    if not any(np.any(np.mod(row, ALIGNED)) for row in rows):
        return 1.0
    slowed: Value = 1.0
    for row in rows:
        its = np.where(np.mod(row, EVEN) != 0, UNEVEN_TIME, np.where(np.mod(row, ALIGNED) != 0, MISALIGNED_TIME, 1.0))
        slowed = np.maximum(slowed, its)
    return slowed
