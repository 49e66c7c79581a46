"""What a scan keeps of the policies it has seen: the best of all, and the best of each kind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from shardwise.arrays import Flags, Floats, Ints
from shardwise.plan.pareto import staircase
from shardwise.spec.policy import FRAME, Policies

NAMES = tuple(f.name for f in fields(Policies))
EXTRAS = ("offload", "recompute", "recompute_layers")
SETTINGS = frozenset(NAMES) - set(FRAME)
LISTED = tuple(
    name for name in NAMES if name not in (*EXTRAS, "order", "shard_group") and not name.startswith("overlap")
)
"""of policies that are equal in these only the best is listed"""
NEAR = 1.0 + 1e-8
FIRST = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True)
class Kind:
    name: str
    fields: tuple[str, ...]
    """what membership depends on"""
    member: Callable[[Policies], Flags]
    repeats: bool = False
    """every member makes all activations again"""


KINDS = (
    Kind("no tensor parallelism", ("tp",), lambda p: p.tp == 1),
    Kind("tensor parallelism", ("tp",), lambda p: p.tp > 1),
    Kind("no pipeline", ("pp",), lambda p: p.pp == 1),
    Kind("a pipeline", ("pp",), lambda p: p.pp > 1),
    Kind("a pipeline without interleaving", ("pp", "vpp"), lambda p: (p.pp > 1) & (p.vpp == 1)),
    Kind("an interleaved pipeline", ("vpp",), lambda p: p.vpp > 1),
    Kind("context parallelism", ("cp",), lambda p: p.cp > 1),
    Kind("no expert parallelism", ("ep",), lambda p: p.ep == 1),
    Kind("ZeRO 0", ("zero",), lambda p: p.zero == 0),
    Kind("ZeRO 1", ("zero",), lambda p: p.zero == 1),
    Kind("ZeRO 2", ("zero",), lambda p: p.zero == 2),
    Kind("ZeRO 3", ("zero",), lambda p: p.zero == 3),
    Kind("no recompute", ("recompute",), lambda p: p.recompute == 0),
    Kind(
        "full recompute",
        ("recompute", "recompute_layers"),
        lambda p: (p.recompute == 2) & (p.recompute_layers < 0),
        repeats=True,
    ),
    Kind("one sequence per micro-batch", ("micro_batch",), lambda p: p.micro_batch == 1),
    Kind("larger micro-batches", ("micro_batch",), lambda p: p.micro_batch > 1),
)


@dataclass
class PricedPolicies:
    """Policies with what they take."""

    policies: Policies
    steps: Floats
    peaks: Floats

    @classmethod
    def none(cls) -> "PricedPolicies":
        return cls(Policies.of([]), np.empty(0), np.empty(0))

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, index: Ints) -> "PricedPolicies":
        return PricedPolicies(self.policies.take(index), self.steps[index], self.peaks[index])

    def first(self) -> "PricedPolicies":
        """The fastest first. Of equally fast ones what does without offload and recompute, then by their other fields,
        so that the order of looking is no part of the answer."""
        return self.take(np.lexsort((*self._columns(), _rounded(self.steps))))

    def smallest(self) -> "PricedPolicies":
        return self.take(np.lexsort((*self._columns(), _rounded(self.peaks)))[:1])

    def _columns(self) -> list[Ints]:
        """For a sort, the last first; overlap before none."""
        names = reversed((*EXTRAS, *(name for name in NAMES if name not in EXTRAS)))
        signs = {name: -1 if name.startswith("overlap") else 1 for name in NAMES}
        return [signs[name] * getattr(self.policies, name) for name in names]


def _rounded(values: Floats) -> Floats:
    """Sums of the same parts in another order differ in the last digits; that is no reason to prefer one."""
    return np.asarray(np.rint(np.log(values) * 1e9))


def joined(parts: Sequence[PricedPolicies]) -> PricedPolicies:
    columns = {name: np.concatenate([getattr(part.policies, name) for part in parts]) for name in NAMES}
    return PricedPolicies(
        Policies(**columns), np.concatenate([p.steps for p in parts]), np.concatenate([p.peaks for p in parts])
    )


@dataclass
class Keep:
    limit: float
    """bytes a policy may fill"""
    top: int
    kinds_too: bool = True
    """look for the best of each kind as well"""
    frontier_too: bool = False
    other_limits: tuple[float, ...] = ()
    """bytes of which the fastest policies inside are kept too, as far as they are met"""
    at_most_s: float = np.inf
    """what takes longer is not among the best"""
    best: PricedPolicies = field(default_factory=PricedPolicies.none)
    smallest: PricedPolicies = field(default_factory=PricedPolicies.none)
    """what needs the least memory, whether it fits or not"""
    of_kind: list[PricedPolicies] = field(init=False)
    """the fastest that fits, of each kind"""
    small_of_kind: list[PricedPolicies] = field(init=False)
    frontier: PricedPolicies = field(default_factory=PricedPolicies.none)
    inside_others: list[PricedPolicies] = field(init=False)
    """the fastest inside each of `other_limits`"""
    evaluated: int = 0
    fitting: int = 0

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return KINDS if self.kinds_too else ()

    def __post_init__(self) -> None:
        self.of_kind, self.small_of_kind = ([PricedPolicies.none() for _ in self.kinds] for _ in range(2))
        self.inside_others = [PricedPolicies.none() for _ in self.other_limits]

    @property
    def slowest_kept(self) -> float:
        """What does not beat this does not come among the best."""
        return min(float(self.best.steps[-1]) * NEAR if len(self.best) == self.top else np.inf, self.at_most_s)

    def add(self, seen: PricedPolicies) -> None:
        self.evaluated += len(seen)
        self.fitting += int((seen.peaks <= self.limit).sum())
        self._take_in(seen)

    def bounds(self) -> "Keep":
        """The same knowledge, with nothing counted yet."""
        same = replace(self, evaluated=0, fitting=0)
        same.of_kind, same.small_of_kind = list(self.of_kind), list(self.small_of_kind)
        same.inside_others = list(self.inside_others)
        return same

    def merge(self, other: "Keep") -> None:
        """What another scan kept of other policies."""
        self.evaluated += other.evaluated
        self.fitting += other.fitting
        self._take_in(joined([other.best, other.smallest, *other.of_kind, *other.small_of_kind, other.frontier,
                              *other.inside_others]))  # fmt: skip

    def _take_in(self, seen: PricedPolicies) -> None:
        if not len(seen):
            return
        inside = seen.peaks <= self.limit
        ahead = np.flatnonzero(inside & (seen.steps <= self.slowest_kept))
        if len(ahead):
            self.best = _listed(joined([self.best, seen.take(ahead)]), self.top)
        self.smallest = _least(self.smallest, seen, np.ones(len(seen), dtype=np.bool_))
        for index, kind in enumerate(self.kinds):
            member = kind.member(seen.policies)
            self.small_of_kind[index] = _least(self.small_of_kind[index], seen, member)
            now = self.of_kind[index]
            better = _within(seen.steps, member & inside, _fastest(now))
            if len(better):
                self.of_kind[index] = joined([now, seen.take(better)]).first().take(FIRST)
        for index, limit in enumerate(self.other_limits):
            now = self.inside_others[index]
            better = np.flatnonzero((seen.peaks <= limit) & (seen.steps <= _fastest(now)))
            if len(better):
                self.inside_others[index] = joined([now, seen.take(better)]).first().take(FIRST)
        if self.frontier_too:
            both = joined([self.frontier, seen.take(np.flatnonzero(inside))])
            self.frontier = both.take(staircase(both.steps, both.peaks, self.limit))

    def could_matter(
        self, policies: Policies, at_least_s: Floats, free: frozenset[str] = frozenset(),
        repeated_s: Floats | None = None,
    ) -> Flags:  # fmt: skip
        """Policies that take at least so long and may still be among the best, or the best of a kind.

        Each stands for all that differ from it in the `free` fields. `repeated_s`: what it takes at least where all
        activations are made again.
        """
        matters = at_least_s <= self.slowest_kept
        for kind, now in zip(self.kinds, self.of_kind, strict=True):
            member = True if free.intersection(kind.fields) else kind.member(policies)
            at_least = repeated_s if kind.repeats and repeated_s is not None else at_least_s
            matters |= member & (at_least <= _fastest(now))
        return matters

    def could_lead(self, policies: Policies, repeated_s: Floats) -> Flags:
        """Of policies that make all activations again and take at least so long: those that may be the best that do."""
        leads = np.zeros(len(policies), dtype=np.bool_)
        for kind, now in zip(self.kinds, self.of_kind, strict=True):
            if kind.repeats:
                leads |= kind.member(policies) & (repeated_s <= _fastest(now))
        return leads


def _fastest(now: PricedPolicies) -> float:
    return float(now.steps[0]) * NEAR if len(now) else np.inf


def _least(now: PricedPolicies, seen: PricedPolicies, member: Flags) -> PricedPolicies:
    lower = _within(seen.peaks, member, now.peaks[0] * NEAR if len(now) else np.inf)
    return joined([now, seen.take(lower)]).smallest() if len(lower) else now


def _within(values: Floats, member: Flags, bound: float) -> Ints:
    """Members within the bound that may be the first of all: no further from the least than what counts as equal."""
    least = values.min(where=member, initial=np.inf)
    return np.flatnonzero(member & (values <= min(bound, least * NEAR)))


def _listed(seen: PricedPolicies, count: int) -> PricedPolicies:
    """The first `count`, each the best of its like."""
    order = seen.first()
    table = np.stack([getattr(order.policies, name) for name in LISTED], axis=1)
    firsts = np.sort(np.unique(table, axis=0, return_index=True)[1])
    return order.take(firsts[:count])
