"""The plan: does it fit what is here, does its batch divide, where do its groups lie."""

from collections.abc import Sequence

from shardwise.run.preflight.finding import Finding, Probe, Subject, failed, passed, unknown, warned
from shardwise.run.preflight.limits import limit
from shardwise.run.preflight.node import Node
from shardwise.run.preflight.planned import PlannedJob, PlannedTraining
from shardwise.run.preflight.readers.smi import MIB, gpus_of, number_of
from shardwise.run.preflight.subjects.nccl import settings_of
from shardwise.step.operate.assumed import Conditions, write_rate
from shardwise.units import gib, time_text
from shardwise.work.stages import rank_layers

AXES = {"tp": "tensor", "cp": "context", "dp": "data", "pp": "pipeline", "ep": "expert"}


def planned(plan: PlannedJob | None) -> tuple[PlannedJob, PlannedTraining]:
    if plan is None or plan.training is None:
        raise TypeError("asked only with a plan")
    return plan, plan.training


def size(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:
    job, training = planned(plan)
    tables = [gpus_of(node) for node in nodes]
    found = [len(rows) for rows in tables if not isinstance(rows, Finding)]
    told = f"planned {training.policy.gpus:,} GPUs on {job.hosts:,} hosts"
    if len(nodes) == 1 and job.hosts > 1:
        return unknown(f"{told}; one was looked at", "run it on all with torchrun, or --gather their facts")
    if not found:
        return unknown(f"{told}; no host reports its GPUs")
    if sum(found) < training.policy.gpus:
        return failed(f"{told}; here are {sum(found):,} on {len(nodes):,}", "add hosts, or plan for these")
    more = sum(found) > training.policy.gpus
    return warned(f"{told}; here are {sum(found):,}", "some stay idle: plan for all") if more else passed(told)


def headroom(node: Node, plan: PlannedJob | None) -> Finding:
    _, training = planned(plan)
    report = training.report
    needed = report.peak_bytes + report.reserve_bytes
    rows = gpus_of(node)
    told = f"peak {gib(report.peak_bytes)} and {gib(report.reserve_bytes)} GiB of reserve"
    if isinstance(rows, Finding):
        share = needed / report.capacity_bytes
        if share > 1:
            return failed(f"{told} of {gib(report.capacity_bytes)} planned", "shard, recompute or split more")
        return unknown(f"{told}; no GPU here to hold it")
    room = [((number_of(row["memory.total"]) or 0.0), (number_of(row["memory.used"]) or 0.0)) for row in rows]
    free = min(total - used for total, used in room) * MIB
    total = min(total for total, _ in room) * MIB
    if needed > free:
        return failed(
            f"{told}; {gib(free)} of {gib(total)} GiB free", "free the GPU; else shard, recompute or split more"
        )
    if needed > limit("plan.memory_warn") * total:
        return warned(
            f"{told}: {needed / total:.0%} of {gib(total)} GiB", "a longer sequence or a fragment tips it over"
        )
    return passed(f"{told}: {needed / total:.0%} of {gib(total)} GiB")


def batch(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    _, training = planned(plan)
    policy, job = training.policy, training.case.job
    each = policy.dp * policy.micro_batch
    told = f"{job.global_batch:,} = dp {policy.dp} x micro {policy.micro_batch} x {job.global_batch / each:g}"
    if job.global_batch % each:
        if job.uneven:
            return warned(told, "some replicas take one micro-batch more")
        return failed(told, f"write a --global-batch that {each:,} divides")
    steps = job.global_batch // each
    if policy.pp > 1 and steps < policy.pp:
        return warned(f"{told}, fewer than {policy.pp} stages", "more micro-batches: the pipeline never fills")
    return passed(f"{told} micro-batches, {job.step_tokens:,} tokens a step")


def tensor_groups(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    job, training = planned(plan)
    policy, inside = training.policy, job.cluster.node_size
    if policy.tp == 1:
        return passed("no tensor parallelism")
    apart = sum(len({rank // inside for rank in group}) > 1 for group in training.groups.get("tp", []))
    if apart:
        return warned(f"{apart} of {len(training.groups['tp'])} groups of {policy.tp} leave their domain of {inside}",
                      "a smaller --tp: its messages are many and waited for")  # fmt: skip
    kind = {"nvlink": "NVLink", "pcie": "PCIe"}.get(job.cluster.levels[0].kind, job.cluster.levels[0].kind)
    if kind == "PCIe":
        return warned(f"groups of {policy.tp} over PCIe", "without NVLink a smaller --tp is faster as a rule")
    return passed(f"groups of {policy.tp} inside an {kind} domain of {inside}")


def groups(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:
    job, training = planned(plan)
    sizes = [f"{AXES.get(axis, axis)} {len(found)} x {len(found[0])} (ranks {_span(found[0])})"
             for axis, found in training.groups.items() if axis in AXES]  # fmt: skip
    world = {node.measured.world for node in nodes} - {None}
    if world and world != {training.policy.gpus}:
        return failed(f"{training.policy.gpus} ranks planned, {world.pop()} started", "torchrun as many as planned")
    each = {node.measured.local_world for node in nodes} - {None}
    if each and each != {job.host_gpus}:
        return warned(f"{each.pop()} ranks on a host, {job.host_gpus} planned", "--nproc-per-node as planned")
    return passed("; ".join(sizes) or "one rank")


def _span(group: list[int]) -> str:
    shown = ", ".join(map(str, group[:4]))
    return shown + (f", .. {group[-1]}" if len(group) > 4 else "")


def stages(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    _, training = planned(plan)
    policy, case = training.policy, training.case
    if policy.pp == 1:
        return passed(f"one stage of {case.model.layers} layers")
    each = rank_layers(case.model, case.stack.abilities.stage_split, policy.pp, policy.vpp)
    chunks = f", in {policy.vpp} chunks a stage" if policy.vpp > 1 else ""
    told = f"{_runs(each)} layers in {policy.pp} stages{chunks}"
    if max(each) > -(-case.model.layers // policy.pp):
        return warned(told, "`shardwise search stages` finds the split with the shortest step")
    return passed(told)


def sharding(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    job, training = planned(plan)
    policy = training.policy
    replicas = policy.dp * policy.cp
    what = {1: "optimizer", 2: "optimizer and gradients", 3: "parameters, gradients and optimizer"}.get(policy.zero)
    if what is None or replicas == 1:
        return passed("every replica holds everything" if replicas > 1 else "one replica, nothing to shard")
    size = policy.shard_group or replicas
    data = training.groups.get("dp", [[0]]) if policy.cp == 1 else []
    first = f" (first ranks {_span(data[0][:size])})" if data else ""
    told = f"zero {policy.zero}: {what} over groups of {size} of {replicas} replicas{first}"
    if data and policy.zero == 3 and policy.shard_group:
        apart = sum(len({rank // job.host_gpus for rank in group[at : at + size]}) > 1
                    for group in data for at in range(0, len(group), size))  # fmt: skip
        if apart and size <= job.host_gpus:
            return warned(f"{told}; {apart} leave their host", "an --order with dp first keeps gathers on NVLink")
    return passed(told)


def experts(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    job, training = planned(plan)
    policy, model = training.policy, training.case.model
    many = max((kind.experts.count for kind in model.kinds if kind.experts), default=0)
    if not many:
        return passed("no experts in this model")
    each = many // policy.ep
    groups = training.groups.get("ep", [[0]])
    held = ", ".join(f"rank {rank}: {_range(at * each, each)}" for at, rank in enumerate(groups[0][:3]))
    more = f", .. rank {groups[0][-1]}: {_range(many - each, each)}" if len(groups[0]) > 3 else ""
    told = f"{many} experts, {each} on a rank ({held}{more})"
    apart = sum(len({rank // job.cluster.node_size for rank in group}) > 1 for group in groups)
    if apart and policy.ep <= job.cluster.node_size:
        cure = "a smaller --tp, or an --order with ep inside, keeps all-to-all on NVLink"
        return warned(f"{told}; {apart} of {len(groups)} groups leave their fast domain", cure)
    return passed(told)


def _range(first: int, many: int) -> str:
    return f"{first}" if many == 1 else f"{first}-{first + many - 1}"


def _runs(each: Sequence[int]) -> str:
    """Equal neighbours together, such as '14, 2 x 16, 14'."""
    runs: list[tuple[int, int]] = []
    for layers in each:
        many = runs.pop()[0] + 1 if runs and runs[-1][1] == layers else 1
        runs.append((many, layers))
    return ", ".join(f"{many} x {layers}" if many > 1 else f"{layers}" for many, layers in runs)


def rails(node: Node, plan: PlannedJob | None) -> Finding:
    job, training = planned(plan)
    if not job.networked or job.cluster.rails < 2:
        return unknown("no rails in this fabric")
    share = training.between_rails
    if share is None:
        return unknown("nothing leaves its node, or the job is too large to look; `shardwise fabric` does")
    found = settings_of(node)
    told = f"{share:.0%} of what leaves a node changes its rail"
    if share > 0 and job.cluster.forwards and found.get("NCCL_PXN_DISABLE") == "1":
        return warned(f"{told}, but NCCL_PXN_DISABLE=1 keeps it off NVLink", "unset it")
    if share > 0.5:
        return warned(told, "`shardwise fabric` names the order of ranks that stays on its rails")
    return passed(told)


def checkpoint(node: Node, plan: PlannedJob | None) -> Finding:
    job, training = planned(plan)
    size, storage = training.checkpoint_bytes, node.measured.storage
    rate = storage.write_bytes_per_s if storage is not None else None
    if rate is None:
        assumed = write_rate(job.cluster, Conditions())
        return unknown(f"{size / 1e9:,.4g} GB; storage not measured ({time_text(size / assumed)} as others publish)",
                       "write --measure --storage FOLDER; `shardwise operate` finds the interval")  # fmt: skip
    lands = size / (rate * job.hosts)
    told = f"{size / 1e9:,.4g} GB lands in {time_text(lands)} at {rate / 1e9:.3g} GB/s a host"
    if lands > 1800:
        return warned(told, "faster storage or fewer bytes: saves would come later than failures do")
    return passed(f"{told}; `shardwise operate --storage` finds the interval")


SUBJECT = Subject("plan", 80, (
    Probe("plan-size", "as many GPUs as planned", "nvidia-smi on every host", across=size, needs="plan"),
    Probe("plan-memory", "memory headroom of this plan", "nvidia-smi memory, estimate", headroom, needs="plan"),
    Probe("plan-batch", "global batch = dp x micro x steps", "the plan", across=batch, needs="plan"),
    Probe("plan-tensor", "tensor groups inside NVLink", "the plan, the cluster", across=tensor_groups, needs="plan"),
    Probe("plan-groups", "groups of every axis, their ranks", "the plan, ranks started", across=groups, needs="plan"),
    Probe("plan-stages", "layers of every stage", "the plan, the model", across=stages, needs="plan"),
    Probe("plan-sharding", "groups that shard the state (ZeRO)", "the plan", across=sharding, needs="plan"),
    Probe("plan-experts", "experts of every rank", "the plan, the model", across=experts, needs="plan"),
    Probe("plan-rails", "traffic between rails", "the plan's step on its links", rails, needs="plan"),
    Probe("plan-checkpoint", "a checkpoint's bytes and time", "the plan, storage measured", checkpoint, needs="plan"),
))  # fmt: skip
