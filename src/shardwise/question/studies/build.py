"""Estimate of one policy -> Report."""

import numpy as np

from shardwise.cost.calibrate.overlay import what_it_changes
from shardwise.question.legal import legal_of
from shardwise.question.studies.money import failures_line, money_table, price_line
from shardwise.question.studies.nearly_full import nearly_full
from shardwise.question.studies.parts import parts_at
from shardwise.question.studies.traffic import traffic_of
from shardwise.question.studies.tuning import tuning_facts
from shardwise.report.report import Report, Stage
from shardwise.report.sync_report import SyncReport
from shardwise.report.terminal import policy_code
from shardwise.report.tier import CLOSED_FORM
from shardwise.spec.cluster import Cluster
from shardwise.spec.gpu import Gpu
from shardwise.spec.job import Job, Precision
from shardwise.spec.matrices import layouts_in_words
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.band import NO_BAND, band_of
from shardwise.step.estimate.chance import out_of_memory_chance
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.step.estimate.learned import learned_band
from shardwise.step.estimate.memory import free_bytes
from shardwise.step.estimate.mfu import conventions, executed
from shardwise.step.estimate.releases import release_lines
from shardwise.step.estimate.synced import SyncChoice, choice_of
from shardwise.units import gib
from shardwise.work.case import Case
from shardwise.work.experts import fullest_share
from shardwise.work.ops import SCAN_BYTES_PER_SM_S


def report_of(case: Case, policy: Policy, *, traffic: bool = True) -> Report:
    """The closed form's answer for one policy, on every pipeline stage; one that cannot run is a ValueError. Its
    traffic can be left out: on thousands of GPUs with uneven groups it takes longer than all the rest."""
    verdict = legal_of(case, policy, cure=False)
    if not verdict.legal:
        raise ValueError(f"policy: {policy_code(policy)} cannot run: {verdict.rule}: {verdict.why}; `question_of` and "
                         "`estimate_of` name the nearest that can")  # fmt: skip
    model, cluster, job, stack = case.model, case.cluster, case.job, case.stack
    choice, one = choice_of(policy.sync, job.optimizer.name), Policies.of([policy])
    found = estimate(case, one, every_stage=True, sync=choice)
    step_s, rate = float(found.times.step_s[0]), float(found.tokens_per_s_per_gpu[0])
    flops = {c.key: c for c in conventions(model, job.seq)}
    peak_flops = cluster.gpu.peak(job.precision.compute)
    stages = _stages(found)
    fullest = int(found.memory.fullest[0])
    peak = float(found.memory.peak[0])
    band, money = learned_band(case, found.work, found.times) or band_of(case), money_table(case, step_s)
    return Report(
        tier=CLOSED_FORM,
        model=model.name,
        cluster=cluster.name,
        gpu=cluster.gpu.name,
        gpus=cluster.gpus,
        stack=stack.name,
        seq_tokens=job.seq,
        global_sequences=job.global_batch,
        step_tokens=job.step_tokens,
        precision=job.precision.name,
        optimizer=job.optimizer.name,
        policy=policy,
        fits=bool(found.fits[0]),
        verdict=_verdict(stages[fullest], peak, cluster.gpu.memory_bytes - stack.memory.reserve_bytes),
        step_s=step_s,
        error_band=None if band is None else band.half_width,
        error_range=None if band is None else (band.low, band.high),
        error_basis=NO_BAND if band is None else str(band),
        tokens_per_s_per_gpu=rate,
        peak_flops_per_s=peak_flops,
        mfu_full_square=flops["full_square"].utilization(rate, peak_flops),
        mfu_causal_half=flops["causal_half"].utilization(rate, peak_flops),
        hfu=executed(model, job.seq, policy).utilization(rate, peak_flops),
        capacity_bytes=cluster.gpu.memory_bytes,
        peak_bytes=peak,
        reserve_bytes=stack.memory.reserve_bytes,
        free_bytes=free_bytes(peak, cluster.gpu, stack),
        out_of_memory_chance=float(out_of_memory_chance(case, np.array([peak]))[0]),
        fullest_stage=fullest,
        host_bytes=float(found.memory.host_bytes[0]),
        host_limit_bytes=case.cluster.host_bytes_per_gpu,
        stages=stages,
        time_s=parts_at(found, 0),
        hidden_s={axis: _first(seconds) for axis, seconds in found.times.hidden.items()},
        micro_batches=int(found.work.layout.micro_batches[0]),
        pipeline_passes=int(found.work.layout.passes[0]),
        bubble_share=float(found.times.bubble_share[0]),
        traffic_bytes=traffic_of(case, found.work, choice) if traffic else {},
        money=money,
        assumptions=(
            *nearly_full(peak, cluster.gpu.memory_bytes),
            *_assumptions(case, policy),
            *([failures_line(case, money["run"])] if "run" in money else ()),
            *release_lines(case, policy),
            *_left_unfused(case, found, one),
        ),
        tuning=tuning_facts(case),
        sync=None if choice is None else _synced(case, policy, choice, found),
    )


