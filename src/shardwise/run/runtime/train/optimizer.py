"""The optimizer of a run on the local tensors of a rank, with the gradient clipped by its norm over all ranks."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf, prod
from typing import TYPE_CHECKING

import torch
from msgspec import Struct
from torch import Tensor

from shardwise.plugins.optimizers import KINDS, TensorKind, UpdateRule, update_rule
from shardwise.run.runtime.moved import moved
from shardwise.run.runtime.parallel.held import Local, ParameterSpan, PieceRuns, RankParameter, one_by_one
from shardwise.run.runtime.parallel.world import RankWorld
from shardwise.run.runtime.train.adam import FEW, FlatAdam
from shardwise.run.runtime.train.factored import FactoredMoments
from shardwise.run.runtime.train.limits import one_of, require
from shardwise.run.runtime.train.matrices import WholeMatrices

if TYPE_CHECKING:
    from shardwise.plugins.optimizers._rounded import AdamOfBytes


class OptimizerSettings(Struct, frozen=True, kw_only=True):
    name: str = "adamw"
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    decay_on: str = "all"
    """parameters that decay: all, or matrices (norms and biases do not)"""
    momentum: float = 0.9
    nesterov: bool = False
    clip: float = 1.0
    """largest gradient norm; 0: not clipped"""

    def __post_init__(self) -> None:
        if self.rule.refused:
            raise ValueError(f"optimizer: {self.name!r} cannot be run; {self.rule.refused}")
        one_of("decay-on", self.decay_on, ("all", "matrices"))
        require((
            ("beta1", self.betas[0], 0 <= self.betas[0] < 1, "a number from 0 to below 1, such as 0.9"),
            ("beta2", self.betas[1], 0 <= self.betas[1] < 1, "a number from 0 to below 1, such as 0.95"),
            ("epsilon", self.epsilon, 0 < self.epsilon < inf, "a number above 0 such as 1e-8"),
            ("weight-decay", self.weight_decay, 0 <= self.weight_decay < inf, "0 or more, such as 0.1"),
            ("momentum", self.momentum, 0 <= self.momentum < 1, "a number from 0 to below 1, such as 0.9"),
            ("clip", self.clip, 0 <= self.clip < inf, "a number above 0 such as 1, or 0 for none"),
        ))  # fmt: skip
        if self.nesterov and not self.rule.looks_ahead(self):
            raise ValueError(f"nesterov: {self.name} has no momentum to look ahead with; write --optimizer sgd-m")

    @property
    def rule(self) -> UpdateRule:
        return update_rule(self.name)


class LocalOptimizer:
    def __init__(
        self, locals_: Sequence[Local], world: RankWorld, settings: OptimizerSettings, *, on_host: bool = False,
        shares: Sequence[Mapping[RankParameter, PieceRuns | None]] = (),
    ) -> None:  # fmt: skip
        """`on_host`: moments lie in the host's memory and the update is made there; on the CPU that is the same.
        `shares`: of every parameter of each chunk of this rank."""
        self.world, self.settings, self.on_host = world, settings, on_host
        rule, parts = settings.rule, self.parts(locals_)
        self.shown = [local.tensor for local in parts]
        self.tensors = [tensor.cpu() if on_host else tensor for tensor in self.shown]
        copies = {local.tensor: local.rounded for local in parts if local.rounded is not None}
        self.rules = [rule_of(rule, local.spans[0].held.piece.kind) if rule.rest else rule for local in parts]
        covered = [(rule.by_tensor or rule.factored) and its is rule for its in self.rules]
        inner = dict.fromkeys(its for its, whole in zip(self.rules, covered, strict=True) if not whole)
        self.fused = world.device.type == "cuda" and not on_host and all(each.fuses for each in inner)
        self.rounds = self.fused and len(self.tensors) <= FEW and not any(covered)
        """the parameters' 16-bit copies are written by the step itself"""
        self.matrices: WholeMatrices | FactoredMoments | None = None
        if rule.by_tensor:
            every = {held: runs for chunk in shares for held, runs in chunk.items()}
            self.matrices = WholeMatrices(parts, covered, every, world, rule, settings, settings.weight_decay)
        elif rule.factored:
            decays = {True: settings.weight_decay, False: settings.weight_decay * (settings.decay_on == "all")}
            self.matrices = FactoredMoments(parts, shares, world, rule, decays)
        self.inner: dict[UpdateRule, torch.optim.Optimizer] = {}
        for each in inner:
            mine = [tensor for tensor, its in zip(self.tensors, self.rules, strict=True) if its is each]
            self.inner[each] = (
                _flat(mine, copies, settings) if self.rounds else _optimizer(each, mine, settings, self.fused)
            )

        for its, local, tensor in zip(self.rules, parts, self.tensors, strict=True):
            if its.rounds_moments:
                piece = local.spans[0].held.piece
                self._rounding(its).sizes[tensor] = prod(piece.local_shape[piece.expert :])

    def parts(self, locals_: Sequence[Local]) -> Sequence[Local]:
        """What the optimizer updates: flat tensors as they are, or every tensor by itself."""
        return one_by_one(locals_) if self.settings.rule.takes_single else locals_

    def _state(self) -> list[dict[str, Tensor]]:
        found = []
        for place, (rule, tensor) in enumerate(zip(self.rules, self.tensors, strict=True)):
            if rule in self.inner:
                found.append(self.inner[rule].state[tensor])
            else:
                assert self.matrices is not None
                found.append(self.matrices.moments_of(place))
        return found

    def step(self, locals_: Sequence[Local], rate: float) -> float:
        norm = self.world.comm.all_reduce(squares(locals_, self.world), self.world.everyone).sqrt()
        most = self.settings.clip
        shrink = torch.clamp((norm + 1e-6) / most, min=1.0) if most else torch.ones_like(norm)
        self.apply(locals_, rate, shrink.to(torch.get_default_dtype()))
        return float(norm)

    def apply(self, locals_: Sequence[Local], rate: float, shrink: Tensor | None = None) -> None:
        """One update with the gradients over `shrink`."""
        shrink = torch.ones((), device=self.world.device) if shrink is None else shrink
        if self.matrices is not None:
            self.move_matrices(locals_, rate, float(shrink))
        locals_ = self.parts(locals_)
        for tensor, shown, local in zip(self.tensors, self.shown, locals_, strict=True):
            tensor.grad = None if local.grad is None else local.grad.to(tensor.device)
            if tensor is not shown:
                tensor.copy_(shown)
        for inner in self.inner.values():
            for group in inner.param_groups:
                group["lr"] = rate
            if isinstance(inner, FlatAdam):
                inner.shrink = shrink
            elif self.fused:
                # the kernel divides the gradients itself: no pass of its own for clipping
                inner.grad_scale, inner.found_inf = shrink, torch.zeros_like(shrink)  # type: ignore[attr-defined]
        if not self.fused and (factor := 1.0 / float(shrink)) < 1:
            for tensor, its in zip(self.tensors, self.rules, strict=True):
                if tensor.grad is not None and its in self.inner:
                    tensor.grad.mul_(factor)
        if self.settings.decay_on == "matrices":
            self._decay_matrices(locals_, rate, shrink)
        for inner in self.inner.values():
            inner.step()
        for tensor, shown in zip(self.tensors, self.shown, strict=True):
            tensor.grad = None
            if tensor is not shown:
                shown.copy_(tensor)

    def move_matrices(self, locals_: Sequence[Local], rate: float, shrink: float = 1.0) -> None:
        """Those that are updated whole, wherever their pieces lie."""
        if self.matrices is not None:
            self.matrices.step(self.parts(locals_), rate, shrink)

    def _decay_matrices(self, locals_: Sequence[Local], rate: float, shrink: Tensor) -> None:
        """A flat tensor holds parameters of both kinds, so decay is made here, run by run."""
        decay = self.settings.weight_decay
        for tensor, local in zip(self.tensors, locals_, strict=True):
            if tensor.grad is None:
                continue
            for span in (s for s in local.spans if len(s.held.piece.shape) > 1 and self._by_element(s)):
                part = slice(span.at, span.at + span.length)
                if self.settings.rule.decoupled:
                    tensor.view(-1)[part].mul_(1.0 - rate * decay)
                else:
                    # the fused kernel divides what is added here too
                    scale = float(shrink) if self.fused else 1.0
                    tensor.grad[part].add_(tensor[part], alpha=decay * scale)

    def _by_element(self, span: ParameterSpan) -> bool:
        return self.matrices is None or not self.settings.rule.covers(span.held.piece.kind)

    def ensure_states(self) -> None:
        """Moments exist, zero where no step was made yet: a step of rate 0 on zero gradients."""
        if self.matrices is not None:
            self.matrices.ensure_states(self.world.device)
        missing = [rule in self.inner and not state for rule, state in zip(self.rules, self._state(), strict=True)]
        if not any(missing) or not self.settings.rule.keeps_state:
            return
        for tensor in self.tensors:
            tensor.grad = torch.zeros_like(tensor)
        for inner in self.inner.values():
            decay = [group["weight_decay"] for group in inner.param_groups]
            for group in inner.param_groups:
                group.update(lr=0.0, weight_decay=0.0)
            inner.step()
            for group, value in zip(inner.param_groups, decay, strict=True):
                group["weight_decay"] = value
        for tensor in self.tensors:
            tensor.grad = None

    def pretend_states(self, names: dict[UpdateRule, list[str]]) -> None:
        """Moments of tensors without values."""
        for rule, tensor in zip(self.rules, self.tensors, strict=True):
            if rule.rounds_moments:
                self.inner[rule].state[tensor] = self._rounding(rule).fresh(tensor)
            elif rule in self.inner:
                self.inner[rule].state[tensor] = {name: torch.zeros_like(tensor) for name in names[rule]}
        if self.matrices is not None:
            self.matrices.ensure_states(self.world.device)

    def set_steps(self, steps: int) -> None:
        """How many updates the moments have seen."""
        if self.matrices is not None:
            self.matrices.steps = steps
        for state in self._state():
            if "step" in state:
                state["step"].fill_(float(steps))

    def states(self) -> list[dict[str, Tensor]]:
        """Moments by name for each of its `parts`, empty before the first step; copies of those that are kept
        rounded."""
        return [
            self._rounding(rule).opened(t)
            if rule.rounds_moments
            else {name: value for name, value in state.items() if value is not None and value.shape == t.shape}
            for rule, state, t in zip(self.rules, self._state(), self.tensors, strict=True)
        ]

    def _rounding(self, rule: UpdateRule) -> "AdamOfBytes":
        from shardwise.plugins.optimizers._rounded import AdamOfBytes

        inner = self.inner[rule]
        assert isinstance(inner, AdamOfBytes)
        return inner

    def take(self, states: Sequence[dict[str, Tensor]]) -> None:
        """What was read into `states`."""
        for rule, tensor, state in zip(self.rules, self.tensors, states, strict=True):
            if rule.rounds_moments:
                self._rounding(rule).close(tensor, state)

    def held(self) -> list[Tensor]:
        """All that it keeps, as it is kept."""
        moments = [value for state in self._state() for key, value in sorted(state.items()) if key != "step"]
        return [value for value in moments if value is not None] + [value for *_, value in self.stored()]

    def stored(self) -> Iterator[tuple[str, ParameterSpan, Tensor]]:
        """State of whole matrices, which has other shapes than they have."""
        yield from () if self.matrices is None else self.matrices.stored()

    def state_bytes(self) -> int:
        whole = 0 if self.matrices is None else self.matrices.state_bytes()
        kept = (value for state in self._state() for key, value in state.items() if key != "step")
        return whole + sum(value.nbytes for value in kept if value is not None)


