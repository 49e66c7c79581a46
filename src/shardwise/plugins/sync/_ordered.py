"""Sums of rows in the order the algorithms add them, as whole-array operations for the simulation."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from shardwise.plugins.collectives._trees import double_tree
from shardwise.plugins.sync._events import halves, part_length, upwards


def fold(x: Tensor) -> Tensor:
    """((x_0 + x_1) + x_2) + ...: (k, d) -> (d)."""
    if x.device.type == "cpu" and x.shape[1] > 1:
        # numpy adds whole rows one after the other; torch.sum splits them as it likes
        with np.errstate(all="ignore"):
            return torch.from_numpy(np.add.reduce(x.detach().numpy(), axis=0))
    total = x[0]
    for row in x[1:]:
        total = total + row
    return total.clone()


def over(total: Tensor, n: int) -> Tensor:
    """A sum by its number of terms. By a tensor: to divide by a Python number a GPU multiplies, and rounds twice."""
    return total / total.new_full((), n)


def mean(x: Tensor) -> Tensor:
    """The sum of rows in their order, by their number."""
    return over(fold(x), len(x))


def ring_sum(x: Tensor) -> Tensor:
    """Part p starts at worker p + 1 and ends at worker p."""
    n, d = x.shape
    length = part_length(d, n)
    split = pad(x, (0, n * length - d)).view(n, n, length)
    place = torch.arange(n, device=x.device)
    source = (place[:, None] + place[None, :] + 1) % n
    return fold(split[source, place[None, :]].reshape(n, n * length))[:d]


def tree_sum(x: Tensor) -> Tensor:
    """Each half up its own tree: a parent adds its children as they come, the deepest first."""
    n, d = x.shape
    total = torch.empty_like(x[0])
    for (start, stop), tree in zip(halves(d), double_tree(n), strict=True):
        held = [row[start:stop] for row in x]
        root = 0
        for child, parent in upwards(tree):
            held[parent] = held[parent] + held[child]
            root = parent
        total[start:stop] = held[root]
    return total


SUMS = {"ring": ring_sum, "tree": tree_sum, "server": fold, "sharded": fold}