def _synced(case: Case, policy: Policy, choice: SyncChoice, found: Estimate) -> SyncReport:
    from shardwise.question.studies.sync import sync_report  # imports the strategies, which most policies do without

    return sync_report(case, policy, choice, found)


def _first(values: object) -> float:
    return float(np.asarray(values).reshape(-1)[0])


def _stages(found: Estimate) -> tuple[Stage, ...]:
    memory = found.memory
    return tuple(
        Stage(
            stage=index,
            total_bytes=float(memory.total[0, index]),
            kinds_bytes={kind: float(np.broadcast_to(grid, memory.total.shape)[0, index])
                         for kind, grid in memory.kinds.items()},
        )
        for index in range(memory.total.shape[1])
    )  # fmt: skip


def _verdict(stage: Stage, peak: float, capacity: float) -> str:
    if peak <= capacity:
        return "fits"
    largest = max(stage.kinds_bytes, key=lambda kind: stage.kinds_bytes[kind])
    return f"out of memory by {gib(peak - capacity)} GiB on stage {stage.stage}: {largest}"


def _ways(cluster: Cluster) -> list[str]:
    """What of the fabric decides how fast a message is, where it is not plain."""
    lines = []
    if cluster.through_host:
        reached, line = cluster.wires[0] / 1e9, cluster.levels[0].usable_bandwidth / 1e9
        lines.append(
            f"{cluster.gpu.name} has no peer-to-peer in the stock driver: messages between GPUs are copied through "
            f"host memory at {reached:.3g} of {line:.3g} GB/s, and tensor-parallel collectives do not run under "
            "their GEMMs"
        )
    if cluster.rails > 1:
        how = "over NVLink to the other rail's NIC first (PXN, as NCCL does)" if cluster.forwards else "over a spine"
        lines.append(f"rails: NIC i of each node on rail i of {cluster.rails}; between rails {how}")
    return lines


def _missing_format(gpu: Gpu, precision: Precision) -> list[str]:
    """What the chip has no matrix units for, and what is priced instead. Chips that multiply numbers with a scale for
    every 32 of them are those that have fp4."""
    runs = gpu.runs_in(precision.compute)
    if runs != precision.compute:
        return [f"{gpu.name} has no {precision.compute}: GEMMs are priced in {runs}"]
    if precision.scaling == "mx" and "fp4" not in gpu.peak_flops:
        return [f"{gpu.name} has no mxfp8: GEMMs are priced as fp8 with one scale a tensor"]
    return []


