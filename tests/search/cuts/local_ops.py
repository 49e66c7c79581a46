"""What one rank computes for one operation, forward and backward, on the part of the tensors it has."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Routing:
    """Copy c of a token goes to expert c mod experts: balanced between any two ranks when sizes divide."""

    tokens: int
    copies: int
    experts: int

    @property
    def expert(self):
        return np.arange(self.tokens * self.copies) % self.experts

    def owner(self, ranks):
        return self.expert // (self.experts // ranks)


def forward(run, op, choice, rank, given):
    return _KINDS[op.kind](run, op, choice, rank, given, None)


def backward(run, op, choice, rank, given, gradient):
    """(gradients of the inputs, gradient of the rank's weights or nothing)."""
    return _KINDS[op.kind](run, op, choice, rank, given, gradient)


def weight_region(run, op, choice, rank):
    """The part of an operation's weights a rank has."""
    weights = run.weights[op.name]
    if op.kind == "norm":
        return np.ix_(np.arange(len(weights)))
    experts, rows, columns = (np.arange(size) for size in (weights.shape if weights.ndim == 3 else (1, *weights.shape)))
    if choice.name == "column":
        columns = run.region(op.writes, "features", rank)[1]
    elif choice.name == "row":
        rows = run.region(op.reads[0], "features", rank)[1]
    elif choice.name == "experts":
        experts = np.split(experts, run.count)[rank]
    return np.ix_(experts, rows, columns) if weights.ndim == 3 else np.ix_(rows, columns)


def _matrix(run, op, choice, rank, given, gradient):
    (x,) = given
    weight = run.weights[op.name][weight_region(run, op, choice, rank)]
    if weight.ndim == 2:
        return x @ weight if gradient is None else ([gradient @ weight.T], x.T @ gradient)
    rows = run.region(op.reads[0], choice.inputs[0].value, rank)[0]
    expert = run.routing.expert[rows]
    if choice.name == "experts":
        expert = expert - rank * len(weight)
    if gradient is None:
        return np.einsum("ri,rio->ro", x, weight[expert])
    back = np.zeros_like(weight)
    np.add.at(back, expert, x[:, :, None] * gradient[:, None, :])
    return [np.einsum("ro,rio->ri", gradient, weight[expert])], back


def _activation(_run, _op, _choice, _rank, given, gradient):
    gate = 1.0 / (1.0 + np.exp(-given[0]))
    silu, slope = given[0] * gate, gate * (1.0 + given[0] * (1.0 - gate))
    other = given[1] if len(given) == 2 else 1.0
    if gradient is None:
        return silu * other
    return [gradient * other * slope, *([gradient * silu] if len(given) == 2 else [])], None


def _norm(run, op, _choice, _rank, given, gradient):
    (x,) = given
    weight = run.weights[op.name]
    scale = 1.0 / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6)
    if gradient is None:
        return x * scale * weight
    inner = gradient * weight
    back = scale * (inner - x * scale**2 * (inner * x).mean(axis=1, keepdims=True))
    return [back], (gradient * x * scale).sum(axis=0)


def _add(_run, _op, _choice, _rank, given, gradient):
    return sum(given) if gradient is None else ([gradient] * len(given), None)


def _dispatch(_run, op, _choice, _rank, given, gradient):
    copies = op.about["copies"]
    if gradient is None:
        return np.repeat(given[0], copies, axis=0)
    return [gradient.reshape(-1, copies, gradient.shape[1]).sum(axis=1)], None


def _combine(run, op, choice, rank, given, gradient):
    copied, scores = given
    rows = run.region(op.reads[0], choice.inputs[0].value, rank)[0]
    token, expert = rows // op.about["copies"], run.routing.expert[rows]
    if choice.name == "tokens":
        token = token - rows[0] // op.about["copies"]
    score = scores[token, expert]
    if gradient is None:
        summed = np.zeros((len(scores), copied.shape[1]))
        np.add.at(summed, token, score[:, None] * copied)
        return summed
    back = np.zeros_like(scores)
    np.add.at(back, (token, expert), (gradient[token] * copied).sum(axis=1))
    return [score[:, None] * gradient[token], back], None


def _attention(run, op, choice, rank, given, gradient):
    about, layouts = op.about, [asked.value for asked in choice.inputs]
    regions = [run.region(name, layout, rank) for name, layout in zip(op.reads, layouts, strict=True)]
    out_columns = run.region(op.writes, choice.output.value, rank)[1]
    heads = out_columns // about["value_width"]
    seen = _mask(regions[0][0], regions[1][0], about["seq"], about["causal"])
    out = np.zeros((len(regions[0][0]), len(out_columns)))
    back = [np.zeros_like(array) for array in given]
    for head in np.unique(heads):
        dims = out_columns[heads == head] - head * about["value_width"]
        query = (0, head * about["score_width"] + np.arange(about["score_width"]))
        keys, value = _sources(run, op, head, dims)
        parts = [query, *keys, value]
        places = [(slot, np.searchsorted(regions[slot][1], ids)) for slot, ids in parts]
        q, *k, v = (given[slot][:, place] for slot, place in places)
        key = np.concatenate(k, axis=1)
        scores = np.where(seen, q @ key.T / np.sqrt(about["score_width"]), -np.inf)
        chance = np.exp(scores - scores.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        if gradient is None:
            out[:, heads == head] = chance @ v
            continue
        d_out = gradient[:, heads == head]
        d_chance = d_out @ v.T
        d_scores = chance * (d_chance - (d_chance * chance).sum(axis=1, keepdims=True)) / np.sqrt(about["score_width"])
        d_key = np.split(d_scores.T @ q, np.cumsum([part.shape[1] for part in k])[:-1], axis=1)
        for (slot, place), part in zip(places, [d_scores @ key, *d_key, chance.T @ d_out], strict=True):
            back[slot][:, place] += part
    return out if gradient is None else (back, None)


def _sources(run, op, head, dims):
    """Which columns of which inputs are a head's keys, and which its values."""
    width, value_width = op.about["score_width"], op.about["value_width"]
    shared = op.about["heads"] // op.about[f"heads of {op.reads[1]}"]
    if op.reads[2] != "k rotary":
        group = head // shared
        return [(1, group * width + np.arange(width))], (2, group * value_width + dims)
    rotary = run.graph.tensors["k rotary"].width
    plain = width - rotary
    start = head * (plain + value_width)
    return [(1, start + np.arange(plain)), (2, np.arange(rotary))], (1, start + plain + dims)


def _mask(queries, keys, seq, causal):
    same = queries[:, None] // seq == keys[None, :] // seq
    return same & (keys[None, :] <= queries[:, None]) if causal else same


_KINDS = {"matrix": _matrix, "activation": _activation, "norm": _norm, "add": _add, "dispatch": _dispatch,
          "combine": _combine, "attention": _attention}  # fmt: skip
