"""What one step of post-training asks for: algorithm, prompts, answers and their lengths. It knows no GPUs."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from shardwise.arrays import Ints
from shardwise.spec.lengths import DataLengths
from shardwise.step.posttrain.rollout import drawn


class Algorithm(NamedTuple):
    """Which passes a step has besides the update of the policy."""

    rolls_out: bool
    old: bool
    """log-probabilities of the policy that rolled out, by the trainer"""
    reference: bool
    """log-probabilities of a frozen model: the first policy, or a teacher"""
    critic: bool
    """a value model as large as the policy is read and trained"""
    text: str


ALGORITHMS = {
    "grpo": Algorithm(True, True, True, False, "advantages within a group of answers"),
    "ppo": Algorithm(True, True, True, True, "with a value model as large as the policy"),
    "rloo": Algorithm(True, True, True, False, "each answer against the mean of the others"),
    "dpo": Algorithm(False, False, True, False, "pairs that exist already: nothing is rolled out"),
    "distill": Algorithm(True, False, True, False, "answers of the student, probabilities of a teacher of its size"),
}


@dataclass(frozen=True, kw_only=True)
class PosttrainJob:
    algorithm: str
    prompts: int
    """of a step"""
    group: int
    """answers to each"""
    prompt_tokens: int
    lengths: DataLengths
    """of answers"""
    cap: int
    """longest answer, in tokens"""
    updates: int = 1
    """optimizer steps of a step: mini-batches"""
    reference: bool | None = None
    """None: as the algorithm has it"""
    scorer: float = 0.0
    """products of a model that scores every answer in one pass, over those of the policy; 0: a rule does"""

    @property
    def rule(self) -> Algorithm:
        return ALGORITHMS[self.algorithm]

    @property
    def sequences(self) -> int:
        return self.prompts * self.group

    @cached_property
    def answers(self) -> Ints:
        """One draw of the answers' lengths, the same for every layout."""
        return drawn(self.lengths, self.cap, self.sequences)

    @property
    def mean_answer(self) -> float:
        return float(self.answers.mean())

    @property
    def mean_tokens(self) -> float:
        """Of prompt and answer."""
        return self.prompt_tokens + self.mean_answer

    @property
    def longest(self) -> int:
        return self.prompt_tokens + self.cap

    @property
    def tokens(self) -> float:
        return self.sequences * self.mean_tokens

    @property
    def frozen_passes(self) -> int:
        """Over all sequences: of a reference or teacher, and of a critic."""
        referenced = self.rule.reference if self.reference is None else self.reference
        return referenced + self.rule.critic