def rule_of(rule: UpdateRule, kind: TensorKind) -> UpdateRule:
    """The one that a tensor of this kind is left to."""
    return rule if rule.covers(kind) else update_rule(rule.rest)


def squares(locals_: Sequence[Local], world: RankWorld) -> Tensor:
    """Of this rank's gradients, added up; over all ranks every element counts once, however many hold it."""
    parts, copies = [], []
    for local in locals_:
        if local.grad is None:
            continue
        for span in local.spans:
            piece = span.held.piece
            parts.append(local.grad[span.at : span.at + span.length])
            copies.append(local.copies * piece.copies * (2 if piece.tied else 1) * world.mirror.size)
    if not parts:
        return torch.zeros((), dtype=torch.float64, device=world.device)
    norms = torch.stack(torch._foreach_norm(parts, dtype=torch.get_default_dtype())).double()
    return (norms.square() / moved(torch.tensor(copies, dtype=torch.float64), norms.device)).sum()


def moment_names(settings: OptimizerSettings) -> dict[UpdateRule, list[str]]:
    """Of what each optimizer keeps for a tensor, in its shape: asked of a step on four numbers."""
    rules = {rule_of(settings.rule, kind) for kind in KINDS}
    return {rule: _names(rule, settings) for rule in rules if not (rule.by_tensor or rule.factored)}


def _names(rule: UpdateRule, settings: OptimizerSettings) -> list[str]:
    values = torch.zeros(2, 2)
    values.grad = torch.ones(2, 2)
    optimizer = _optimizer(rule, [values], settings, fused=False)
    optimizer.step()
    return [name for name, value in optimizer.state[values].items() if value is not None and value.shape == (2, 2)]


def _flat(tensors: list[Tensor], copies: dict[Tensor, Tensor], settings: OptimizerSettings) -> FlatAdam:
    decay = settings.weight_decay if settings.decay_on == "all" else 0.0
    return FlatAdam(
        tensors, copies, decoupled=settings.rule.decoupled, lr=0.0, betas=settings.betas, eps=settings.epsilon,
        weight_decay=decay,
    )  # fmt: skip


def _optimizer(
    rule: UpdateRule, tensors: list[Tensor], settings: OptimizerSettings, fused: bool
) -> torch.optim.Optimizer:
    decay = settings.weight_decay if settings.decay_on == "all" else 0.0
    return rule.make(tensors, settings, **{"weight_decay": decay, "fused" if fused else "foreach": True})
