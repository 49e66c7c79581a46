"""A decoder of the planner's shapes: embedding, layers, head with its loss. A pipeline stage holds a run of them.

Activations are [sequence, batch, width], so that shards of the sequence are contiguous.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shardwise.run.runtime.net.attention import PlainAttention, flash
from shardwise.run.runtime.net.context import Context
from shardwise.run.runtime.net.context_attention import context_attention
from shardwise.run.runtime.net.experts import ExpertWeights, routed
from shardwise.run.runtime.net.kernels import GatedActivation, RecomputeOp, norm, rotated, turns_at
from shardwise.run.runtime.net.latent import latent_heads
from shardwise.run.runtime.net.marks import kept_as
from shardwise.run.runtime.net.part import ModulePart
from shardwise.run.runtime.net.perceptron import Features, HiddenLayer
from shardwise.run.runtime.net.variants import broadcast_rows, gathered_heads
from shardwise.run.runtime.parallel.products import Later, LinearWeights, entering, leaving
from shardwise.run.runtime.parallel.vocabulary import (
    Targets,
    VocabularyLookup,
    VocabularyLoss,
    WeighedTargets,
    log_probabilities,
    loss_and_hits,
)
from shardwise.spec.arch.tensors import embedding_tensors
from shardwise.spec.arch.tuned import (
    frozen_embedding,
    frozen_head,
    frozen_layer,
    trained_embedding,
    trained_head,
    trained_layer,
)
from shardwise.spec.model import Attention, Experts, FeedForward


class Embedding(ModulePart):
    def __init__(self, context: Context) -> None:
        self.broadcasts = context.stack.loss.embedding == "broadcast" and context.cut.tp.size > 1
        elsewhere = self.broadcasts and context.cut.tp.index
        trained, frozen = (
            [shape for shape in shapes if not (elsewhere and shape.split == "vocab")]
            for shapes in (trained_embedding(context.model), frozen_embedding(context.model))
        )
        super().__init__(trained, "embedding.", context, frozen)

    def forward(self, tokens: Tensor) -> Tensor:
        """[sequence, batch] -> [sequence or its shard, batch, width]"""
        cut = self.context.cut
        if self.broadcasts:
            x = broadcast_rows(self.context, tokens, self.w("token.weight"))
        else:
            x = VocabularyLookup.apply(tokens, self.weight("token"), cut)
        if self.w("position.weight") is not None:
            at = self.context.positions
            at = at.chunk(cut.tp.size)[cut.tp.index] if cut.sp else at
            x = x + F.embedding(at, self.weight("position")).unsqueeze(1)
        if self.w("embedding_norm.weight") is not None:
            x = norm(x, *self.pair("embedding_norm"), self.context.model)
        return x


class Block(ModulePart):
    def __init__(self, context: Context, index: int, recompute: str) -> None:
        kind = context.model.pattern[index]
        shapes, prefix = trained_layer(context.model, kind), f"layers.{index}."
        frozen = frozen_layer(context.model, kind)
        super().__init__([t for t in shapes if t.split != "expert"], prefix, context, frozen)
        self.layer, self.recompute = context.model.kinds[kind], recompute
        if self.layer.experts is not None:
            owned = [t for t in shapes if t.split == "expert"]
            self.experts = ExpertWeights(owned, prefix, context, self.layer.experts)

    def forward(self, x: Tensor) -> Tensor:
        if self.recompute == "full":
            y: Tensor = RecomputeOp.apply(x, self.compute, self.context.world.comm)
            return y
        return self.compute(x)

    def compute(self, x: Tensor) -> Tensor:
        layer = self.layer
        assert layer.attention is not None
        x = x + self._after(self._attention(layer.attention, self._before(x, 0)), 0)
        inside = self._before(x, 1)
        if layer.experts is not None:
            y = self._experts(layer.experts, inside)
        else:
            assert layer.feed_forward is not None
            y = self._feed_forward(layer.feed_forward, inside)
        return x + self._after(y, 1)

    def _before(self, x: Tensor, block: int) -> Tensor:
        return norm(x, *self.pair(f"norm.{block}"), self.context.model)

    def _after(self, y: Tensor, block: int) -> Tensor:
        """Gemma-2's second pair of norms stands behind the blocks."""
        return norm(y, *self.pair(f"norm.{block + 2}"), self.context.model) if self.layer.norms == 4 else y

    def _attention(self, a: Attention, x: Tensor) -> Tensor:
        cut = self.context.cut
        if a.latent:
            y = self._core(*latent_heads(self, a, x))
            return leaving(y.flatten(2), cut, self.product("o"))
        q, k, v = entering(x, cut, self.product("q"), self.product("k"), self.product("v"))
        if self.context.stack.abilities.attention_split == "gather-qk" and cut.tp.size > 1:
            q, k = (gathered_heads(self.context, y, a.head_dim) for y in (q, k))
        else:
            q, k = (y.view(*y.shape[:-1], -1, a.head_dim) for y in (q, k))
        v = v.view(*v.shape[:-1], -1, a.value_dim)
        if a.qk_norm == "head":
            q = norm(q, *self.pair("q_norm"), self.context.model)
            k = norm(k, *self.pair("k_norm"), self.context.model)
        if self.context.model.rotary:
            turns = turns_at(self.context.positions, a.head_dim, self.context.model.rope_theta)
            q, k = rotated(q, turns), rotated(k, turns)
        y = self._core(q, k, v)
        return leaving(y.flatten(2), cut, self.product("o"))

    def _core(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        context, world = self.context, self.context.world
        at = context.positions
        if context.cache is not None:
            y = context.cache.attended(self, q, k, v)
        elif world.cp.size > 1:
            y = context_attention(context, q, k, v)
        elif context.policy.attention == "flash" or self.recompute == "selective":
            # the fused form keeps what plain attention keeps when its scores are computed again
            y = flash(q, k, v, at)
        else:
            y = PlainAttention.apply(q, k, v, at)
        return y

    def _feed_forward(self, ff: FeedForward, x: Tensor, prefix: str = "") -> Tensor:
        cut = self.context.cut
        if ff.glu:
            gate, up = entering(x, cut, self.product(f"{prefix}gate"), self.product(f"{prefix}up"))
            inner: Tensor = GatedActivation.apply(gate, up, None)
        else:
            (up,) = entering(x, cut, self.product(f"{prefix}up"))
            inner = F.gelu(up)
        return leaving(inner, cut, self.product(f"{prefix}down"))

    def _experts(self, experts: Experts, x: Tensor) -> Tensor:
        y = routed(self, self.experts, experts, x)
        if experts.shared_width:
            shared = self._feed_forward(FeedForward(width=experts.shared_width, glu=experts.glu), x, "shared.")
            if experts.shared_gate:
                shared = shared * torch.sigmoid(F.linear(x, *self.pair("shared_gate")))
            y = y + shared
        return y


class Head(ModulePart):
    def __init__(self, context: Context, *, own_table: bool) -> None:
        super().__init__(trained_head(context.model), "head.", context, frozen_head(context.model))
        # its weight gradient is never put off: that would keep the logits' gradient
        self.cut = replace(context.cut, later=Later())
        self.lender: tuple[ModulePart, ...] = ()
        if own_table:
            (table,) = [t for t in embedding_tensors(context.model) if t.role == "token.weight"]
            frozen = bool(frozen_embedding(context.model))
            self.add(table, "embedding.", frozen=frozen)
            if not frozen:
                self.mark_tied()

    def borrow(self, embedding: ModulePart) -> None:
        """Uses the table of an embedding on the same rank; not as a module of its own, which would hold it twice."""
        self.lender = (embedding,)

    def _table(self) -> Tensor:
        return self.lender[0].weight("token") if self.lender else self.weight("token")

    def logits(self, x: Tensor) -> Tensor:
        """Of this rank's part of the vocabulary."""
        context = self.context
        if context.model.inputs == "features":
            x = F.relu(x)
        if self.w("final_norm.weight") is not None:
            x = norm(x, *self.pair("final_norm"), context.model)
        weight = self._table() if context.model.tied else self.weight("head")
        (logits,) = entering(x, self.cut, LinearWeights(weight, self.w("head.bias")))
        return logits

    def forward(self, x: Tensor, targets: Targets) -> Tensor:
        """The sum of the tokens' losses over the tokens of the whole batch; without gradients also the share of them
        whose target was the likeliest, or of weighed targets the logarithm of each one's probability."""
        context, logits, weights = self.context, self.logits(x), None
        if isinstance(targets, WeighedTargets):
            targets, weights = targets
            if not torch.is_grad_enabled():
                return log_probabilities(logits, targets, context.cut)
        if not torch.is_grad_enabled():
            return loss_and_hits(logits, targets, context.cut) / context.world.loss_tokens
        with kept_as("logits"):
            loss: Tensor = VocabularyLoss.apply(logits, targets, context.cut, weights)
        return loss / context.world.loss_tokens


class Chunk(nn.Module):
    """Layers [first, end) of the model, with the embedding before the first and the head behind the last."""

    def __init__(
        self, context: Context, first: int, end: int, *, recomputed: int, is_first: bool, is_last: bool
    ) -> None:
        super().__init__()
        policy = context.policy
        self.context = context
        features = context.model.inputs == "features"
        self.embedding = (Features if features else Embedding)(context) if is_first else None
        self.layers = nn.ModuleDict(
            {
                str(index): (HiddenLayer if features else Block)(
                    context, index, policy.recompute if index - first < recomputed else "none"
                )
                for index in range(first, end)
            }
        )
        apart = context.model.tied and is_first != is_last and not context.ends_together
        self.head = Head(context, own_table=apart) if is_last else None
        if self.embedding is not None and self.head is not None:
            self.head.borrow(self.embedding)
        if self.embedding is not None and apart and not frozen_embedding(context.model):
            self.embedding.mark_tied()
        hows = [context.model.kinds[context.model.pattern[index]].tuned for index in range(first, end)]
        self.lowest = next((first + n for n, how in enumerate(hows) if how is None or how.backward), end)
        """the first layer that a gradient goes through"""

    def hidden(self, x: Tensor) -> Tensor:
        """Behind the last layer."""
        if self.embedding is not None:
            x = self.embedding(x)
        for index, layer in self.layers.items():
            if int(index) == self.lowest and torch.is_grad_enabled() and not x.requires_grad:
                # as PEFT does (enable_input_require_grads): a repeated forward needs something to come back to
                x = x.requires_grad_()
            x = layer(x)
        return x

    def forward(self, x: Tensor, targets: Targets) -> Tensor:
        x = self.hidden(x)
        if self.head is None:
            return x
        loss: Tensor = self.head(x, targets)
        return loss

    @property
    def parts(self) -> list[ModulePart]:
        """Units that are gathered and reduced as one, in the order of the forward pass."""
        return [part for part in self.modules() if isinstance(part, ModulePart)]
