"""Graphs small enough to carry out, and everything a run of one needs."""

import numpy as np
from local_ops import Routing
from msgspec.structs import replace
from simulated_ranks import Ranks

from shardwise.plan.search.methods import method_of
from shardwise.plan.search.problems.cuts import CutProblem, block_of, chain, machine_at
from shardwise.plan.search.problems.cuts._build import AttentionSizes, Builder, Heads
from shardwise.spec.job import precision_of
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Attention, Experts, FeedForward, Layer, Model
from shardwise.spec.software import stack_of

# as numpy computes: 8 bytes in every tensor, so that priced and carried bytes can be equal
DOUBLE = replace(precision_of("fp32"), act_bytes=8.0, grad_comm_bytes=8.0)
CLUSTER = cluster_of("dgx-h100:1024")
GROUPED = Attention(heads=8, kv_heads=4, head_dim=4)
FEW_KEYS = Attention(heads=4, kv_heads=2, head_dim=8)
LATENT = Attention(heads=4, kv_heads=4, head_dim=12, v_head_dim=8, q_lora=8, kv_lora=8, rope_dim=4)
GATED = FeedForward(width=24, glu=True)
PLAIN = FeedForward(width=32, glu=False)
ROUTED = Experts(count=4, top_k=2, width=8, shared_width=8)


def model(attention=GROUPED, feed_forward=GATED, experts=None):
    layer = Layer(attention=attention, feed_forward=feed_forward, experts=experts)
    return Model(name="small", family="llama", hidden=16, vocab=32, kinds=(layer,), pattern=(0,))


def stack(keeps_gathered=False):
    return stack_of("megatron-core").changed(gathered_inputs_saved=keeps_gathered)


def block(name, ranks, *, sequences=2, seq=8, **parts):
    return block_of(model(**parts), name, ranks, sequences, seq, DOUBLE)


def straight(sizes, ranks, tokens=8):
    return chain(list(sizes), ranks, tokens, DOUBLE)


def problem(graph, *, stride=1, keeps_gathered=False, accumulate=1):
    return CutProblem(graph, machine_at(CLUSTER, stack(keeps_gathered), DOUBLE, graph.ranks, stride), accumulate)


def best(task, count=1, method="ip"):
    """The best assignments of different cuts, proven."""
    found = method_of(method).solve(task, budget_evaluations=10**8, count=count)
    assert found.proven
    return [tuple(point.tolist()) for point in found.ranked]


def data_of(graph, seed=0):
    """(weights, inputs, gradients of the outputs) of a graph, drawn."""
    draw = np.random.default_rng(seed)
    weights, inputs, gradients = {}, {}, {}
    for op in graph.ops:
        if op.kind == "matrix":
            shape = (op.about["in"], op.about["out"])
            weights[op.name] = (
                draw.normal(size=(op.about["experts"], *shape) if op.about["experts"] > 1 else shape) * 0.3
            )
        elif op.kind == "norm":
            weights[op.name] = draw.normal(size=graph.tensors[op.name].width)
        elif op.kind == "input":
            tensor = graph.tensors[op.name]
            inputs[op.name] = draw.normal(size=(tensor.rows, tensor.width))
        elif op.kind == "output":
            tensor = graph.tensors[op.reads[0]]
            gradients[op.reads[0]] = draw.normal(size=(tensor.rows, tensor.width))
    return weights, inputs, gradients


def routing_of(graph):
    for op in graph.ops:
        if op.kind == "dispatch":
            experts = max(other.about.get("experts", 1) for other in graph.ops if other.kind == "matrix")
            return Routing(graph.tokens, op.about["copies"], experts)
    return None


def carried_out(task, assignment, seed=0):
    weights, inputs, gradients = data_of(task.graph, seed)
    return Ranks(task, assignment, weights, routing_of(task.graph)).run(inputs, gradients)


def drawn_graph(seed, ranks):
    """Products, sums, norms, activations and attention over whatever was made before; every size divides by 4."""
    draw = np.random.default_rng(seed)
    made = Builder("drawn", ranks, 16, DOUBLE)
    made.input("x", 16)
    for number in range(draw.integers(2, 8)):
        name, read = f"t{number}", str(draw.choice(sorted(made.tensors)))
        alike = [t for t in sorted(made.tensors) if made.tensors[t].width == made.tensors[read].width]
        kind = draw.choice(["matrix", "matrix", "add", "norm", "activation", "attention"])
        if kind == "matrix":
            made.matrix(name, read, int(draw.choice([8, 16])))
        elif kind == "norm":
            made.norm(name, read, made.tensors[read].width)
        elif kind == "attention":
            heads = int(draw.choice([1, 2, 4]))
            width = made.tensors[read].width // heads
            key, value = (Heads(str(draw.choice(alike)), heads) for _ in range(2))
            sizes = AttentionSizes(4, 4, 4, heads, width, width, 0.5)
            made.attention(name, read, (key, value), sizes, values_last=True)
        else:
            getattr(made, str(kind))(name, read, str(draw.choice(alike)))
    used = {read for op in made.ops for read in op.reads}
    return made.graph(tuple(name for name in made.tensors if name not in used))
