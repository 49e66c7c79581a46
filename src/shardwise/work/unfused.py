"""Operations around a product that a program may leave to PyTorch, one kernel each.

Bytes for each element of 16 bits, and launches of both passes, as timed on an H200 (evidence/around_experts.py,
evidence/timed/around-experts-h200.csv): up to twice what the operations read and write, since halves of a row and
slices of a gradient are not contiguous.
"""

from shardwise.spec.model import Experts
from shardwise.spec.software import Stack
from shardwise.work.modules import EXPERT_ACTIVATION
from shardwise.work.ops import UnfusedOperations, Value

CLAMP_BYTES, CLAMP_LAUNCHES = (16.0, 32.0), 12.0
BIAS_BYTES, BIAS_LAUNCHES, BIAS_LAUNCHES_PER_EXPERT = (46.0, 59.0), 5.0, 9.0
UP_BIAS_BYTES, UP_BIAS_LAUNCHES, UP_BIAS_LAUNCHES_PER_EXPERT = (14.0, 6.5), 2.0, 3.0
ROTATION_BYTES, ROTATION_LAUNCHES = (52.0, 55.0), 38.0
"""queries and keys turned one after the other"""
MOVED_BYTES = (37.0, 68.5)
"""of the time of three such layers (evidence/moved_tokens.py, evidence/timed/moved-tokens-h200.jsonl: medians of
17.0 and 24.4 ps for each number of a copy, forward and backward, over three ways and four shapes), what sums of copies
leave, at an H200's speed of a copy"""
ATOMIC_ADDS_PER_SM_S = 9.2e8
"""numbers of 16 bits that one multiprocessor adds by index_add: median of five shapes on an H200, 9.1e8 to 9.9e8
(evidence/token_sums.py, evidence/timed/token-sums-h200.jsonl); 8.5e8 by a step on a B300 (whitecircle/halo,
agent-docs/optimization/grouped-gemm.md: 108 ms with 72 such calls)"""


def around_experts(
    experts: Experts, stack: Stack, copies: Value, up: Value, hidden: int, owned: Value, cheap_to_repeat: bool
) -> tuple[UnfusedOperations, ...]:
    """The clamp before the gated activation, and the bias after the down product: times the router's probability, in
    fp32, expert by expert (Megatron-Core, fusions/fused_bias_geglu.py and transformer/moe/experts.py). Or that bias and
    the up product's, the clamp being in the activation's kernel (NeMo AutoModel, components/moe/experts.py)."""
    if stack.experts.expert_biases == "fused":
        return ()
    both = stack.experts.expert_biases == "biases_unfused"
    pieces: tuple[UnfusedOperations, ...] = ()
    if experts.clamped and not both:
        forward, backward = (moved * copies * up for moved in CLAMP_BYTES)
        pieces += (
            UnfusedOperations(
                "clamp",
                forward,
                backward,
                CLAMP_LAUNCHES,
                of_experts=True,
                cheap_to_repeat=cheap_to_repeat,
                repeated_by=EXPERT_ACTIVATION,
            ),
        )
    if experts.bias and both:
        forward, backward = (moved * copies * up for moved in UP_BIAS_BYTES)
        launches = UP_BIAS_LAUNCHES + UP_BIAS_LAUNCHES_PER_EXPERT * owned
        pieces += (UnfusedOperations("expert up bias", forward, backward, launches, of_experts=True),)
    if experts.bias:
        forward, backward = (moved * copies * hidden for moved in BIAS_BYTES)
        launches = BIAS_LAUNCHES + BIAS_LAUNCHES_PER_EXPERT * owned
        pieces += (UnfusedOperations("expert bias", forward, backward, launches, of_experts=True),)
    return pieces


def rotation(elements: Value) -> UnfusedOperations:
    """Queries and keys turned by angles in separate operations: where YaRN scales them too (Megatron-Core,
    models/common/embeddings/rope_utils.py: no fused kernel takes the factor), or where a program fuses no rotation."""
    forward, backward = (moved * elements for moved in ROTATION_BYTES)
    return UnfusedOperations("rotation", forward, backward, ROTATION_LAUNCHES)


def atomic_sums(elements: Value) -> UnfusedOperations:
    """Experts' outputs added to their tokens, and the gradients of a token's copies: rows that several others point to,
    each number of which is read, added to and written back by itself."""
    return UnfusedOperations("sums of copies", 0.0, 0.0, 0.0, atomic_adds=elements)


def moved_by_indices(elements: Value) -> UnfusedOperations:
    """Copies picked, sorted by rank and once more by expert, widened, weighted and brought back (pytorch/torchtitan
    models/moe/moe.py and utils.py; NVIDIA/Megatron-LM core/transformer/moe/moe_utils.py without its fused kernels)."""
    forward, backward = (moved * elements for moved in MOVED_BYTES)
    return UnfusedOperations("copies moved", forward, backward, 0.0)
