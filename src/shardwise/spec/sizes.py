"""One kind of cluster in every size: what a user names, with another number of GPUs."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as data_replace

from msgspec.structs import replace

from shardwise.spec.cards import MARK, parted
from shardwise.spec.cluster import Cluster
from shardwise.spec.hardware import fabric_of
from shardwise.spec.load import cluster_of, gpu_of
from shardwise.spec.usual import usual_fabric

_COUNTED = re.compile(r"^\d+x(?:(\d+)x)?(.+)$", re.IGNORECASE)


@dataclass(frozen=True)
class Sizes:
    text: str
    named: Cluster | None
    """the cluster as written, when a number of GPUs was written or is in the file"""
    pattern: str
    """'dgx-h100:{gpus}', '{gpus}xh100', '{nodes}x8xh100'; empty for a file"""
    per_node: int
    most: int

    def name_at(self, gpus: int) -> str:
        """What to write for that many GPUs; the file's own name where it is a file."""
        if "{nodes}" in self.pattern and gpus % self.per_node:
            raise ValueError(
                f"gpus: {gpus} are not whole nodes of {self.per_node}; write a multiple of {self.per_node}"
            )
        return self.pattern.format(gpus=gpus, nodes=gpus // self.per_node) if self.pattern else self.text

    def at(self, gpus: int) -> Cluster:
        if self.pattern:
            return cluster_of(self.name_at(gpus))
        assert self.named is not None
        kind = re.sub(r":\d+$", "", self.named.name)
        return replace(self.named, gpus=gpus, name=f"{kind}:{gpus}")

    @property
    def any_count(self) -> bool:
        """Can it be less than a node."""
        return "{nodes}" not in self.pattern

    @property
    def step(self) -> int:
        """The largest power of two inside a fast domain: batches and heads divide by powers of two."""
        if "{nodes}" in self.pattern:
            return self.per_node
        return int(2 ** math.floor(math.log2(self.per_node)))

    def doubling(self, least: int, most: int) -> list[int]:
        """Powers of two times `step` between the two and inside the fabric."""
        counts = [self.step * 2**i for i in range(30)]
        return [gpus for gpus in counts if least <= gpus <= min(most, self.most)]


def sizes_of(text: str) -> Sizes:
    """A fabric, a GPU, a sized cluster or a file; bad text is a ValueError that says what to write."""
    text = text.strip()
    name, cards = parted(text)
    if cards:
        plain = sizes_of(name)
        if not plain.pattern:
            return data_replace(plain, text=text, named=cluster_of(text))
        return data_replace(
            plain,
            text=text,
            named=cluster_of(text) if plain.named is not None else None,
            pattern=f"{plain.pattern}{MARK}{cards}",
        )
    if text.lower().endswith((".yaml", ".yml")):
        named = cluster_of(text)
        return Sizes(text, named, "", named.levels[0].degree, math.prod(level.degree for level in named.levels))
    counted = _COUNTED.match(text)
    if counted:
        named = cluster_of(text)
        gpu = gpu_of(counted[2]).name
        if counted[1]:
            node = int(counted[1])
            one_domain_many_hosts = usual_fabric(gpu_of(gpu)).tray is not None
            most = _most(gpu) if one_domain_many_hosts else _most(gpu) // _domain(gpu) * node
            return Sizes(text, named, "{nodes}x" + f"{node}x{gpu}", node, most)
        return Sizes(text, named, "{gpus}x" + gpu, _domain(gpu), _most(gpu))
    name, colon, _ = text.partition(":")
    if not colon and not _known(fabric_of, text) and _known(gpu_of, text):
        gpu = gpu_of(text).name
        cluster_of(f"1x{gpu}")
        return Sizes(text, None, "{gpus}x" + gpu, _domain(gpu), _most(gpu))
    named = cluster_of(text)
    levels = fabric_of(name).levels
    size = math.prod(level.degree for level in levels)
    return Sizes(text, named if colon else None, fabric_of(name).name + ":{gpus}", levels[0].degree, size)


def _known(look_up: Callable[[str], object], text: str) -> bool:
    try:
        look_up(text)
    except ValueError:
        return False
    return True


def _domain(gpu: str) -> int:
    return usual_fabric(gpu_of(gpu)).levels[0].degree


def _most(gpu: str) -> int:
    return math.prod(level.degree for level in usual_fabric(gpu_of(gpu)).levels)
