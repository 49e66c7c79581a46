"""How a run sends tokens to their experts, by the names of Megatron-Core's --moe-token-dispatcher-type."""

from shardwise.registry import closest
from shardwise.spec.software.load import stack_of
from shardwise.spec.software.stack import Stack

DISPATCH = {"alltoall": "copies", "flex": "once", "deepep": "once", "hybridep": "once", "allgather": "gather"}
"""name -> `ExpertSettings.dispatch`; flex is DeepEP or HybridEP, whichever a program takes"""
SETUP_S = 84e-6
"""`exchange_setup_s` of those that send once. HybridEP on 8 GB200: 308 MB at 615 GB/s with what precedes the kernel, at
738 without (deepseek-ai/DeepEP pull request 420). DeepEP over NVSHMEM, whose messages pass a thread of the host on EFA,
takes 130 us longer than NCCL (awslabs/awsome-distributed-ai, megatron-bridge/qwen3-30b/benchmarks/RESULTS.md)"""
COUNTED_BY_HOST = "megatron-bridge@26.04"
"""whose recipes exchange by a plain all-to-all inside a node: its launches there hold the host's wait for the counts"""


SMS = 24.0
"""multiprocessors of the exchange: moe_deepep_num_sms is 20 unless given, 20 and 24 in recipes, moe_hybridep_num_sms 32
(NVIDIA/Megatron-LM examples/moe_recipes)"""
BESIDE = "megatron-core@hai-llm"
"""whose schedule runs the exchange of one micro-batch under the compute of another"""


def with_dispatcher(stack: Stack, name: str) -> Stack:
    if name not in DISPATCH:
        raise ValueError(f"dispatcher: {name!r} is unknown; {closest(name, list(DISPATCH))}")
    experts = stack.experts
    changed = stack if experts.dispatch == DISPATCH[name] else stack.changed(dispatch=DISPATCH[name])
    if DISPATCH[name] == "once":
        # the same kernels inside a node as beyond it: no plain all-to-all whose counts the host waits for
        own = {"exchange_setup_s": SETUP_S, "ops_per_expert_layer_in_node": -1.0}
        return changed if all(changed.setting(each) == own[each] for each in own) else changed.changed(**own)
    if name != "alltoall":
        return changed
    if changed is not stack and experts.ops_per_expert_layer_in_node < 0:
        counted = stack_of(COUNTED_BY_HOST).experts.ops_per_expert_layer_in_node
        changed = changed.changed(ops_per_expert_layer_in_node=counted)
    # graphs go with HybridEP: here the host launches all of a layer and reads the counts in a rack as in a node
    in_rack = changed.experts.ops_per_expert_layer_in_rack
    return changed if in_rack < 0 else changed.changed(ops_per_expert_layer_in_rack=-1.0)


def beside_another_batch(stack: Stack) -> Stack:
    """The exchange of one micro-batch under the compute of another, forward under backward (Megatron-Core's
    --overlap-moe-expert-parallel-comm, "1F1B"): as much hides as DualPipe does, of which the first and the last of a
    step have nothing beside them."""
    hidden = stack_of(BESIDE).experts.overlap_ep
    return stack.changed(overlap_ep=hidden, overlap_ep_between_nodes=hidden, exchange_sms=SMS)
