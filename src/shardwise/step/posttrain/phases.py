"""A step phase by phase on a layout, and how rollout and trainer wait for each other."""

from dataclasses import dataclass, replace

from msgspec import Struct

from shardwise.cost.network import Network
from shardwise.spec.cluster import Cluster
from shardwise.spec.model import Model
from shardwise.step.posttrain.engine import RolloutEngine
from shardwise.step.posttrain.facts import ProgramFacts, facts
from shardwise.step.posttrain.job import PosttrainJob
from shardwise.step.posttrain.rollout import rollout_of, steady_rate
from shardwise.step.posttrain.trainer import TrainerPrice
from shardwise.step.posttrain.transfer import Senders, transfer_seconds

COLOCATED, SPLIT, HYBRID = "colocated", "split", "hybrid"
"""both on all GPUs in turn; each on its own; each on its own, and trainers roll out while they would wait"""
LENT_TWICE = 2.0
"""transfers that lending a GPU takes: weights in, and the engine back to sleep"""
ASLEEP_BYTES = 2.5 * 2**30
"""that an engine keeps on a GPU while it sleeps: graphs, contexts and what its allocator does not return. NeMo-RL's
issue 223 saw 0.8 GiB with one GPU an engine and 2.4 to 7.4 with two"""


class PosttrainPhases(Struct, frozen=True, kw_only=True):
    """Seconds of a step. Of a split layout `rollout_s` and the trainer's run side by side, and `waiting_s` is what one
    side waits for the other."""

    rollout_s: float
    log_probs_s: float
    update_s: float
    sync_s: float
    other_s: float
    """data, rewards by rule, advantages, the controller"""
    waiting_s: float
    step_s: float
    reward_s: float = 0.0
    """of a model that scores"""

    @property
    def trainer_s(self) -> float:
        return self.reward_s + self.log_probs_s + self.update_s


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Who runs where."""

    mode: str
    rollout_gpus: int
    train_gpus: int
    tp: int
    """of an engine"""
    share: float
    """of GPU memory that the engine may fill"""
    lag: int
    """steps that weights may be older than the answers' trainer: 0 is on-policy"""
    precision: str = "bf16"
    """of the engine"""

    @property
    def replicas(self) -> int:
        return self.rollout_gpus // self.tp


@dataclass(frozen=True)
class SteadyRollout:
    """Of an engine that always has another answer to start."""

    running: int
    """answers at once"""
    token_s: float
    """between two tokens of one of them"""


@dataclass(frozen=True)
class RolloutPrice:
    sides: Sides
    seconds: float
    """of one step's answers, the next step's begun behind them where the lag allows it"""
    alone_s: float
    """of one step's answers from first to last"""
    tail_s: float
    running: int
    """sequences at once on an engine"""
    weights_bytes: float
    cache_bytes: float
    sync_s: float
    token_bytes: float = 0.0
    """of the cache of one token, on all GPUs of an engine"""
    steady: SteadyRollout | None = None
    """where both sides work at once"""


def rollout_price(
    model: Model, cluster: Cluster, network: Network, job: PosttrainJob, program: ProgramFacts, sides: Sides
) -> RolloutPrice:
    """A ValueError where no sequence fits beside the weights."""
    engine = RolloutEngine(model, cluster, network, facts().engines[program.engine], sides.tp, sides.precision)
    path = facts().transfers[program.together if sides.mode == COLOCATED else program.apart]
    senders = Senders(sides.train_gpus, offloaded=program.offloads and sides.mode == COLOCATED)
    sync = transfer_seconds(path, engine, senders)
    weights = engine.weights_bytes
    if not job.rule.rolls_out:
        return RolloutPrice(sides, 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0)
    each = max(job.sequences // sides.replicas, 1)
    answers = job.answers[:each].copy()
    answers[answers.argmax()] = job.answers.max()
    found = rollout_of(engine, answers, job.prompt_tokens, each / job.group, sides.share)
    alone = program.rollout * found.seconds
    seconds, steadily = alone, None
    if sides.lag:
        running, rate = steady_rate(engine, job.answers, job.prompt_tokens, sides.share, sides.lag * each)
        steadily = SteadyRollout(running, program.rollout * running / rate)
    if sides.lag > 1:
        steady = program.rollout * job.sequences * job.mean_answer / (rate * sides.replicas)
        seconds = steady + max(alone - steady, 0.0) / sides.lag
    return RolloutPrice(
        sides=sides, seconds=seconds, alone_s=alone, tail_s=program.rollout * found.tail_s, running=found.running,
        weights_bytes=weights, cache_bytes=max(engine.room(sides.share), 0.0), sync_s=sync,
        token_bytes=engine.token_bytes * sides.tp, steady=steadily,
    )  # fmt: skip


def phases_of(
    job: PosttrainJob, program: ProgramFacts, rollout: RolloutPrice, trainer: TrainerPrice
) -> PosttrainPhases:
    update = program.update * trainer.update_s
    passes = program.log_prob * job.rule.old + program.frozen * job.frozen_passes
    log_probs = program.update * passes * trainer.forward_s
    reward = program.update * program.frozen * job.scorer * trainer.forward_s
    other = program.fixed_s + program.sequence_s * job.sequences
    trains = reward + log_probs + update
    sync = rollout.sync_s if job.rule.rolls_out else 0.0
    apart = rollout.sides.lag > 0
    rolls = rollout.seconds
    if rollout.sides.mode == HYBRID and rolls > trains:
        # what is left to roll out is dealt over all GPUs; weights are also loaded into the engines that are lent
        sides = rollout.sides
        lent = sides.rollout_gpus * rolls + sides.train_gpus * (trains + LENT_TWICE * sync)
        rolls = min(rolls, lent / (sides.rollout_gpus + sides.train_gpus))
    working = max(rolls, trains) if apart else rolls + trains
    waiting = abs(rolls - trains) if apart else 0.0
    return PosttrainPhases(
        rollout_s=rolls, log_probs_s=log_probs, update_s=update, sync_s=sync, other_s=other,
        waiting_s=waiting, step_s=working + sync + other, reward_s=reward,
    )  # fmt: skip


def beside_update_bytes(job: PosttrainJob, program: ProgramFacts, mode: str, engine_bytes: float) -> float:
    """What an engine keeps of a GPU that trains; `engine_bytes`: its share while it rolls out."""
    if mode == SPLIT or not job.rule.rolls_out:
        return 0.0
    return ASLEEP_BYTES if program.sleeps or mode == HYBRID else engine_bytes


def idle_share(phases: PosttrainPhases, rollout: RolloutPrice) -> float:
    """Share of GPU time in which a side waits, or an engine has less than half of the sequences it could run."""
    sides, step = rollout.sides, phases.step_s
    tail = rollout.tail_s * min(1.0, rollout.seconds / rollout.alone_s) / max(sides.lag, 1) if rollout.alone_s else 0.0
    if sides.mode == COLOCATED:
        return min(tail / step, 1.0)
    gpus = sides.rollout_gpus + sides.train_gpus
    rolls = max(step - phases.rollout_s, 0.0) + tail
    trains = 0.0 if sides.mode == HYBRID else max(step - phases.trainer_s, 0.0)
    return min((sides.rollout_gpus * rolls + sides.train_gpus * trains) / (gpus * step), 1.0)


def with_share(sides: Sides, share: float) -> Sides:
    return replace(sides, share=share)
