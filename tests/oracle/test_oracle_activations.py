"""torch as judge: what autograd keeps of a layer, tensor by tensor, is our list of saved tensors.

Where torch keeps something our list leaves out (a number or two per token), the difference is written down by name.
"""

import pytest

torch = pytest.importorskip("torch")
import work_sums as ours  # noqa: E402
from fake_ranks import fake_world  # noqa: E402
from reference import Block, Decoder  # noqa: E402
from reference_saved import keeping  # noqa: E402
from reference_split import Split  # noqa: E402

from shardwise.spec.model import Model  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

SHAPES = [(1, 32), (3, 16)]


@pytest.fixture(scope="module")
def groups():
    with fake_world() as found:
        yield found


def kept(model: Model, kind: int, batch: int, seq: int, split: Split | None = None, dtype=torch.bfloat16, **options):
    block = Block(model, model.kinds[kind], split, **options).to(dtype)
    ranks = split.sequence_ranks if split else 1
    x = torch.randn(seq // ranks, batch, model.hidden, dtype=dtype, requires_grad=True)
    with keeping(block) as ledger:
        block(x)
    return ledger.bytes()


def statistics(model: Model, kind: int, tokens: float, shard: float) -> float:
    """Bytes our list leaves out: what a norm keeps per row, and the log-sum of a router's scores.

    `tokens`: whole sequence, `shard`: the part on a sequence-parallel rank.
    """
    layer = model.kinds[kind]
    attention = layer.attention
    assert attention is not None
    # torch's layer norm keeps mean and deviation in the model dtype, RMS norm one fp32 number
    rows = layer.norms * shard * 4
    if attention.latent:
        rows += 4 * shard * (2 if attention.q_lora else 1)
    if attention.qk_norm != "none":
        rows += 4 * tokens * (attention.heads + attention.kv_heads)
    return rows + (4 * shard if layer.experts else 0)


def expected(model: Model, kind: int, policy: Policy, seq: int, **options) -> dict[str, float]:
    work = ours.work(model, policy, seq, **options)
    tokens = float(policy.micro_batch * seq)
    shard = tokens / (policy.tp if policy.sp else 1)
    found = ours.saved(work.kinds[kind])
    found["statistics"] = statistics(model, kind, tokens, shard)
    experts = model.kinds[kind].experts
    if experts is not None:
        # one fp32 routing weight per copy, kept by the fused activation
        found["routing weights"] = 4 * shard * experts.top_k * ours.number(work.layout.etp)
    return found


MODELS = {
    "gpt": ours.gpt(),
    "gpt without dropout": ours.gpt(hidden=48, heads=3, width=100, dropout=False),
    "llama": ours.llama(),
    "multi-head": ours.llama(heads=4, kv_heads=4, head_dim=16),
    "gemma-like": ours.llama(norms=4, head_dim=24),
    "qwen3-like": ours.llama(qk_norm=True),
    "mixtral": ours.mixtral(),
    "shared experts": ours.mixtral(count=4, top_k=1, shared=80),
    "deepseek": ours.deepseek(),
    "deepseek lite": ours.deepseek(q_lora=0),
}


@pytest.mark.parametrize(("batch", "seq"), SHAPES)
@pytest.mark.parametrize("name", MODELS)
def test_layer_with_flash_attention(name: str, batch: int, seq: int) -> None:
    model = MODELS[name]
    for kind in range(len(model.kinds)):
        assert kept(model, kind, batch, seq) == expected(model, kind, Policy(micro_batch=batch), seq)


@pytest.mark.parametrize(("batch", "seq"), SHAPES)
@pytest.mark.parametrize("name", ["gpt", "gpt without dropout", "multi-head", "deepseek"])
def test_layer_with_plain_attention(name: str, batch: int, seq: int) -> None:
    model, policy = MODELS[name], Policy(micro_batch=batch, attention="plain")
    assert kept(model, 0, batch, seq, plain=True) == expected(model, 0, policy, seq)


@pytest.mark.parametrize("name", ["llama", "mixtral", "deepseek"])
def test_layer_in_fp32(name: str) -> None:
    model = MODELS[name]
    for kind in range(len(model.kinds)):
        found = kept(model, kind, 2, 16, dtype=torch.float32)
        assert found == expected(model, kind, Policy(micro_batch=2), 16, precision="fp32")


def test_eager_norm_and_gate() -> None:
    """A stack that fuses neither: the fp32 copy and the normed copy in the model dtype are kept instead of the norm's
    input, and the gate's output in addition. The sum is the same."""
    model, batch, seq = ours.llama(), 2, 16
    stack = ours.PLAIN_STACK.changed(fused_norm=False, fused_glu=False)
    found = kept(model, 0, batch, seq, eager=True)
    want = expected(model, 0, Policy(micro_batch=batch), seq, stack=stack)
    assert found.pop("norm in model dtype") == want.pop("layer input") + want.pop("norm input")
    assert found == want


def test_weighing_expert_outputs_keeps_them() -> None:
    """Routing weights applied behind the experts instead of inside their activation: one more tensor of copies."""
    model, batch, seq = MODELS["mixtral"], 2, 16
    experts = model.kinds[0].experts
    assert experts is not None
    found = kept(model, 0, batch, seq, weigh_output=True)
    assert found.pop("expert output") == 2 * batch * seq * experts.top_k * model.hidden
    assert found == expected(model, 0, Policy(micro_batch=batch), seq)


@pytest.mark.parametrize("sp", [False, True], ids=["tp", "tp+sp"])
@pytest.mark.parametrize("name", ["gpt", "llama", "gemma-like", "deepseek", "deepseek lite"])
def test_tensor_parallel_layer(name: str, sp: bool, groups) -> None:
    model, policy = MODELS[name], Policy(tp=4, sp=sp, micro_batch=2)
    found = kept(model, 0, 2, 32, Split(tp=4, sp=sp, groups=groups))
    assert found == expected(model, 0, policy, 32)


@pytest.mark.parametrize(
    ("split", "policy"),
    [
        ({"ep": 4}, {"dp": 4, "ep": 4}),
        ({"ep": 2, "tp": 2, "sp": True, "etp": 2}, {"tp": 2, "dp": 2, "ep": 2, "etp": 2}),
        ({"ep": 4, "tp": 2, "sp": True}, {"tp": 2, "dp": 2, "ep": 4, "etp": 1}),
        ({"tp": 2, "sp": True, "etp": 2}, {"tp": 2}),
    ],
    ids=["ep", "ep x etp", "ep over tp", "etp"],
)
def test_expert_parallel_layer(split: dict, policy: dict, groups) -> None:
    model = MODELS["mixtral"]
    found = kept(model, 0, 2, 32, Split(groups=groups, **split))
    want = expected(model, 0, Policy(micro_batch=2, **policy), 32)
    assert found == want


def test_ends() -> None:
    """Embedding, final norm and head: log-probabilities in fp32 are what stays of the logits."""
    model, batch, seq = ours.gpt(layers=1), 2, 16
    decoder = Decoder(model).to(torch.bfloat16)
    tokens = torch.randint(0, model.vocab, (seq, batch))
    with keeping(decoder) as ledger:
        decoder.ending(decoder.embedding(tokens), tokens)
    stack = ours.PLAIN_STACK.changed(loss_logit_bytes=4.0)
    work = ours.work(model, Policy(micro_batch=batch), seq, stack=stack)
    found = ledger.bytes()
    assert found.pop("statistics") == 2 * 2 * batch * seq
    # the sum of weights of the mean
    assert sum(found.pop(name) for name in list(found) if name.startswith("unnamed")) == 4
    assert found == ours.saved(work.embedding) | ours.saved(work.head)
    # alive at the fullest moment, not kept: 16-bit logits and their fp32 copy
    alive = ours.saved(ours.work(model, Policy(micro_batch=batch), seq).head)["logits and loss"]
    assert alive - found["logits and loss"] == (2 + 4) * batch * seq * model.vocab


def test_torch_flash_kernel_keeps_the_same() -> None:
    model, batch, seq = ours.llama(), 2, 16
    a = model.kinds[0].attention
    assert a is not None
    q, k, v = (torch.randn(batch, n, seq, a.head_dim, dtype=torch.bfloat16) for n in (a.heads, a.kv_heads, a.kv_heads))
    for tensor in (q, k, v):
        tensor.requires_grad_()
    with keeping(torch.nn.Module()) as ledger:
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)
    list_ = ours.saved(ours.work(model, Policy(micro_batch=batch), seq).kinds[0])
    assert sum(ledger.bytes().values()) == sum(
        list_[name] for name in ("query, key, value", "attention output", "log-sum-exp")
    )


