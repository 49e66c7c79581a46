"""The best settings of frames, without looking at settings that cannot matter. Nothing is lost, because

- no setting of a frame is faster than its work alone: no synchronisation, no optimizer, no recompute, no offload;
- an overlap that the software has is never slower than none, and costs no memory;
- recompute and offload only add time, so they are looked at where memory lacks without them;
- the more layers recompute, the slower and the smaller: of all k that fit the smallest is the best (bisection);
- what offloads everything and recomputes is the smallest: where it does not fit, nothing does.

A test scans small spaces without any of this and finds the same answers.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from shardwise.arrays import Flags, Floats, Ints
from shardwise.plan.keep import EXTRAS, SETTINGS, Keep, PricedPolicies
from shardwise.plan.least import most_offloaded
from shardwise.plan.space import FULL, NONE, Space
from shardwise.spec.policy import OFFLOAD, Policies

Price = Callable[[Policies], PricedPolicies]
Peaks = Callable[[Policies], Floats]
BLOCK = 2048
"""frames looked at together: with their settings some thousand policies"""
FIRST_BLOCK = 1024
"""fewer at first: what they bring bounds the others. Fewer still cost more calls than they save rows: with 128 the
README's plan makes twice the calls of 1,024 for as many rows, in one and a half times the time"""
OF_A_LINE = frozenset(EXTRAS)
NOTHING_OFF = OFFLOAD.index("none")


def plain(frames: Policies, recompute: int = NONE) -> Policies:
    """Each frame without any setting that costs time, but for the recompute asked for."""
    none = np.zeros(len(frames), dtype=np.int64)
    again = np.full(len(frames), recompute, dtype=np.int64)
    return replace(frames, zero=none, shard_group=none, recompute=again, recompute_layers=none - 1, offload=none)


