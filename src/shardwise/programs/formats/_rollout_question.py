"""The step of reinforcement learning that a launch file describes, as `posttrain` prices it."""

from dataclasses import dataclass, replace
from pathlib import Path

from msgspec.structs import replace as with_fields

from shardwise.cost.calibrate.profile import Profile
from shardwise.plan.posttrain import part_of_cluster
from shardwise.programs.formats._contract import Format, Found, settled
from shardwise.programs.formats._rollout import COLOCATED, StatedRollout
from shardwise.question.posttrain import PosttrainQuestion, posttrain_question
from shardwise.spec.cluster import Cluster
from shardwise.spec.model import Model
from shardwise.spec.parameters import PosttrainOptions
from shardwise.spec.policy import Policy
from shardwise.spec.software import known_stack
from shardwise.step.posttrain.trainer import case_with, packed_micro
from shardwise.work.case import Case

HALF = 0.5
"""mean answer over the longest one where nobody says: .24 to .82 in published runs (evidence/posttrain/steps.csv)"""


def lengths_of_stated(stated: StatedRollout) -> str:
    return f"{max(stated.cap * HALF, 1):g},{stated.cap}"


def options_of_stated(stated: StatedRollout, lengths: str = "") -> PosttrainOptions:
    """As far as the file says; `lengths`: of answers, which no launch file has."""
    return PosttrainOptions(
        algorithm=stated.algorithm, prompts=stated.prompts, group=stated.group, prompt_tokens=stated.prompt_tokens,
        lengths=lengths or lengths_of_stated(stated), cap=stated.cap if lengths else None, updates=stated.updates,
        reference=stated.reference, rollout_precision=stated.rollout_precision, stack=stated.program,
        layout=stated.layout, lag=str(stated.lag), rollout_gpus=stated.rollout_gpus, engine_tp=stated.engine_tp,
        engine_share=stated.engine_share,
    )  # fmt: skip


def rollout_question(
    form: Format, found: Found, stated: StatedRollout, model: Model, cluster: Cluster, lengths: str = "",
    profile: Path | None = None,
) -> PosttrainQuestion:  # fmt: skip
    """With the file's own trainer. A ValueError names what `posttrain` does not price."""
    policy, options = found.policy, options_of_stated(stated, lengths)
    fixed = [f"{name}={getattr(policy, name)}" for name in ("tp", "pp", "cp", "ep", "recompute")]
    fixed += [f"sp={'on' if policy.sp else 'off'}"] if policy.tp > 1 else []
    fixed += [f"zero={policy.zero}", f"shard_group={policy.shard_group}"] if policy.dp * policy.cp > 1 else []
    asked = posttrain_question(model, cluster, replace(options, fix=fixed, profile=profile))
    notes = list(asked.notes)
    if not lengths:
        notes.append(
            f"answers: half of the longest, {stated.cap:,} tokens, is taken as their mean; write --answers MEAN,CAP"
        )
    trains = replace(asked.space, stack=known_stack(found.stack or form.stack))
    return replace(asked, space=trains, notes=tuple(notes))


@dataclass(frozen=True)
class StatedUpdate:
    """One update of a step, as the estimate of training prices it."""

    case: Case
    policy: Policy
    updates: int
    """of a step"""
    factor: float
    """of the program's passes over the estimate"""


def stated_update(
    form: Format, found: Found, stated: StatedRollout, model: Model, cluster: Cluster, lengths: str,
    profile: Profile | None,
) -> StatedUpdate:  # fmt: skip
    """Over packed sequences of mean length, in micro-batches as `posttrain` packs them."""
    space = rollout_question(form, found, stated, model, cluster, lengths).space
    micro, ranks = packed_micro(space.job), found.policy.dp
    case = case_with(
        model,
        trainers_of(found, cluster),
        space.job,
        space.stack,
        space.precision,
        space.optimizer,
        ranks * micro,
        profile,
    )
    rounded = case.job.global_batch * space.job.updates / space.job.sequences
    policy = settled(with_fields(found.policy, micro_batch=micro, vpp=1), case)
    return StatedUpdate(case, policy, space.job.updates, space.program.update / rounded)


def trainers_of(found: Found, cluster: Cluster) -> Cluster:
    """The GPUs that train, where others roll out."""
    stated = found.rollout
    apart = stated is not None and stated.layout != COLOCATED
    return part_of_cluster(cluster, found.gpus) if apart and found.gpus and found.gpus < cluster.gpus else cluster
