"""`clusters`: the clusters of the catalog, or one of them level by level."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from shardwise import catalog
from shardwise.answers.answer import Answer, Bars, Part, Sentence, Table, shown, table
from shardwise.answers.chip import switches_inside
from shardwise.fabric.tree_build import tree_of
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.load import cluster_of
from shardwise.step.estimate.roofline import level_sizes

OWN_LINKS = {"AMD": "xgmi", "Google": "ici"}
"""vendor -> its name for the links of a fast domain, where that is not NVLink"""


class LevelRow(Struct, frozen=True, kw_only=True):
    name: Annotated[str, shown("level")]
    kind: Annotated[str, shown("kind")]
    degree: int
    gpus: Annotated[int, shown("GPUs")]
    bytes_per_s_per_gpu: Annotated[float, shown("GB/s per GPU", "GB/s")]
    """one GPU's share while all others send, each way"""
    bytes_per_s: Annotated[float, shown("TB/s in all", "TB/s")]
    latency_s: Annotated[float, shown("us", "us")]
    oversubscription: Annotated[float, shown("oversub.")]
    rails: Annotated[int, shown("rails")]
    reduces: Annotated[bool, shown("reduces", "yes")]

    @property
    def text(self) -> str:
        return f"{self.degree} x {self.bytes_per_s_per_gpu / 1e9:.3g} GB/s"


class ClusterAnswer(Answer, frozen=True, kw_only=True):
    name: str
    gpu: str
    gpus: int
    source: str
    link_layer: str
    """infiniband, ethernet, ..; empty where the catalog does not say"""
    levels: Sequence[LevelRow]
    switches: int | None = None
    """of one cluster: NVSwitches, and those of each tier above"""
    switches_by_tier: dict[str, int] | None = None

    def parts(self) -> Iterator[Part]:
        title = f"{self.name}: {self.gpus:,} x {self.gpu} (bandwidths each way)"
        yield table(title, self.levels, words=2, bars=("GB/s per GPU",))
        if self.link_layer:
            yield Sentence(f"network: {self.link_layer}")
        if self.switches_by_tier:
            each = " + ".join(f"{count:,} {name}" for name, count in self.switches_by_tier.items())
            yield Sentence(f"switches: {each} = {self.switches:,}")


class ClustersAnswer(Answer, frozen=True, kw_only=True):
    clusters: Sequence[ClusterAnswer]

    def parts(self) -> Iterator[Part]:
        rows = [
            [each.name, each.gpu, each.levels[0].kind, each.levels[0].text,
             each.levels[1].text if len(each.levels) > 1 else None]
            for each in self.clusters
        ]  # fmt: skip
        title = "clusters (members x bandwidth per GPU; write NAME:GPUS for a size)"
        yield Table(title, ["name", "gpu", "kind", "fast domain", "network"], rows, words=5)
        for index, where in enumerate(("in its fast domain", "to the network")):
            rates = {each.name: each.levels[index].bytes_per_s_per_gpu for each in self.clusters
                     if len(each.levels) > index}  # fmt: skip
            amounts = {name: (rate, f"{rate / 1e9:,.4g}") for name, rate in rates.items()}
            yield Bars(f"GB/s of a GPU {where}, each way", amounts)


ANSWERS = (ClustersAnswer, ClusterAnswer)


def clusters_answer() -> ClustersAnswer:
    return ClustersAnswer(clusters=[cluster_answer(cluster_of(name)) for name in catalog.names("fabrics")])


def cluster_answer(cluster: Cluster, notes: Sequence[str] = ()) -> ClusterAnswer:
    inner = OWN_LINKS.get(cluster.gpu.vendor, "nvlink")
    levels = [_row(*pair, inner) for pair in zip(cluster.levels, level_sizes(cluster), strict=True)]
    return ClusterAnswer(
        name=cluster.name,
        gpu=cluster.gpu.name,
        gpus=cluster.gpus,
        source=cluster.source,
        link_layer=cluster.link_layer,
        levels=levels,
        notes=notes,
    )


def with_switches(answer: ClusterAnswer, cluster: Cluster) -> ClusterAnswer:
    """With the number of its switches, where the catalog knows them."""
    inside = switches_inside(cluster.gpu, cluster.node_size)
    counts = {"NVSwitch": inside * -(-cluster.gpus // cluster.node_size)} if inside else {}
    counts |= {tier.name: tier.built * -(-cluster.gpus // tier.block) for tier in tree_of(cluster).tiers}
    return replace(answer, switches=sum(counts.values()), switches_by_tier=counts) if inside else answer


def _row(level: Level, gpus: int, inner: str) -> LevelRow:
    return LevelRow(
        name=level.name, kind=inner if level.kind == "nvlink" else level.kind,
        degree=level.degree, gpus=gpus, bytes_per_s_per_gpu=level.usable_bandwidth,
        bytes_per_s=gpus * level.usable_bandwidth, latency_s=level.latency_s, oversubscription=level.oversubscription,
        rails=level.rails, reduces=level.reduces,
    )  # fmt: skip