class BoundedScan:
    def __init__(self, space: Space, price: Price, peaks: Peaks, keep: Keep, *, any_host: bool = True) -> None:
        """`peaks`: bytes without seconds. `any_host`: the host holds whatever is offloaded, so that what offloads all
        is the smallest."""
        self.any_host, self.peaks = any_host, peaks
        self.space, self.settings, self.price, self.keep = space, space.settings, price, keep
        self._size = FIRST_BLOCK

    def look(self, index: Ints, floors: Floats) -> None:
        """At the frames of these numbers; `floors`: what each takes at least, without recompute and with all of it."""
        done = 0
        while done < len(index):
            part, floor = index[done : done + self._size], floors[done : done + self._size]
            matter = self.keep.could_matter(self.space.frames.take(part), floor[:, 0], SETTINGS, floor[:, 1])
            if matter.any():
                self._block(part[matter], floor[matter])
            done, self._size = done + self._size, min(2 * self._size, BLOCK)

    def _block(self, index: Ints, floors: Floats) -> None:
        """First every ZeRO stage with its first group (all ranks, if allowed), then with the others: a smaller group
        needs more memory, so where the first leaves no room there is none."""
        frames = self.space.frames.take(index)
        table = self.space.shardings(index)
        if not len(table):
            return
        opens = np.ones(len(table), dtype=np.bool_)
        opens[1:] = (table[1:, :2] != table[:-1, :2]).any(axis=1)
        lead = np.cumsum(opens) - 1  # of each way: which first way it follows
        alive = self._ways(frames, index, floors, table[opens])
        self._ways(frames, index, floors, table[~opens & alive[lead]])

    def _ways(self, frames: Policies, index: Ints, floors: Floats, table: Ints) -> Flags:
        row, zero, group = table.T
        lines = replace(frames.take(row), zero=zero, shard_group=group)
        return self._lines(lines, floors[row], index[row])

    def _lines(self, lines: Policies, floors: Floats, index: Ints) -> Flags:
        """Recompute and offload of policies that are settled otherwise; they come with the first value of both.
        Returns the lines of which something fits."""
        matter = self.keep.could_matter(lines, floors[:, 0], OF_A_LINE, floors[:, 1])
        if matter.any():
            matter[matter] = self._these(lines.take(np.flatnonzero(matter)), index[matter], floors[matter, 1])
        return matter

    def _these(self, lines: Policies, index: Ints, repeated: Floats) -> Flags:
        """`repeated`: what each takes at least where it makes all activations again."""
        recompute, offload = self.settings.recompute, self.settings.offload
        steps = np.full((len(recompute), len(offload), len(lines)), np.nan)
        peaks = np.full_like(steps, np.inf)
        first = self._seen(lines)
        steps[0, 0], peaks[0, 0] = first.steps, first.peaks
        inside = first.peaks <= self.keep.limit
        ordered = offload[0] == NOTHING_OFF or len(offload) == 1
        alive = self._alive(lines, inside | (not ordered))
        # where nothing need be made again or sent away, doing so can only be the best of the kind that does it
        needless = inside & ordered & (recompute[0] == NONE)
        at_least = np.maximum(first.steps, repeated)
        asked = [
            (r, o, np.flatnonzero(alive & ~(inside & ordered & (o > 0)) & np.where(
                needless,
                self.keep.could_lead(policies, at_least),
                self.keep.could_matter(policies, first.steps, repeated_s=at_least),
            )))
            for r, again in enumerate(recompute) for o, off in enumerate(offload) if r or o
            for policies in [_with(lines, again, off)]
        ]  # fmt: skip
        if asked:
            row = np.concatenate([rows for _, _, rows in asked])
            r, o = (np.concatenate([np.full(len(a[2]), a[i]) for a in asked]) for i in (0, 1))
            by_line = np.argsort(row, kind="stable")
            row, r, o = row[by_line], r[by_line], o[by_line]
            more = self._seen(_with(lines.take(row), np.array(recompute)[r], np.array(offload)[o]))
            steps[r, o, row], peaks[r, o, row] = more.steps, more.peaks
        self._some_layers(lines, index, steps, peaks)
        return alive

    def _alive(self, lines: Policies, yes: Flags) -> Flags:
        """Lines of which something can fit; the smallest settings answer for the others. They are priced too as long
        as one of them may be what is told of: the smallest of all, or of a kind."""
        recomputes, most = self.settings.recompute, most_offloaded(self.settings.offload)
        of_kinds = self.keep.kinds_too and len(self.settings.offload) > 1
        if yes.all() or not self.any_host or len(most) > 1 or of_kinds:
            return np.ones(len(lines), dtype=np.bool_)
        told = not self.keep.fitting or self.keep.kinds_too
        ends = tuple(dict.fromkeys((recomputes[-1], recomputes[0])))
        alive = yes.copy()
        # with one layer to a stage all of it stands while it is made again: a part of it may fit where all does not
        for recompute in (*ends, *recomputes[1:-1]):
            ask = np.flatnonzero(~alive)
            if len(ask):
                settled = _with(lines.take(ask), recompute, most[0])
                if told and recompute in ends:
                    self._seen(settled)
                alive[ask] = self.peaks(settled) <= self.keep.limit
        return alive

    def _some_layers(self, lines: Policies, index: Ints, steps: Floats, peaks: Floats) -> None:
        """The fewest layers that recompute, where all of them fit and none does not."""
        recompute = self.settings.recompute
        if FULL not in recompute or self.settings.layers is None:
            return
        full = recompute.index(FULL)
        without = peaks[0] if recompute[0] == NONE else np.full_like(peaks[full], np.inf)
        offload, row = np.nonzero((peaks[full] <= self.keep.limit) & (without > self.keep.limit))
        by_line = np.argsort(row, kind="stable")
        offload, row = offload[by_line], row[by_line]
        some = _with(lines.take(row), FULL, np.array(self.settings.offload)[offload])
        at_least = steps[0][offload, row] if recompute[0] == NONE else np.zeros(len(row))
        self._fewest(
            replace(some, recompute_layers=np.ones(len(row), dtype=np.int64)),
            self.space.numbers_of_layers(index[row]),
            np.where(np.isnan(at_least), 0.0, at_least),
            (without[offload, row], peaks[full][offload, row]),
        )

    def _fewest(
        self, lines: Policies, choices: tuple[Ints, Ints], at_least: Floats, ends: tuple[Floats, Floats]
    ) -> None:
        """`choices`: numbers of layers of each line, ascending, and how many. All layers fit; how few do? `at_least`:
        what a line takes with as many as are known to be too few. `ends`: peaks with no layer and with all; memory
        falls almost evenly between them, so that a first guess on that line is hardly ever far off: with its neighbour
        below it mostly is the edge. A call costs as much as a thousand of its rows, so both are looked at together."""
        numbers, count = choices
        low, high = np.zeros_like(count), count.copy()
        none, all_ = ends
        # where no layer at all is not allowed, the guess is one
        none = np.where(np.isinf(none), np.maximum(all_, self.keep.limit), none)
        share = (none - self.keep.limit) / np.maximum(none - all_, 1.0)
        guess = np.floor(np.clip(share, 0.0, 1.0) * high).astype(np.int64)
        while (open_ := np.flatnonzero((low < high) & self.keep.could_matter(lines, at_least))).size:
            edge = np.clip(guess[open_], low[open_], high[open_] - 1)
            two = np.where(edge > low[open_], 2, 1)
            row = np.repeat(open_, two)
            probe = np.repeat(edge, two)
            probe[np.cumsum(two)[two == 2] - 2] -= 1
            seen = self._seen(replace(lines.take(row), recompute_layers=numbers[row, probe]))
            fits = seen.peaks <= self.keep.limit
            np.minimum.at(high, row[fits], probe[fits])
            np.maximum.at(low, row[~fits], probe[~fits] + 1)
            np.maximum.at(at_least, row[~fits], seen.steps[~fits])
            # the neighbours first; where they are not the edge, halve
            near = np.where(low[open_] > edge, edge + 1, edge - 2)
            guess[open_] = np.where(guess[open_] == edge, near, (low[open_] + high[open_]) // 2)

    def _seen(self, policies: Policies) -> PricedPolicies:
        seen = self.price(policies)
        self.keep.add(seen)
        return seen


def _with(lines: Policies, recompute: int | Ints, offload: int | Ints) -> Policies:
    size = len(lines)
    return replace(lines, recompute=np.broadcast_to(recompute, size), offload=np.broadcast_to(offload, size))