@pytest.mark.parametrize(
    ("s", "b", "h", "a", "t"), [(2048, 1, 6144, 64, 8), (1024, 4, 12288, 96, 4), (512, 2, 64, 8, 1)]
)
def test_published_formulas(s: int, b: int, h: int, a: int, t: int) -> None:
    """Korthikanti et al. 2022, table 2: bytes of activations per layer."""
    model = ours.gpt(hidden=h, heads=a)

    def layer(**policy) -> tuple[float, ...]:
        work = ours.work(model, Policy(micro_batch=b, attention="plain", **policy), s)
        return tuple(ours.number(x) for x in work.kinds[0].saved_bytes())

    sbh, scores = s * b * h, 5 * a * s * s * b
    assert layer(tp=1) == (34 * sbh + scores, 34 * sbh, 2 * sbh)
    assert layer(tp=t, sp=False) == (10 * sbh + (24 * sbh + scores) / t, 10 * sbh + 24 * sbh / t, 2 * sbh)
    assert layer(tp=t, sp=True) == ((34 * sbh + scores) / t, 34 * sbh / t, 2 * sbh / t)


def test_llama_in_closed_form() -> None:
    """Grouped queries and a gated feed-forward: 4 x hidden, 2 x queries, 2 x keys, 3 x width, and the log-sum-exp."""
    model, tokens = ours.llama(hidden=128, heads=8, kv_heads=2, head_dim=16, width=344), 64.0
    found = sum(ours.saved(ours.work(model, Policy(), 64).kinds[0]).values())
    assert found == 2 * tokens * (4 * 128 + 2 * 128 + 2 * 32 + 3 * 344) + 4 * tokens * 8