def _assumptions(case: Case, policy: Policy) -> list[str]:
    model, cluster, job, stack, curve = case.model, case.cluster, case.job, case.stack, case.curve
    per_rank, reached = policy.dp * policy.micro_batch, stack.network.fabric_efficiency
    measured = (
        f"kernel rates: fitted on measurements of {curve.measured} ({curve.source})"
        if curve.measured == curve.gpu.lower()
        else f"kernel rates: none measured on {curve.gpu}; constants of {curve.measured} at {curve.gpu}'s peaks"
    )
    lines = [
        f"stack {stack.name}: {stack.summary}",
        *case.notes,
        measured,
        *_missing_format(cluster.gpu, job.precision),
        *([f"fabric: {cluster.assumed}"] if cluster.assumed else []),
        "network: latency and bandwidth constants fitted on published collectives"
        + (f"; {reached:.0%} of that between nodes" if reached != 1 else ""),
        *_ways(cluster),
        "placement: tp on neighbouring GPUs, then cp, dp and pp; nothing else on the fabric",
        f"micro-batches: {job.global_batch:,} sequences / (dp {policy.dp} x micro-batch {policy.micro_batch})"
        f" = {_accumulated(job, per_rank)}",
        f"MFU counts the model's FLOPs, of attention the causal half, over the {job.precision.compute} peak; HFU "
        "counts all executed FLOPs, recompute included",
        price_line(cluster),
        *(what_it_changes(case.profile, stack) if case.profile is not None else ()),
    ]
    if job.optimizer.rule.assumed:
        lines += [job.optimizer.rule.assumed, *layouts_in_words(job.optimizer.rule, policy)]
    if model.sample_tokens:
        lines.append(
            f"every sample is an image of {model.sample_tokens:,} tokens: images/s are tokens/s over that; head and "
            "loss see one row of each"
        )
    if any(kind.mamba for kind in model.kinds):
        lines.append(
            f"Mamba-2 scan: {SCAN_BYTES_PER_SM_S['state space'] / 1e9:g} GB/s of memory traffic for each "
            "multiprocessor, whatever the memory could do"
        )
    if any(kind.delta for kind in model.kinds):
        lines.append(
            f"gated delta rule: {SCAN_BYTES_PER_SM_S['delta'] / 1e9:g} GB/s of memory traffic for each "
            "multiprocessor, kernels of flash-linear-attention timed on an H200"
        )
    if any(kind.attention and kind.attention.compressed for kind in model.kinds):
        lines.append("compressed attention: kernels that gather keys, at rates published for Blackwell and Hopper")
    if model.streams > 1:
        lines.append("residual streams: mixed by fused kernels, which Megatron-Core has for Blackwell only")
    if any(kind.experts for kind in model.kinds):
        fullest = float(fullest_share(stack, policy.ep))
        balance = "balanced" if fullest == 1 else f"fullest rank {fullest:.3g} x the mean"
        dealt = ", a token's experts one after the other" if stack.experts.routing == "in_order" else ""
        lines.append(f"routing: {balance}{dealt}")
    again = stack.memory
    cheap = again.selective_experts and any(kind.experts for kind in model.kinds) and not _latent(model)
    drops = again.selective_kept < 1 or cheap or (again.latent_recompute == "up" and _latent(model))
    if policy.recompute_modules:
        drops = policy.recompute_modules != ("core_attn",)
    if stack.caution and policy.pp > 1 and cluster.gpus > cluster.node_size:
        lines.append(f"not predicted: {stack.caution}")
    if policy.recompute == "selective" and policy.attention == "flash" and not drops:
        lines.append("selective recompute saves nothing with flash attention: it never keeps the scores")
    return lines


def _accumulated(job: Job, per_rank: int) -> str:
    rounds, more = divmod(job.global_batch, per_rank)
    if not more:
        return f"{rounds:,}"
    return f"{rounds:,} or {rounds + 1:,}: some replicas take one more than others, who wait for them"


def _left_unfused(case: Case, found: Estimate, one: Policies) -> tuple[str, ...]:
    """What the program loses to operations that another has inside its kernels."""
    if not any(kind.unfused for kind in found.work.kinds):
        return ()
    fused = case.changed(expert_biases="fused", fuses_scaled_rotation=True, atomic_sums=False, second_sort=False)
    least = estimate(fused, one, every_stage=True)
    share = 1.0 - float(least.times.step_s[0] / found.times.step_s[0])
    return (f"element-wise work that {case.stack.name} leaves to PyTorch, kernel by kernel: {share:.0%} of the step",)


def _latent(model: Model) -> bool:
    return any(kind.attention and (kind.attention.latent or kind.attention.compressed) for kind in model.kinds)
