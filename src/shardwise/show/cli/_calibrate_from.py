"""`calibrate --from FILE`: tells the forms apart and lays what the file says over a profile."""

import datetime
from pathlib import Path

from msgspec.structs import replace

from shardwise.bounded import text_of
from shardwise.cost.calibrate.from_collectives import group_cluster, network_fit
from shardwise.cost.calibrate.from_points import profile_from_points
from shardwise.cost.calibrate.profile import Profile
from shardwise.programs.importers import nccl_tests, torch_trace, training_log
from shardwise.programs.importers._file import looks_like, read_bytes
from shardwise.spec.cluster import Cluster
from shardwise.spec.load import cluster_from, gpu_of
from shardwise.spec.reported import catalog_gpu


def profile_from_file(path: Path, base: Profile | None, cluster: Cluster | None) -> tuple[Profile, list[str]]:
    """The profile, and a note for each thing a reader should know."""
    raw = read_bytes(path)
    if looks_like(raw) == "json":
        if b'"traceEvents"' in raw:
            return _trace(raw, path, base, cluster)
        return _collectives(nccl_tests.parse(raw), path, base, cluster)
    text = text_of(raw, path.name, "from")
    if training_log.is_training_log(text):
        raise ValueError(
            f"from: {path.name} is a training log, which says how long whole steps take and nothing of kernels; write "
            f"shardwise learn {path.name} --config FILE --on CLUSTER --out mine.toml"
        )
    if nccl_tests.is_nccl_tests(text):
        return _collectives(nccl_tests.parse(raw), path, base, cluster)
    raise ValueError(
        f"from: {path.name} is not recognised; write nccl-tests output (text or -J) or a torch.profiler trace"
    )


def _head(path: Path, base: Profile | None, device: str, cluster: Cluster | None) -> Profile:
    """The profile that is adjusted: the one given, or a new one for the GPU that the file or --on names."""
    named = catalog_gpu(device) or (cluster.gpu.name if cluster is not None else None)
    if base is not None:
        if named is not None and catalog_gpu(base.device) != named and base.device.lower() != named.lower():
            raise ValueError(f"profile: {base.name} is of {base.device!r}, {path.name} of {named!r}; leave one out")
        return base
    if named is None:
        raise ValueError(f"on: {path.name} does not say which GPU it is of; write --on CLUSTER")
    name = "".join(c for c in path.name if c.isprintable())[:100] or "imported"
    return Profile(name=name, device=named, reported=device, date=datetime.date.today().isoformat())


def _collectives(
    run: nccl_tests.NcclRun, path: Path, base: Profile | None, cluster: Cluster | None
) -> tuple[Profile, list[str]]:
    head = _head(path, base, run.device, cluster)
    notes = []
    if cluster is None:
        gpu = gpu_of(head.device)
        cluster = cluster_from(gpu, run.ranks, max(run.ranks // run.nodes, 1))
        notes.append(f"--on not given: the usual fabric of {gpu.name} assumed ({cluster.name})")
    elif run.ranks > cluster.gpus:
        raise ValueError(
            f"on: {cluster.name} has {cluster.gpus} GPUs, the file has {run.ranks} ranks; write a larger one"
        )
    fit = network_fit(run.points, group_cluster(cluster, run.ranks, run.nodes))
    points = {**head.measured, "collectives": (*head.measured.get("collectives", ()), *run.points)}
    notes.append(f"{len(run.points)} collectives over {run.ranks} ranks on {run.nodes} nodes")
    return replace(head, network=fit, measured=points), notes


def _trace(raw: bytes, path: Path, base: Profile | None, cluster: Cluster | None) -> tuple[Profile, list[str]]:
    facts = torch_trace.parse(raw)
    if not facts.points:
        raise ValueError(f"from: {path.name} has neither shapes nor enough launches; profile with record_shapes=True")
    head = _head(path, base, facts.device, cluster)
    found = profile_from_points(head, facts.points, cluster.gpu if cluster is not None else gpu_of(head.device))
    merged = replace(
        head,
        peak_flops={**head.peak_flops, **found.peak_flops},
        gemm={**head.gemm, **found.gemm},
        attention={"flash": {**head.attention.get("flash", {}), **found.attention.get("flash", {})}}
        if found.attention or head.attention else {},
        host=found.host or head.host,
        measured={**head.measured, **{f"trace_{kind}": rows for kind, rows in found.measured.items()}},
    )  # fmt: skip
    counts = ", ".join(f"{len(rows)} {kind}" for kind, rows in facts.points.items())
    idle = f"; the GPU was idle {facts.idle_share:.0%} of the time" if facts.idle_share is not None else ""
    return merged, [f"{facts.kernels:,} kernels: {counts} points{idle}", *facts.notes]
