"""torch as judge: collectives of hand-written parallel layers on a fake process group are those in our work lists."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
import work_sums as ours  # noqa: E402
from fake_ranks import Recorder, fake_world  # noqa: E402
from reference import Block, Decoder, Moe  # noqa: E402
from reference_kernels import FlashAttention  # noqa: E402
from reference_split import Split  # noqa: E402

from shardwise.spec.model import Model  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

MODELS = {
    "gpt": ours.gpt(),
    "llama": ours.llama(),
    "gemma-like": ours.llama(norms=4, head_dim=24),
    "shared experts": ours.mixtral(count=4, top_k=1, shared=80),
    "deepseek": ours.deepseek(),
    "deepseek lite": ours.deepseek(q_lora=0),
}
BATCH, SEQ = 2, 32
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
Calls = Counter[tuple[str, float]]


@pytest.fixture(scope="module")
def groups():
    with fake_world() as found:
        yield found


def layer_calls(model: Model, kind: int, split: Split, dtype=torch.bfloat16) -> tuple[Calls, Calls]:
    block = Block(model, model.kinds[kind], split).to(dtype)
    x = torch.randn(SEQ // split.sequence_ranks, BATCH, model.hidden, dtype=dtype, requires_grad=True)
    with Recorder() as forward:
        y = block(x)
        loss = y.float().sum() + (block.inner.extra_loss if isinstance(block.inner, Moe) else 0.0)
    with Recorder() as backward:
        loss.backward()
    return forward.calls, backward.calls


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("sp", [False, True], ids=["tp", "tp+sp"])
@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_tensor_parallel_layer(name: str, precision: str, sp: bool, tp: int, groups) -> None:
    model = MODELS[name]
    work = ours.work(model, Policy(tp=tp, sp=sp, micro_batch=BATCH, etp=1), SEQ, precision=precision)
    for kind, layer in enumerate(work.kinds):
        if model.kinds[kind].experts is not None and not sp:
            continue  # routed experts split the tokens of a tp group, which needs sequence parallelism
        forward, backward = layer_calls(model, kind, Split(tp=tp, sp=sp, groups=groups), DTYPES[precision])
        assert forward == ours.collectives(layer, "forward")
        assert backward == ours.collectives(layer, "backward")


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_counts_per_layer(name: str, groups) -> None:
    """Megatron's numbers: 2 + 2 all-reduces; or 2 + 4 all-gathers and 2 + 2 reduce-scatters of the whole activation."""
    whole = 2.0 * BATCH * SEQ * MODELS[name].hidden
    forward, backward = layer_calls(MODELS[name], 0, Split(tp=4, groups=groups))
    assert forward == backward == {("all_reduce", whole): 2}
    forward, backward = layer_calls(MODELS[name], 0, Split(tp=4, sp=True, groups=groups))
    assert forward == {("all_gather", whole): 2, ("reduce_scatter", whole): 2}
    assert backward == {("all_gather", whole): 4, ("reduce_scatter", whole): 2}


