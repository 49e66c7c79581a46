"""`shardwise catalog clusters`: the cluster catalog, or one cluster level by level."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.clusters import cluster_answer, clusters_answer, with_switches
from shardwise.programs.importers import nccl_topology, nvidia_smi
from shardwise.programs.importers._file import read_bytes
from shardwise.programs.importers.topology import cluster_from_topology
from shardwise.show.cli import _notes
from shardwise.show.cli._options import Explain, Json
from shardwise.show.cli._output import answered
from shardwise.spec.cards import named_with
from shardwise.spec.cluster import Cluster
from shardwise.spec.dump import to_yaml
from shardwise.spec.load import cluster_of, description_of
from shardwise.units import count_of, rate_of


def clusters(
    name: Annotated[str | None, Parameter(help="dgx-h100, dgx-h100:1024, 8xh100, 4x8xh100 or a YAML file.")] = None,
    /,
    *,
    source: Annotated[
        Path | None,
        Parameter(
            name="--from", help="Instead of a name: NCCL topology XML of a machine, or its `nvidia-smi topo -m`."
        ),
    ] = None,
    gpus: Annotated[str | None, Parameter(help="With --from: GPUs of the cluster, in machines like that one.")] = None,
    gpu: Annotated[str | None, Parameter(help="With --from: the GPU, where the file does not name it.")] = None,
    nic: Annotated[
        str | None,
        Parameter(help="NICs, as '100Gbps/node' or '8x400Gbps' a node; with --from: speed of each, '400 Gbps'."),
    ] = None,
    yaml: Annotated[bool, Parameter(negative=(), help="Print the cluster as a YAML file to edit.")] = False,
    explain: Explain = False,
    json: Json = False,
) -> int:
    """The clusters shardwise knows, level by level; --yaml writes a file to edit."""
    notes: list[str] = []
    if source is not None:
        if name is not None:
            raise ValueError(f"clusters: {name!r} and --from {source}; write one of them")
        cluster, notes = _imported(source, gpus, gpu, nic)
    elif (gpus, gpu) != (None, None) or (name is None and nic is not None):
        raise ValueError("clusters: --gpus, --gpu and --nic complete a file; write --from FILE, or NAME:GPUS")
    elif name is None:
        if yaml:
            raise ValueError("clusters: --yaml needs a name; write for example 'clusters dgx-h100:1024 --yaml'")
        return answered(clusters_answer(), json)
    else:
        text = named_with(name, nic)
        cluster = cluster_of(text)
        described = description_of(text)
        notes = [described[0].upper() + described[1:]] if described else []
    notes = (
        [*notes[:1], *_per_gpu(cluster), *_lines(cluster, explain), *notes[1:]]
        if source is None
        else [*_lines(cluster, explain), *_per_gpu(cluster), *notes]
    )
    if yaml and not json:
        sys.stdout.write("".join(f"# {line}\n" for line in notes if source) + to_yaml(cluster))
        return 0
    return answered(with_switches(cluster_answer(cluster, notes), cluster), json)


def _imported(path: Path, gpus: str | None, gpu: str | None, nic: str | None) -> tuple[Cluster, list[str]]:
    raw = read_bytes(path)
    topology = nccl_topology.parse(raw) if nccl_topology.is_topology(raw) else nvidia_smi.parse(raw)
    name = "".join(c for c in path.stem if c.isprintable())[:60] or "site"
    return cluster_from_topology(
        topology, name, gpu=gpu,
        gpus=None if gpus is None else count_of(gpus, "gpus"), nic=None if nic is None else rate_of(nic, "nic"),
    )  # fmt: skip


def _per_gpu(cluster: Cluster) -> list[str]:
    """What the column says, in the cards of a node."""
    node, *above = cluster.levels
    if not above or above[0].kind != "network":
        return ["GB/s per GPU: rate of one GPU while all others send, each way"]
    each = above[0].usable_bandwidth
    node_gbps = f"{each * 8 * node.degree / 1e9:,.4g} Gbps for a node of {node.degree}"
    return [
        f"GB/s per GPU: rate of one GPU while all others send, each way; {each / 1e9:.3g} GB/s to other nodes "
        f"are {each * 8 / 1e9:.4g} Gbps for each GPU, {node_gbps}"
    ]


def _lines(cluster: Cluster, explain: bool) -> list[str]:
    spine = [_notes.SPINE] if explain and cluster.name.startswith("dgx-h100") and len(cluster.levels) > 2 else []
    stated = {"source": cluster.source, "fabric": cluster.assumed}
    return [*(f"{head}: {text}" for head, text in stated.items() if text), *spine]
