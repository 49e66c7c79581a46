"""A trainer rank's share of a step's answers, as its pipeline takes them: tokens, targets, and what each one counts."""

import torch
from torch import Tensor

from shardwise.run.runtime.moved import moved
from shardwise.run.runtime.parallel.pipeline import Batch
from shardwise.run.runtime.parallel.vocabulary import WeighedTargets
from shardwise.run.runtime.rollout.engine import RolledAnswers
from shardwise.run.runtime.rollout.objective import token_weights
from shardwise.run.runtime.rollout.order import END
from shardwise.run.runtime.train.engine import TrainingEngine


class StepTokens:
    def __init__(self, engine: TrainingEngine, found: RolledAnswers, advantage: Tensor) -> None:
        """`advantage`: of each answer."""
        self.engine, self.advantage = engine, advantage.float()
        prompt = found.tokens.shape[1] - found.log_probs.shape[1]
        self.inputs = found.tokens.t()
        last = self.inputs.new_full((1, self.inputs.shape[1]), END)
        self.targets = torch.cat([self.inputs[1:], last])
        # the target at a place is the token behind it, so answers begin one place before their first token
        self.then, self.there = torch.zeros(self.inputs.shape), torch.zeros(self.inputs.shape, dtype=torch.bool)
        self.then[prompt - 1 : -1], self.there[prompt - 1 : -1] = found.log_probs.t(), found.there.t()
        self.answered = float(found.lengths.sum())

    def batch(self, weights: dict[int, Tensor]) -> Batch:
        """`weights`: of each micro-batch's targets, on ranks that have the head."""
        device = self.engine.world.device

        def micro_batch(index: int) -> tuple[Tensor, WeighedTargets]:
            inputs, targets = (moved(self._mine(x, index), device) for x in (self.inputs, self.targets))
            counted = weights.get(index)
            return inputs, WeighedTargets(
                targets, torch.zeros(targets.shape, device=device) if counted is None else counted
            )

        return micro_batch

    def weights(self, now: dict[int, Tensor], clip: float) -> tuple[dict[int, Tensor], Tensor]:
        """From the log-probabilities of now, and how many tokens are clipped. The mean is over all answers' tokens;
        the head divides by those of the whole batch."""
        world, found, outside = self.engine.world, {}, torch.zeros((), dtype=torch.float64)
        for index, log_probs in now.items():
            then, there = self._mine(self.then, index), self._mine(self.there, index)
            advantage = self.advantage[self._rows(index)].unsqueeze(0)
            each, clipped = token_weights(advantage, log_probs.cpu(), then, clip)
            outside += (clipped & there).sum()
            found[index] = moved(each * there * (world.loss_tokens / self.answered), world.device)
        return found, outside

    def _mine(self, x: Tensor, index: int) -> Tensor:
        return x[:, self._rows(index)][self.engine.context.positions.cpu()]

    def _rows(self, index: int) -> slice:
        policy, job = self.engine.task.policy, self.engine.task.job
        first = self.engine.world.data_index * (job.global_batch // policy.dp) + index * policy.micro_batch
        return slice(first, first + policy.micro_batch)