def test_recorder_agrees_with_torch(groups) -> None:
    from torch.distributed.tensor.debug import CommDebugMode

    model = MODELS["llama"]
    block = Block(model, model.kinds[0], Split(tp=4, sp=True, groups=groups)).to(torch.bfloat16)
    x = torch.randn(SEQ // 4, BATCH, model.hidden, dtype=torch.bfloat16, requires_grad=True)
    with CommDebugMode() as debug:
        block(x).float().sum().backward()
    recorded = layer_calls(model, 0, Split(tp=4, sp=True, groups=groups))
    assert debug.get_total_counts() == sum(sum(calls.values()) for calls in recorded)


@pytest.mark.parametrize(
    ("split", "policy"),
    [
        ({"ep": 4}, {"dp": 4, "ep": 4}),
        ({"ep": 8}, {"dp": 16, "ep": 8}),
        ({"ep": 2, "tp": 2, "sp": True, "etp": 2}, {"tp": 2, "dp": 2, "ep": 2, "etp": 2}),
        ({"ep": 4, "tp": 4, "sp": True}, {"tp": 4, "dp": 1, "ep": 4, "etp": 1}),
        ({"tp": 2, "sp": True, "etp": 2}, {"tp": 2}),
    ],
    ids=["ep", "ep over half of dp", "ep x etp", "ep over tp", "etp"],
)
@pytest.mark.parametrize("precision", DTYPES)
def test_expert_parallel_layer(split: dict, policy: dict, precision: str, groups) -> None:
    model = ours.mixtral()
    forward, backward = layer_calls(model, 0, Split(groups=groups, **split), DTYPES[precision])
    layer = ours.work(model, Policy(micro_batch=BATCH, **policy), SEQ, precision=precision).kinds[0]
    assert forward == ours.collectives(layer, "forward")
    assert backward == ours.collectives(layer, "backward")
    if split == {"ep": 4}:
        sent = DTYPES[precision].itemsize * BATCH * SEQ * 2 * model.hidden
        assert forward == backward == {("all_to_all", sent): 2}


@pytest.mark.parametrize("sp", [False, True], ids=["tp", "tp+sp"])
@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_ends(name: str, precision: str, sp: bool, groups) -> None:
    model = MODELS[name]
    decoder = Decoder(model, Split(tp=4, sp=sp, groups=groups)).to(DTYPES[precision])
    tokens = torch.randint(0, model.vocab, (SEQ, BATCH))
    if model.positions and sp:
        decoder.embedding.positions = None  # the table of positions would have to be cut as well
    work = ours.work(model, Policy(tp=4, sp=sp, micro_batch=BATCH), SEQ, precision=precision)
    with Recorder() as forward:
        x = decoder.embedding(tokens)
    assert forward.calls == ours.collectives(work.embedding, "forward")
    between = x.detach().requires_grad_()
    with Recorder() as forward:
        loss = decoder.ending(between, tokens)
    assert forward.calls == ours.collectives(work.head, "forward")
    with Recorder() as backward:
        loss.backward()
    assert backward.calls == ours.collectives(work.head, "backward")
    with Recorder() as backward:
        x.backward(between.grad)
    assert backward.calls == ours.collectives(work.embedding, "backward")


class Ring(torch.autograd.Function):
    """Ring attention's traffic: forward passes key/value blocks on, backward passes them back beside gradients."""

    @staticmethod
    def forward(ctx, q, kv, ranks, group):
        ctx.save_for_backward(kv)
        ctx.ranks, ctx.group = ranks, group
        block = kv
        for _ in range(ranks - 1):
            block = passed_on(block, group)
        k, v = block.unbind(0)
        return FlashAttention.apply(q, k, v)

    @staticmethod
    def backward(ctx, grad):
        (kv,) = ctx.saved_tensors
        both = torch.stack([kv, kv])
        for _ in range(ctx.ranks - 1):
            both = passed_on(both, ctx.group)
        return grad.transpose(0, 1).contiguous(), both[1], None, None


def passed_on(block, group):
    out = torch.empty_like(block)
    dist.batch_isend_irecv([dist.P2POp(dist.isend, block, 1, group), dist.P2POp(dist.irecv, out, 1, group)])
    return out


@pytest.mark.parametrize("cp", [2, 4])
def test_context_parallel_ring(cp: int, groups) -> None:
    model = ours.llama()
    a = model.kinds[0].attention
    assert a is not None
    part = SEQ // cp
    q = torch.randn(BATCH * a.heads, part, a.head_dim, dtype=torch.bfloat16, requires_grad=True)
    kv = torch.randn(2, BATCH * a.kv_heads, part, a.head_dim, dtype=torch.bfloat16, requires_grad=True)
    with Recorder() as forward:
        y = Ring.apply(q, kv, cp, groups[cp])
    with Recorder() as backward:
        y.float().sum().backward()
    layer = ours.work(model, Policy(cp=cp, micro_batch=BATCH), SEQ).kinds[0]
    assert forward.calls == ours.collectives(layer, "forward")
    assert backward.calls == ours.collectives(layer, "backward")
