"""An engine of the run: a copy of the model in a layout of its own that answers prompts token by token."""

from dataclasses import dataclass, replace
from zlib import crc32

import torch
from msgspec.structs import replace as with_fields
from torch import Tensor

from shardwise.run.runtime.net.context import DecodeCache, context_of
from shardwise.run.runtime.net.decoder import Chunk
from shardwise.run.runtime.parallel.world import RankWorld, world_of
from shardwise.run.runtime.rollout.order import END, RolloutOrder
from shardwise.run.runtime.train.task import Task, checked
from shardwise.spec.policy import Policy

PHASE = "rollout"


@dataclass(frozen=True)
class RolledAnswers:
    """Of some sequences, in the order of their numbers."""

    tokens: Tensor
    """[sequences, prompt and longest answer]; END behind an answer's last token"""
    log_probs: Tensor
    """[sequences, longest answer] under the weights that rolled out; 0 where there is no token"""
    lengths: Tensor
    """[sequences] of the answers, the token that ends them included"""

    def packed(self) -> Tensor:
        """As one table of numbers, which travels as one message."""
        columns = self.tokens.double(), self.log_probs.double(), self.lengths.double().unsqueeze(1)
        return torch.cat(columns, dim=1)

    @staticmethod
    def unpacked(table: Tensor, seq: int) -> "RolledAnswers":
        """The other way round; `seq`: tokens of prompt and answer."""
        return RolledAnswers(table[:, :seq].long(), table[:, seq:-1].float(), table[:, -1].long())

    @property
    def there(self) -> Tensor:
        """[sequences, longest answer]: where a token is."""
        return torch.arange(self.log_probs.shape[1]) < self.lengths.unsqueeze(1)


def engine_task(task: Task, order: RolloutOrder) -> Task:
    """The model as engines hold it; refused like any other layout that cannot be run."""
    ranks = order.ranks or task.policy.gpus
    policy = Policy(tp=order.tp, dp=ranks // order.tp, sp=False)
    return checked(with_fields(task, policy=policy, job=with_fields(task.job, global_batch=policy.dp)))


class AnsweringEngine:
    """One rank's part of it. All ranks that roll out make theirs together."""

    def __init__(self, task: Task, order: RolloutOrder, device: torch.device) -> None:
        self.whole, self.task, self.order = task, engine_task(task, order), order
        """the trainer's task, and the engine's"""
        self.world: RankWorld = world_of(self.task.policy, device, 1, kv_copies=self.task.kv_copies)
        context = context_of(
            task.model, self.task.policy, self.world, task.job.seq, seed=task.seed, stack=task.stack
        )  # fmt: skip
        self.cache = DecodeCache()
        self.context = replace(context, cache=self.cache)
        self.chunk = Chunk(self.context, 0, task.model.layers, recomputed=0, is_first=True, is_last=True)
        if task.job.precision.compute != "fp32":
            self.chunk = self.chunk.to(torch.bfloat16)

    @torch.no_grad()
    def answer(self, prompts: Tensor, numbers: range, step: int) -> RolledAnswers:
        """`prompts`: [sequences, tokens]; `numbers`: of these sequences in the step, by which they are drawn."""
        rows, start = prompts.shape
        longest = self.task.job.seq - start
        tokens = torch.cat([prompts, prompts.new_full((rows, longest), END)], dim=1)
        log_probs, lengths = torch.zeros(rows, longest), torch.zeros(rows, dtype=torch.int64)
        draws = [_draws(self.task.seed, step, number) for number in numbers]
        running, cache = torch.arange(rows), self.cache
        fed = prompts.t()
        with self.world.comm.during(PHASE):
            for place in range(longest):
                cache.advance(len(fed), self.world.device)
                log = self._log_probabilities(fed)
                noise = torch.stack([torch.rand(log.shape[1], generator=draws[row]) for row in running.tolist()])
                drawn = (log - torch.log(-torch.log(noise))).argmax(1)
                tokens[running, start + place] = drawn
                log_probs[running, place] = log.gather(1, drawn.unsqueeze(1)).squeeze(1)
                lengths[running] = place + 1
                going = drawn != END
                if not going.all():
                    running, drawn = running[going], drawn[going]
                    cache.keep(going.to(self.world.device))
                if not len(running):
                    break
                fed = drawn.unsqueeze(0)
        cache.clear()
        return RolledAnswers(tokens, log_probs, lengths)

    def _log_probabilities(self, fed: Tensor) -> Tensor:
        """[sequences, words] of the token behind the last one fed, on every rank of the engine."""
        head = self.chunk.head
        assert head is not None
        logits = head.logits(self.chunk.hidden(fed.to(self.world.device))[-1:])[0]
        if self.world.tp.size > 1:
            logits = self.world.comm.gathered(logits.t().contiguous(), self.world.tp).t()
        return torch.log_softmax(logits.float().cpu(), dim=1)


def _draws(seed: int, step: int, number: int) -> torch.Generator:
    """A sequence's own: its answer is the same in every layout and after a resume."""
    return torch.Generator().manual_seed(crc32(f"{seed} {step} {number}".encode()))
