"""Chosen nodes in the files of what launches on them: a hostfile, Slurm, Kueue, Volcano and Ray.

Read in the projects' documentation: sbatch(1) and srun(1) of Slurm 25.05 (`--segment`, `--switches`, SLURM_HOSTFILE
with `--distribution=arbitrary`), Kueue's topology-aware scheduling (pod-set annotations), Volcano's HyperNode and
`networkTopology`, Ray's placement groups with `bundle_label_selector` (2.49 on).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from shardwise.fabric.hostlist import hostlist

HOSTFILE = "hostfile"
FILES = (HOSTFILE, "hostfile.slots", "place.sbatch", "kueue.yaml", "volcano.yaml", "ray.json")
LABEL = "shardwise.dev"
"""prefix of the node labels that Kueue and Ray are told to look at"""
NOT_A_LABEL = "._-"
LONGEST_LABEL = 63


@dataclass(frozen=True)
class PlacedJob:
    nodes: tuple[str, ...]
    """in the order of the ranks"""
    node_gpus: int
    levels: Mapping[str, tuple[str, ...]]
    """level, the smallest first -> the block of each node"""
    run: int
    """nodes one after another that lie in one block of the first level"""
    in_domains: bool
    """the lowest level is a rack or block, as Slurm's topology/block has them, not a switch"""

    @property
    def lowest(self) -> str:
        return next(iter(self.levels))


def node_files(job: PlacedJob) -> dict[str, str]:
    return {
        HOSTFILE: "".join(f"{name}\n" for name in job.nodes),
        "hostfile.slots": "".join(f"{name} slots={job.node_gpus}\n" for name in job.nodes),
        "place.sbatch": _sbatch(job), "kueue.yaml": _kueue(job), "volcano.yaml": _volcano(job), "ray.json": _ray(job),
    }  # fmt: skip


def slurm_lines(job: PlacedJob) -> list[str]:
    """What asks Slurm for exactly these nodes."""
    return [f"#SBATCH --nodes={len(job.nodes)}", f"#SBATCH --nodelist={hostlist(job.nodes)}"]


def slurm_wish(job: PlacedJob) -> str:
    """What asks Slurm for nodes that lie as well, when these are taken."""
    if job.in_domains:
        return f"--segment={job.run}"
    return f"--switches={len(set(job.levels[job.lowest]))}"


def _sbatch(job: PlacedJob) -> str:
    return "\n".join([
        "#!/usr/bin/env bash",
        *slurm_lines(job),
        f"# when these nodes are taken, leave the line above out and ask for as good ones: {slurm_wish(job)}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={job.node_gpus}",
        "#SBATCH --exclusive",
        "set -euo pipefail",
        'cd "$SLURM_SUBMIT_DIR"',
        "# Slurm sorts nodes by name; tasks in the order of a file need both of these",
        f'export SLURM_HOSTFILE="$PWD/{HOSTFILE}"',
        f'export MASTER_ADDR=$(head -n 1 "{HOSTFILE}") NNODES=$SLURM_NNODES',
        "srun --distribution=arbitrary bash -c 'NODE_RANK=$SLURM_PROCID exec bash train.sh \"$@\"' train.sh \"$@\"",
        "",
    ])  # fmt: skip


def _kueue(job: PlacedJob) -> str:
    """Annotations of the pod template: every slice of nodes in one block, all as near as can be."""
    *_, widest = job.levels
    lines = ["# of the pod template of a job whose nodes bear these labels", "metadata:", "  annotations:"]
    lines.append(f"    kueue.x-k8s.io/podset-preferred-topology: {LABEL}/{widest}")
    if job.run > 1:
        lines.append(f"    kueue.x-k8s.io/podset-slice-required-topology: {LABEL}/{job.lowest}")
        lines.append(f'    kueue.x-k8s.io/podset-slice-size: "{job.run}"')
    lines.append("# the labels, where the nodes have none of their own:")
    for place, name in enumerate(job.nodes):
        told = " ".join(f"{LABEL}/{level}={_label(blocks[place])}" for level, blocks in job.levels.items())
        lines.append(f"# kubectl label node {name} {told}")
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    """A value Kubernetes takes: letters, digits, dots, dashes and underscores."""
    plain = "".join(each if each.isascii() and (each.isalnum() or each in NOT_A_LABEL) else "-" for each in text)
    return plain[:LONGEST_LABEL].strip(NOT_A_LABEL) or "none"


def _volcano(job: PlacedJob) -> str:
    """A HyperNode for each block of the lowest level that holds nodes of the job, and what the job asks for."""
    blocks: dict[str, list[str]] = {}
    for name, block in zip(job.nodes, job.levels[job.lowest], strict=True):
        blocks.setdefault(block, []).append(name)
    parts = []
    for block, names in blocks.items():
        lines = ["apiVersion: topology.volcano.sh/v1alpha1", "kind: HyperNode", "metadata:"]
        lines += [f"  name: {_label(block).lower().replace('_', '-')}", "spec:", "  tier: 1", "  members:"]
        for name in names:
            lines += ["  - type: Node", "    selector:", "      exactMatch:", f"        name: {name}"]
        parts.append("\n".join(lines))
    tier = 1 if len(blocks) == 1 else 2
    asked = ["# of the Volcano job:", "# spec:", "#   networkTopology:"]
    asked += ["#     mode: hard", f"#     highestTierAllowed: {tier}"]
    return "\n---\n".join(parts) + "\n" + "\n".join(asked) + "\n"


def _ray(job: PlacedJob) -> str:
    """Arguments of ray.util.placement_group; each node is started with `ray start --labels=shardwise.dev/host=NAME`."""
    data = {
        "bundles": [{"GPU": job.node_gpus}] * len(job.nodes), "strategy": "STRICT_SPREAD",
        "bundle_label_selector": [{f"{LABEL}/host": name} for name in job.nodes],
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"
