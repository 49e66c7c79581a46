"""The model that runs is the model that was planned: parameters of every family it can run, cut or whole."""

import pytest

torch = pytest.importorskip("torch")
from msgspec.structs import replace  # noqa: E402
from training import BATCH, GPT, LLAMA, MODELS, MOE, SEQ, batch_for, shaped, task_of  # noqa: E402

from shardwise.run.runtime.net.part import TensorPiece  # noqa: E402
from shardwise.run.runtime.parallel.held import held_by  # noqa: E402
from shardwise.run.runtime.train.engine import TrainingEngine  # noqa: E402
from shardwise.run.runtime.train.optimizer import OptimizerSettings  # noqa: E402
from shardwise.run.runtime.train.task import checked  # noqa: E402
from shardwise.spec.arch import model_names, model_of  # noqa: E402
from shardwise.spec.arch.tensors import parameters  # noqa: E402
from shardwise.spec.model import Model  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402


def reduced(model: Model) -> Model:
    """The same form with little in it: one layer of each kind, 32 wide."""
    kinds = []
    for kind in model.kinds:
        attention = kind.attention
        if attention is not None:
            groups = max(8 * attention.kv_heads // attention.heads, 1)
            parts = replace(attention.compressed, out_groups=2) if attention.compressed else None
            attention = replace(
                attention, heads=8, kv_heads=groups, head_dim=8, v_head_dim=0, window=0, compressed=parts
            )
            if attention.latent:
                queries = 24 if attention.q_lora else 0
                attention = replace(attention, kv_heads=8, q_lora=queries, kv_lora=16, rope_dim=4, v_head_dim=6)
        feed_forward = replace(kind.feed_forward, width=48) if kind.feed_forward else None
        experts = kind.experts
        if experts is not None:
            shared = 40 if experts.shared_width else 0
            experts = replace(experts, count=4, top_k=min(experts.top_k, 2), width=24, shared_width=shared)
        kinds.append(replace(kind, attention=attention, feed_forward=feed_forward, experts=experts))
    positions = SEQ if model.positions else 0
    return replace(
        model, hidden=32, vocab=128, kinds=tuple(kinds), pattern=tuple(range(len(kinds))), positions=positions,
        dropout=False,
    )  # fmt: skip


def runs(model: Model) -> bool:
    try:
        checked(task_of(model, Policy(zero=0)))
    except ValueError:
        return False
    return True


CATALOG = {}
for _name in model_names():
    _small = reduced(model_of(_name))
    # what reads features has batches of its own and is tried in test_perceptron.py
    if _small.inputs == "tokens" and runs(_small):
        CATALOG.setdefault(model_of(_name).family, _small)


def engine_of(model: Model) -> TrainingEngine:
    return TrainingEngine(task_of(model, Policy(zero=0)), torch.device("cpu"), OptimizerSettings())


def test_many_families_can_run() -> None:
    assert {"llama", "gpt2", "mixtral", "qwen2", "qwen3", "qwen2_moe", "gemma2"} <= CATALOG.keys()


@pytest.mark.parametrize("family", CATALOG)
def test_counts_and_uses_every_parameter(family: str) -> None:
    model = CATALOG[family]
    engine = engine_of(model)
    held = [h for chunk in engine.chunks for h in held_by(chunk)]
    assert sum(h.parameter.numel() for h in held) == parameters(model)
    engine.accumulate(batch_for(engine, 0))
    unused = [h.piece.name for h in held if not h.parameter.grad.abs().sum() > 0]
    assert unused == []


def test_causal() -> None:
    """A token cannot change the loss of those before it."""
    engine = engine_of(LLAMA)
    tokens, _ = batch_for(engine, 0)(0)
    changed = tokens.clone()
    changed[-1] = (changed[-1] + 1) % LLAMA.vocab
    with torch.no_grad():
        (chunk,) = engine.chunks
        inside = [chunk.embedding(t) for t in (tokens, changed)]
        for layer in chunk.layers.values():
            inside = [layer(x) for x in inside]
    assert torch.equal(inside[0][:-1], inside[1][:-1])
    assert not torch.equal(inside[0][-1], inside[1][-1])


def test_attention_is_torchs() -> None:
    from torch.nn.functional import scaled_dot_product_attention

    from shardwise.run.runtime.net.attention import FlashAttention, PlainAttention

    torch.manual_seed(0)
    q, k, v = (torch.randn(12, 2, heads, 8, requires_grad=True) for heads in (4, 2, 2))
    theirs = scaled_dot_product_attention(
        q.permute(1, 2, 0, 3), k.permute(1, 2, 0, 3), v.permute(1, 2, 0, 3), is_causal=True, enable_gqa=True
    ).permute(2, 0, 1, 3)
    weight = torch.randn_like(theirs)
    expected = torch.autograd.grad((theirs * weight).sum(), (q, k, v))
    at = torch.arange(12)
    for ours in (FlashAttention.apply(q, k, v, at, at), PlainAttention.apply(q, k, v, at)):
        torch.testing.assert_close(ours, theirs)
        found = torch.autograd.grad((ours * weight).sum(), (q, k, v))
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("cuts", [((0, 2, 1),), ((1, 4, 2),), ((0, 2, 1), (2, 2, 0))])
def test_a_piece_lies_where_it_says(cuts: tuple) -> None:
    piece = TensorPiece("x", (4, 8, 6), cuts)
    whole = torch.arange(4 * 8 * 6).view(4, 8, 6)
    part = piece.of(whole)
    place = tuple(slice(o, o + n) for o, n in zip(piece.offsets, piece.local_shape, strict=True))
    assert tuple(part.shape) == piece.local_shape
    assert torch.equal(whole[place], part)


def test_capacity_drops_copies() -> None:
    losses = []
    for capacity in (0.0, 100.0, 0.25):
        engine = TrainingEngine(task_of(MOE, Policy(), capacity=capacity), torch.device("cpu"), OptimizerSettings())
        losses.append(float(engine.accumulate(batch_for(engine, 0))))
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


@pytest.mark.parametrize(
    ("model", "policy", "word"),
    [
        (shaped("three", heads=12, hidden=48, kv_heads=3), Policy(tp=2), "key/value heads"),
        (LLAMA, Policy(tp=16), "tp 16 must divide 8 heads"),
        (LLAMA, Policy(offload="activations"), "offload"),
        (LLAMA, Policy(dp=3), "global batch 4 is not a multiple of dp 3"),
        (MOE, Policy(tp=2, sp=False), "sp"),
        (model_of("deepseek-v3"), Policy(), "model"),
    ],
)
def test_refuses_with_the_field(model: Model, policy: Policy, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        checked(task_of(model, policy))


def test_refuses_shards_over_ranks_that_hold_other_experts() -> None:
    task = task_of(MOE, Policy(dp=12, ep=4, zero=3, shard_group=2))
    with pytest.raises(ValueError, match="shard-group: 2 does not divide the 3 ranks that hold an expert"):
        checked(replace(task, job=replace(task.job, global_batch=12)))


def test_batches_are_the_models() -> None:
    assert min(m.vocab for m in MODELS.values()) == 128
    assert BATCH % 4 == 0


@pytest.mark.parametrize(
    ("model", "policy", "cuts", "word"),
    [
        (LLAMA, Policy(cp=8), {"context_parallel": "ulysses"}, "context-parallel"),
        (GPT, Policy(tp=2), {"embedding": "broadcast"}, "embedding"),
        (MODELS["mqa"], Policy(tp=2), {"attention_split": "gather-qk"}, "attention-split"),
        (MODELS["mla"], Policy(tp=2), {"attention_split": "gather-qk"}, "latent"),
    ],
)
def test_cuts_that_do_not_go_together(model: Model, policy: Policy, cuts: dict, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        checked(task_of(model, policy, cuts=cuts))
