"""Bytes of each phase of a step, as predicted from the model, the two layouts and the answers' lengths."""

from collections.abc import Sequence

from shardwise.run.runtime.rollout.engine import RolledAnswers
from shardwise.run.runtime.rollout.exchange import SPENT
from shardwise.run.runtime.rollout.order import RolloutOrder, replicas_of
from shardwise.run.runtime.train.task import Task
from shardwise.run.runtime.verify import predicted_messages
from shardwise.step.posttrain.messages import LayoutOfRanks, engine_bytes, weight_bytes

ROLLOUT, ANSWERS, LOG_PROBS, UPDATE, SYNC = "rollout", "answers", "log-probs", "update", "weight sync"
PHASES = (ROLLOUT, ANSWERS, LOG_PROBS, UPDATE, SYNC)
NUMBER = 8
"""bytes of one in a table of answers"""


class ExpectedBytes:
    def __init__(self, task: Task, order: RolloutOrder) -> None:
        self.task, self.order, self.replicas = task, order, replicas_of(order, task)
        self.element = 4.0 if task.job.precision.compute == "fp32" else 2.0
        every = predicted_messages(task, range(task.policy.gpus))
        self.update = sum(size for _, size in every.values())
        self.log_probs = sum(size for (_, _, _, phase), (_, size) in every.items() if phase == "forward")
        trains = LayoutOfRanks(task.policy, _layers(task))
        rolling = order.ranks or task.policy.gpus
        self.weights = weight_bytes(
            task.model, self.element, trains, order.tp, rolling, together=not order.ranks
        )  # fmt: skip

    @property
    def beside(self) -> float:
        """Bytes of what engines tell beside their answers."""
        return float(NUMBER * SPENT * self.replicas)

    def of_step(self, taken: Sequence[RolledAnswers]) -> dict[str, float]:
        """`taken`: what arrived in it, of one step or, at the start of a run with a lag, of several."""
        return {
            ROLLOUT: sum(map(self._rollout, taken)), ANSWERS: len(taken) * self._answers(),
            LOG_PROBS: self.log_probs, UPDATE: self.update, SYNC: self.weights,
        }  # fmt: skip

    def _rollout(self, found: RolledAnswers) -> float:
        prompt = found.tokens.shape[1] - found.log_probs.shape[1]
        each = [part.tolist() for part in found.lengths.chunk(self.replicas)]
        model, tp = self.task.model, self.order.tp
        return tp * sum(engine_bytes(model, self.element, tp, prompt, lengths) for lengths in each)

    def _answers(self) -> float:
        """Tables of tokens, log-probabilities and lengths: to the trainer's first rank, or from each engine to all."""
        job = self.task.job
        numbers = job.global_batch * (2 * job.seq - self.order.prompt_tokens + 1)
        if self.order.ranks:
            return NUMBER * numbers + self.beside
        return float(NUMBER * numbers * self.task.policy.gpus) if self.replicas > 1 else 0.0


def _layers(task: Task) -> list[tuple[int, int]]:
    """Of each stage of the trainer, whose ranks have one piece each."""
    return task.ranges()
