"""`shardwise run`: trains with the policy that was planned, on this machine's ranks."""

from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from shardwise.answers.run import run_answer
from shardwise.show.cli._as_predicted import as_predicted, expected_head
from shardwise.show.cli._flags import DOES_NOT_FIT
from shardwise.show.cli._options import Json, PlanName, within
from shardwise.show.cli._output import answered, say_error
from shardwise.show.cli._plan_of import NO_FLAGS, RunFlags, cannot_run, on_device, plan_of
from shardwise.show.cli._rollout import NONE, RolloutFlags, rollout_of
from shardwise.show.cli._share_gpu import ShareGpu, sharing
from shardwise.show.cli._that_fit import warn_of_memory
from shardwise.show.cli._torch import needs_torch
from shardwise.show.cli._torchrun import rank_here
from shardwise.show.cli._training import DEFAULTS, TrainingFlags, settings_of


def run(
    plan: PlanName,
    /,
    flags: RunFlags = NO_FLAGS,
    *,
    training: TrainingFlags = DEFAULTS,
    rollout: RolloutFlags = NONE,
    nproc: Annotated[int | None, Parameter(help="Ranks to start here; default: as many as the policy has.")] = None,
    seed: Annotated[int, Parameter(help="Seed of weights and data order."), within(0, 2**63 - 1)] = 0,
    capacity: Annotated[
        float,
        Parameter(help="Copies an expert takes, over an even share; 0: all."),
        within(0, 1e9, cure="0 (all copies) or a factor such as 1.25"),
    ] = 0.0,
    even_routing: Annotated[bool, Parameter(negative=(), help="Every expert gets as many tokens.")] = False,
    max_restarts: Annotated[
        int, Parameter(help="Restarts of all ranks when one dies; with --elastic, of its replica."), within(0)
    ] = 0,
    elastic: Annotated[
        bool, Parameter(negative=(), help="Replicas finish a step without a lost one, which rejoins from a peer.")
    ] = False,
    checksum_every: Annotated[
        int,
        Parameter(help="With --elastic: steps between checksums of weights and moments across replicas; 0: none."),
        within(0),
    ] = 10,
    device: Annotated[str, Parameter(help="auto, cpu (gloo) or cuda (NCCL).")] = "auto",
    share_gpu: ShareGpu = 0,
    json: Json = False,
) -> int:
    """Trains with the planned policy on ranks of this machine, or as one of torchrun's; log lines go to stderr."""
    rank = rank_here()
    found = plan_of(plan, flags)
    if cannot_run(plan, flags, found, json, "run"):
        return DOES_NOT_FIT
    needs_torch("run")
    policy = found.policy
    rolls_out = rollout_of(rollout)
    ranks = policy.gpus + (rolls_out.ranks if rolls_out is not None else 0)
    if nproc is not None and nproc != ranks:
        raise ValueError(f"nproc: {nproc}, but {ranks} ranks train or roll out; write --nproc {ranks}")
    from shardwise.run.runtime.launch import device_for, launch
    from shardwise.run.runtime.ranks import RanksFailed
    from shardwise.run.runtime.train.task import Task, TrainingOrder

    where = sharing(share_gpu, ranks, device) if share_gpu else device_for(device, ranks)
    if share_gpu and elastic:
        raise ValueError("share-gpu: replicas of --elastic are CPU ranks; leave one of the two away")
    found = on_device(found, flags, where)
    task = Task(
        model=found.case.model, job=found.job, policy=policy, stack=found.case.stack, seed=seed, capacity=capacity,
        even_routing=even_routing,
    )  # fmt: skip
    settings = settings_of(training, found, where)
    if settings.records and not share_gpu:
        settings = replace(settings, expected=expected_head(found, where))
    try:
        result = launch(
            TrainingOrder(task=task, settings=settings, rollout=rolls_out), max_restarts=max_restarts, elastic=elastic,
            checksum_every=checksum_every, shared=share_gpu > 0, before=lambda: warn_of_memory(found.case, policy),
        )  # fmt: skip
    except RanksFailed as failure:
        say_error(str(failure))
        return failure.code
    if rank:
        return result.code  # under torchrun every rank comes here; the first one prints
    step = as_predicted(found, result.lines, where, sharing=share_gpu)
    answer = run_answer(found, result, step, device=settings.device, rate=settings.rate, warmup=settings.warmup,
                        held_out=settings.eval_data or settings.data)  # fmt: skip
    return answered(answer, json)
