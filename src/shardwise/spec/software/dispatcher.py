"""How a run sends tokens to their experts, by the names of Megatron-Core's --moe-token-dispatcher-type."""

from shardwise.registry import closest
from shardwise.spec.software.load import stack_of
from shardwise.spec.software.stack import Stack

DISPATCH = {"alltoall": "copies", "flex": "once", "allgather": "gather"}
"""name -> `ExpertSettings.dispatch`; flex is DeepEP, or HybridEP in a rack"""
COUNTED_BY_HOST = "megatron-bridge@26.04"
"""whose recipes exchange by a plain all-to-all inside a node: its launches there hold the host's wait for the counts"""


def with_dispatcher(stack: Stack, name: str) -> Stack:
    if name not in DISPATCH:
        raise ValueError(f"dispatcher: {name!r} is unknown; {closest(name, list(DISPATCH))}")
    experts = stack.experts
    changed = stack if experts.dispatch == DISPATCH[name] else stack.changed(dispatch=DISPATCH[name])
    if name != "alltoall":
        return changed
    if changed is not stack and experts.ops_per_expert_layer_in_node < 0:
        counted = stack_of(COUNTED_BY_HOST).experts.ops_per_expert_layer_in_node
        changed = changed.changed(ops_per_expert_layer_in_node=counted)
    if experts.ops_per_expert_layer_in_rack >= 0:
        # graphs go with HybridEP: here the host launches all of a layer and reads the counts in a rack as in a node
        launches = changed.host.ops_per_layer + changed.experts.ops_per_expert_layer_in_node
        changed = changed.changed(ops_per_expert_layer_in_rack=launches)
    return changed
