"""Hosts that should lie near one another, as schedulers are told so: Slurm, Kubernetes with Kueue, Ray."""

import json
from dataclasses import dataclass

from shardwise.programs.formats._contract import Launch
from shardwise.programs.formats._files import yaml_text
from shardwise.programs.formats._scripts import host_gpus, nodes_of
from shardwise.spec.cluster import Cluster

LABEL = "YOUR/LABEL-OF-A"
"""of nodes, which the cluster's administrator chose"""
KUEUE = "kueue.x-k8s.io/"
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


@dataclass(frozen=True)
class Together:
    """Consecutive hosts that hold whole groups of some axes and fit into one block of a level."""

    hosts: int
    level: str
    axes: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"{self.hosts} consecutive hosts ({' x '.join(self.axes)}) belong into one {self.level}"


def together(launch: Launch) -> list[Together]:
    """Of each level above a host, the largest run of ranks that fits into it; the innermost level first."""
    policy, cluster = launch.policy, launch.case.cluster
    each, found = host_gpus(cluster), list[Together]()
    for level, block in zip(cluster.levels, cluster.blocks, strict=True):
        ranks, axes, best = 1, list[str](), None
        for axis in policy.order.split("-"):
            size = int(getattr(policy, axis))
            ranks, axes = ranks * size, [*axes, *([axis] if size > 1 else [])]
            if each < ranks <= block and ranks % each == 0:
                best = Together(ranks // each, level.name, tuple(axes))
        if best is not None and (not found or best.hosts > found[-1].hosts):
            found.append(best)
    return found


def segment_lines(launch: Launch) -> list[str]:
    """Comments of an sbatch file: only Slurm's block topology knows segments."""
    return [f"# {each.text}; with Slurm's block topology: #SBATCH --segment={each.hosts}" for each in together(launch)]


MOUNTED = "/launch"
"""folder of the files beside it, in a pod"""


def kubernetes(launch: Launch, name: str) -> str:
    """A Job with a pod on every host, and the service they find the first one by; hints are Kueue's."""
    cluster = launch.case.cluster
    hosts, job = nodes_of(cluster), f"{name}-train"
    pod = {
        "subdomain": job, "restartPolicy": "Never",
        "containers": [{
            "name": "train", "image": "YOUR_IMAGE", "command": ["bash", "train.sh"], "workingDir": MOUNTED,
            "volumeMounts": [{"name": "launch", "mountPath": MOUNTED}],
            "env": [
                {"name": "NNODES", "value": str(hosts)}, {"name": "MASTER_ADDR", "value": f"{job}-0.{job}"},
                {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": INDEX}}},
            ],
            "resources": {"limits": {_resource(cluster): host_gpus(cluster)}},
        }],
        "volumes": [{"name": "launch", "configMap": {"name": job}}],
    }  # fmt: skip
    labels = {"job-name": job}
    spec = {
        "completions": hosts, "parallelism": hosts, "completionMode": "Indexed", "backoffLimit": 0,
        "template": {"metadata": {"annotations": _annotations(launch, hosts)}, "spec": pod},
    }  # fmt: skip
    work = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": job, "labels": {f"{KUEUE}queue-name": "YOUR_QUEUE"}}, "spec": spec,
    }  # fmt: skip
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": job},
        "spec": {"clusterIP": "None", "selector": labels},
    }  # fmt: skip
    notes = [
        "image, queue and the labels of nodes are yours",
        f"before: kubectl create configmap {job} --from-file=. (in this folder)",
        *[each.text for each in together(launch)],
    ]
    return yaml_text(work, notes) + "---\n" + yaml_text(service)


def _annotations(launch: Launch, hosts: int) -> dict[str, str]:
    """The whole job where it fits into one block, else slices of it."""
    found: dict[str, str] = {}
    for each in together(launch):
        label = f"{LABEL}-{each.level.upper()}"
        if each.hosts == hosts:
            found[f"{KUEUE}podset-required-topology"] = label
        else:
            # one kind of slice can be asked for: the innermost
            found.setdefault(f"{KUEUE}podset-slice-required-topology", label)
            found.setdefault(f"{KUEUE}podset-slice-size", str(each.hosts))
    return found


def _resource(cluster: Cluster) -> str:
    return "amd.com/gpu" if cluster.gpu.name.startswith("mi") else "nvidia.com/gpu"


def ray(launch: Launch) -> str:
    """Arguments of ray.util.placement_group: a bundle for every host, in the order of ranks."""
    cluster = launch.case.cluster
    hosts = nodes_of(cluster)
    bundles = [{"GPU": host_gpus(cluster)}] * hosts
    return json.dumps({"bundles": bundles, "strategy": "STRICT_SPREAD" if hosts > 1 else "STRICT_PACK"}) + "\n"
