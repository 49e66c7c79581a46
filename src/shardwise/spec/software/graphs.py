"""What of a step is replayed as CUDA graphs, a fact of a run: nothing, a part of each layer, or all of it."""

from shardwise.registry import closest
from shardwise.spec.software.load import stack_of
from shardwise.spec.software.stack import Stack

REPLAYED = 8.0
"""launches of a layer whose graph is replayed: inputs are copied to where it reads them"""
OF_LAYERS = ("ops_per_layer", "ops_per_expert_layer", "ops_per_expert_layer_in_node", "ops_per_expert_layer_in_rack")
OF_STEPS = (*OF_LAYERS, "ops_per_product", "ops_per_collective", "ops_per_end", "ops_per_recompute", "ops_per_update")
GRAPHS = ("none", "partial", "full")
"""launches as the program's own; half of a dense layer's (attention, or the feed-forward); none"""
BESIDE_EXPERTS = 30.0
"""most that a layer's experts add where attention and routing are replayed and tokens go once to each place: the
exchange and the products, nothing the host waits for (Megatron-Bridge's scopes attn, moe_router and moe_preprocess)"""


def with_graphs(stack: Stack, name: str) -> Stack:
    if name not in GRAPHS:
        raise ValueError(f"graphs: {name!r} is unknown; {closest(name, list(GRAPHS))}")
    if name == "full":
        return stack.changed(**{each: min(stack.setting(each), 0.0) for each in OF_STEPS})
    launched = stack.host.ops_per_layer
    if name == "partial":
        usual = stack_of(stack.name).host.ops_per_layer
        changed = {"ops_per_layer": min(launched, REPLAYED + usual / 2.0)}
        if stack.experts.dispatch == "once":
            around = ("ops_per_expert_layer", "ops_per_expert_layer_in_node")
            changed |= {each: min(stack.setting(each), BESIDE_EXPERTS) for each in around}
        return stack.changed(**changed)
    if launched <= REPLAYED and stack.like:
        launched = stack_of(stack.like).host.ops_per_layer
    return stack.changed(ops_per_layer=launched, ops_per_expert_layer_in_rack=-1.0)
