"""A plan carried out on small arrays: weights split as it says, its collectives run over a wire that counts bytes.

What a rank has of a tensor is a region: some rows and some columns. Every change of layout moves flat arrays between
regions through the project's own reference collectives, forward and backward.
"""

from dataclasses import dataclass, field

import local_ops
import numpy as np

from shardwise.plan.search.problems.cuts._layouts import collective_of
from shardwise.plugins.collectives import collective


@dataclass
class Ran:
    outputs: dict
    input_gradients: dict
    weight_gradients: dict
    moved: list = field(default_factory=list)
    """(phase, tensor, op, bytes sent by each rank)"""


class Ranks:
    def __init__(self, problem, assignment, weights, routing=None):
        self.problem, self.graph, self.count = problem, problem.graph, problem.graph.ranks
        self.assignment, self.weights, self.routing = assignment, weights, routing
        self.moved, self.weight_gradients = [], {}
        self.sliced_in_heads = self._sliced_in_heads()

    def choice(self, place):
        return self.problem.choice(place, self.assignment[place])

    def _sliced_in_heads(self):
        """Tensors whose features are cut inside every head (values and context, where keys are gathered)."""
        found = {}
        for place, op in enumerate(self.graph.ops):
            if op.kind == "attention" and self.choice(place).name == "gathered":
                found[op.reads[2]] = found[op.writes] = op.about["value_width"]
        return found

    def region(self, name, layout, rank):
        """(rows, columns) of a tensor that a rank has."""
        tensor = self.graph.tensors[name]
        rows, columns = np.arange(tensor.rows), np.arange(tensor.width)
        if layout == "tokens":
            rows = np.split(rows, self.count)[rank]
        elif layout == "experts":
            rows = np.flatnonzero(self.routing.owner(self.count) == rank)
        elif layout == "features" and name in self.sliced_in_heads:
            width = self.sliced_in_heads[name] // self.count
            columns = columns.reshape(-1, self.count, width)[:, rank].ravel()
        elif layout == "features":
            columns = np.split(columns, self.count)[rank]
        return rows, columns

    def cut(self, name, layout, whole):
        return [whole[np.ix_(*self.region(name, layout, rank))] for rank in range(self.count)]

    def changed(self, phase, name, arc, held):
        """A tensor in another layout, with the collective that takes."""
        start, end = arc
        op, tensor = collective_of(arc), self.graph.tensors[name]
        ranks, shape = range(self.count), (tensor.rows, tensor.width)
        inner = [np.ix_(*self.region(name, start, rank)) for rank in ranks]
        outer = [np.ix_(*self.region(name, end, rank)) for rank in ranks]
        if op is None:
            if start == "replicated" and end == "partial":
                return [held[0], *(np.zeros(shape) for _ in ranks[1:])]
            if start == "replicated":
                return [held[rank][outer[rank]] for rank in ranks]
            return [self._padded(shape, inner[rank], held[rank]) for rank in ranks]
        if op == "all_to_all":
            return self._exchanged(phase, name, arc, held)
        if op == "reduce_scatter":
            flat = [np.concatenate([whole[region].ravel() for region in outer]) for whole in held]
        else:
            flat = [array.ravel() for array in held]
        got = self.carried(phase, name, op, flat)
        if op == "all_gather":
            return [self._joined(shape, inner, parts) for parts in got]
        wanted = [(len(r), len(c)) for r, c in (self.region(name, end, rank) for rank in ranks)]
        return [part.reshape(size) for part, size in zip(got, wanted, strict=True)]

    def carried(self, phase, name, op, flat):
        algorithm = collective("pairwise" if op == "all_to_all" else "ring")
        ran = algorithm.run(op, flat, self.count)
        self.moved.append((phase, name, op, ran.sent_bytes))
        return ran.results

    def _padded(self, shape, region, part):
        whole = np.zeros(shape)
        whole[region] = part
        return whole

    def _joined(self, shape, regions, flat):
        whole, start = np.full(shape, np.nan), 0
        for region in regions:
            size = whole[region].size
            whole[region] = flat[start : start + size].reshape(whole[region].shape)
            start += size
        return whole

    def _exchanged(self, phase, name, arc, held):
        """Every rank sends to every other the part of its region that lies in the other's."""
        ranks = range(self.count)
        inner, outer = ([self.region(name, layout, rank) for rank in ranks] for layout in arc)
        shared = [[tuple(np.intersect1d(a, b) for a, b in zip(i, o, strict=True)) for o in outer] for i in inner]
        flat = [
            np.concatenate([part[np.ix_(*_places(inner[s], shared[s][r]))].ravel() for r in ranks])
            for s, part in enumerate(held)
        ]
        results = []
        for r, got in enumerate(self.carried(phase, name, "all_to_all", flat)):
            part, start = np.full([len(axis) for axis in outer[r]], np.nan), 0
            for s in ranks:
                place = np.ix_(*_places(outer[r], shared[s][r]))
                size = part[place].size
                part[place] = got[start : start + size].reshape(part[place].shape)
                start += size
            results.append(part)
        return results

    def run(self, inputs, output_gradients):
        """Forward, then backward from the gradients of the outputs."""
        values = self._forward(inputs)
        gradients = {name: {} for name in self.graph.tensors}
        outputs, input_gradients = {}, {}
        for place in reversed(range(len(self.graph.ops))):
            op, choice = self.graph.ops[place], self.choice(place)
            if op.kind == "output":
                asked = choice.inputs[0]
                outputs[op.reads[0]] = values[op.reads[0]][asked.value], asked.value
                self._collect(gradients[op.reads[0]], asked.gradient,
                              self.cut(op.reads[0], asked.gradient, output_gradients[op.reads[0]]))  # fmt: skip
                continue
            self._again(op.writes, values)
            gradient = self._gathered(op.writes, gradients[op.writes], choice.output.gradient)
            if op.kind == "input":
                input_gradients[op.name] = gradient, choice.output.gradient
                continue
            given = [values[name][asked.value] for name, asked in zip(op.reads, choice.inputs, strict=True)]
            back = [local_ops.backward(self, op, choice, rank, [g[rank] for g in given], gradient[rank])
                    for rank in range(self.count)]  # fmt: skip
            for slot, (name, asked) in enumerate(zip(op.reads, choice.inputs, strict=True)):
                self._collect(gradients[name], asked.gradient, [inputs_[slot] for inputs_, _ in back])
            if op.name in self.weights:
                self.weight_gradients[op.name] = self._weights(op, choice, [weight for _, weight in back])
        whole = {name: self.whole(name, *held) for name, held in outputs.items()}
        first = {name: self.whole(name, *held) for name, held in input_gradients.items()}
        return Ran(whole, first, self.weight_gradients, self.moved)

    def whole(self, name, held, layout):
        """What lies in a layout, put together without a collective; copies must be equal."""
        if layout == "replicated":
            assert all(np.array_equal(held[0], other) for other in held)
            return held[0]
        tensor = self.graph.tensors[name]
        regions = [np.ix_(*self.region(name, layout, rank)) for rank in range(self.count)]
        return self._joined((tensor.rows, tensor.width), regions, np.concatenate([part.ravel() for part in held]))

    def _forward(self, inputs):
        values = {}
        for place, op in enumerate(self.graph.ops):
            choice = self.choice(place)
            if op.kind == "output":
                continue
            if op.kind == "input":
                made = self.cut(op.name, choice.output.value, inputs[op.name])
            else:
                given = [values[name][asked.value] for name, asked in zip(op.reads, choice.inputs, strict=True)]
                made = [local_ops.forward(self, op, choice, rank, [g[rank] for g in given])
                        for rank in range(self.count)]  # fmt: skip
            held = {choice.output.value: made}
            for arc in self._tree(op.writes)[0]:
                held[arc[1]] = self.changed("forward", op.writes, arc, held[arc[0]])
            values[op.writes] = held
        return values

    def _tree(self, name):
        """(arcs of the value, of the gradient, whether gathers are repeated)."""
        producer = self.graph.producer[name]
        wanted, given = self.problem.wanted(name, [self.assignment[p] for p, _ in self.graph.consumers[name]])
        output = self.choice(producer).output
        values = self.problem.spread(name, output.value, wanted)[1]
        gradients = self.problem.gathered(name, output.gradient, given)[1]
        return values, gradients, wanted[1] and self.problem.regather

    def _again(self, name, values):
        arcs, _, again = self._tree(name)
        for arc in arcs:
            if again and collective_of(arc) == "all_gather":
                repeated = self.changed("again", name, arc, values[name][arc[0]])
                assert all(np.array_equal(a, b) for a, b in zip(repeated, values[name][arc[1]], strict=True))

    def _collect(self, found, layout, parts):
        """Gradients in one layout are added where they lie."""
        found[layout] = [a + b for a, b in zip(found[layout], parts, strict=True)] if layout in found else parts

    def _gathered(self, name, found, end):
        for arc in self._tree(name)[1]:
            self._collect(found, arc[1], self.changed("backward", name, arc, found[arc[0]]))
        return found[end]

    def _weights(self, op, choice, parts):
        """The whole weight gradient from the ranks' parts."""
        shape = self.weights[op.name].shape
        if choice.summed:
            added = self.carried("weights", op.name, "all_reduce", [part.ravel() for part in parts])
            parts = [part.reshape(shape) for part in added]
        whole = np.full(shape, np.nan)
        for rank, part in enumerate(parts):
            region = local_ops.weight_region(self, op, choice, rank)
            assert np.isnan(whole[region]).all() or np.allclose(whole[region], part, rtol=1e-9, atol=1e-12)
            whole[region] = part
        return whole


def _places(region, part):
    """Where a part of a region lies in it; regions need not be sorted."""
    found = []
    for axis, wanted in zip(region, part, strict=True):
        order = np.argsort(axis)
        found.append(order[np.searchsorted(axis, wanted, sorter=order)])
    return found
