"""torch as judge of models that are tuned: what is trained, kept and computed is what our lists say."""

import pytest

torch = pytest.importorskip("torch")
import work_sums as ours  # noqa: E402
from reference import Block, Moe  # noqa: E402
from reference_saved import keeping  # noqa: E402
from reference_tuned import ATTENTION, MLP, TunedBlock, TunedDecoder  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from shardwise.spec.arch.tuned import trained_parameters, tuned  # noqa: E402
from shardwise.spec.job import PRECISIONS, Job  # noqa: E402
from shardwise.spec.model import Model  # noqa: E402
from shardwise.spec.policy import Policies, Policy  # noqa: E402
from shardwise.spec.tuning import Tuning, tuning_of  # noqa: E402
from shardwise.step.estimate.memory import memory_of  # noqa: E402
from shardwise.step.estimate.mfu import conventions  # noqa: E402
from shardwise.work import Work, work_of  # noqa: E402
from shardwise.work.case import training_of  # noqa: E402

MODEL = ours.llama(layers=3)
RANK, BATCH, SEQ = 4, 2, 16
TARGETS = {
    "all": (*ATTENTION, *MLP),
    "attention": ATTENTION,
    "mlp": MLP,
    "q_proj,v_proj": ("q_proj", "v_proj"),
    "o_proj,down_proj": ("o_proj", "down_proj"),
    "gate_proj": ("gate_proj",),
}
FLASH_BACKWARD = 2.5


def lora(targets: str, method: str = "lora", freeze: str | None = None) -> Tuning:
    found = tuning_of(f"{method},rank={RANK},targets={targets}", freeze)
    assert found is not None
    return found


def tuned_work(
    tuning: Tuning | None, model: Model = MODEL, precision: str = "bf16", policy: Policy | None = None
) -> Work:
    job = Job(seq=SEQ, global_batch=BATCH, precision=PRECISIONS[precision], tuning=tuning)
    one = Policies.of([policy or Policy(micro_batch=BATCH, zero=0)])
    return work_of(training_of(model, job, ours.PLAIN_STACK), one, every_stage=True)


def kept(targets: str, magnitudes: bool, *, lowest: bool) -> dict[str, int]:
    block = TunedBlock(MODEL, MODEL.kinds[0], TARGETS[targets], RANK, magnitudes).to(torch.bfloat16)
    for name, parameter in block.named_parameters():
        parameter.requires_grad_(name.rpartition(".")[2] in ("a", "b", "magnitude"))
    x = torch.randn(SEQ, BATCH, MODEL.hidden, dtype=torch.bfloat16, requires_grad=not lowest)
    with keeping(block) as ledger:
        block(x)
    return {name: size for name, size in ledger.bytes().items() if name != "statistics"}


@pytest.mark.parametrize("method", ["lora", "dora"])
@pytest.mark.parametrize("targets", TARGETS)
def test_what_a_layer_keeps(targets: str, method: str) -> None:
    """A frozen matrix keeps no input; an adapter keeps it and its own middle; all others keep what they kept."""
    layer = tuned_work(lora(targets, method)).kinds[1]
    assert kept(targets, method == "dora", lowest=False) == ours.saved(layer)


@pytest.mark.parametrize("targets", ["all", "attention", "q_proj,v_proj"])
def test_the_first_layer_keeps_no_input_for_a_gradient_nobody_asks_for(targets: str) -> None:
    """Ours has the input in its list all the same: a layer that recomputes keeps it."""
    mine = ours.saved(tuned_work(lora(targets)).kinds[0])
    del mine["layer input"]
    assert kept(targets, False, lowest=True) == mine


def gradient_flops(work: Work) -> float:
    """Of the products and attention, forward and backward, through the whole model."""
    total = 0.0
    parts = [work.kinds[kind] for kind in work.model.pattern] + [work.head]
    for part in parts:
        for gemm in part.gemms:
            passes = 1 + gemm.input_grad + gemm.weight_grad
            total += 2.0 * passes * ours.number(gemm.m) * ours.number(gemm.n) * ours.number(gemm.k)
        total += (1.0 if part.forward_only else 1.0 + FLASH_BACKWARD) * ours.square_flops(part)
    return total


def counted_flops(decoder: TunedDecoder) -> int:
    tokens = torch.zeros(SEQ, BATCH, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        decoder(tokens).backward()
    return counter.get_total_flops()


@pytest.mark.parametrize(("targets", "first"), [("all", 0), ("attention", 0), ("q_proj,v_proj", 0), ("all", 2)])
def test_what_adapters_compute(targets: str, first: int) -> None:
    tuning = lora(targets, freeze=f"first={first}" if first else None)
    assert counted_flops(TunedDecoder(MODEL, TARGETS[targets], RANK, first=first)) == gradient_flops(tuned_work(tuning))


@pytest.mark.parametrize("first", [1, 2])
def test_what_frozen_layers_compute(first: int) -> None:
    """The norm of the first trained layer needs a gradient, so its products do too."""
    tuning = tuning_of(None, f"embeddings,first={first}")
    assert counted_flops(TunedDecoder(MODEL, first=first)) == gradient_flops(tuned_work(tuning))


@pytest.mark.parametrize(
    "tuning", [lora("all"), lora("q_proj,v_proj"), lora("all", freeze="first=2"), tuning_of(None, "embeddings,first=1")]
)
def test_mfu_counts_what_the_products_need(tuning: Tuning) -> None:
    work = tuned_work(tuning)
    flops = next(c.flops_per_token for c in conventions(work.model, SEQ) if c.key == "full_square")
    again = sum(
        (FLASH_BACKWARD - 2.0) * ours.square_flops(part)
        for part in (work.kinds[kind] for kind in work.model.pattern)
        if not part.forward_only
    )
    assert flops * SEQ * BATCH == pytest.approx(gradient_flops(work) - again, rel=1e-12)


@pytest.mark.parametrize(("method", "targets"), [("lora", "all"), ("dora", "all"), ("lora", "q_proj,v_proj")])
def test_parameters_gradients_and_states(method: str, targets: str) -> None:
    decoder = TunedDecoder(MODEL, TARGETS[targets], RANK, magnitudes=method == "dora")
    optimizer = torch.optim.AdamW(p for p in decoder.parameters() if p.requires_grad)
    decoder(torch.zeros(SEQ, BATCH, dtype=torch.int64)).backward()
    optimizer.step()
    moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    held = {
        "parameters": sum(p.nbytes for p in decoder.parameters()),
        "gradients": sum(p.grad.nbytes for p in decoder.parameters() if p.grad is not None),
        "optimizer": sum(moment.nbytes for moment in moments),
    }
    tuning = lora(targets, method)
    memory = memory_of(tuned_work(tuning, precision="fp32"))
    assert {kind: float(memory.kinds[kind][0, 0]) for kind in held} == held
    assert trained_parameters(tuned(MODEL, tuning)) == sum(p.numel() for p in decoder.parameters() if p.requires_grad)


def test_activations_of_a_whole_model() -> None:
    decoder = TunedDecoder(MODEL, TARGETS["all"], RANK).to(torch.bfloat16)
    with keeping(decoder) as ledger:
        decoder(torch.zeros(SEQ, BATCH, dtype=torch.int64))
    kept_by_torch = ledger.bytes()
    work = tuned_work(lora("all"))
    named = {name: size for part in work.kinds for name, size in ours.saved(part).items()}
    one = BATCH * SEQ * MODEL.hidden * 2
    mine = sum(sum(ours.saved(work.kinds[kind]).values()) for kind in MODEL.pattern and work.model.pattern)
    theirs = sum(size for name, size in kept_by_torch.items() if name in named)
    assert theirs == mine - one, "the first layer's input, as above"
    assert kept_by_torch["final norm"] == ours.saved(work.head)["final norm"] == one


FAMILIES = {
    "gpt": ours.gpt(),
    "llama": ours.llama(),
    "gemma-like": ours.llama(norms=4, head_dim=24),
    "qwen3-like": ours.llama(qk_norm=True),
    "mixtral": ours.mixtral(),
    "shared experts": ours.mixtral(count=4, top_k=1, shared=80),
    "deepseek": ours.deepseek(),
}


@pytest.mark.parametrize(("name", "plain"), [*((name, False) for name in FAMILIES), ("gpt", True), ("deepseek", True)])
def test_frozen_layers_that_a_gradient_passes(name: str, plain: bool) -> None:
    """All weights of a layer frozen, its input not: norms, attention, activations and routing keep what they need."""
    model = FAMILIES[name]
    policy = Policy(micro_batch=BATCH, zero=0, attention="plain" if plain else "flash")
    work = tuned_work(tuning_of(None, f"first={model.layers}"), model, policy=policy)
    for kind, layer in enumerate(work.kinds):
        block = Block(model, model.kinds[kind], plain=plain).to(torch.bfloat16).requires_grad_(False)
        x = torch.randn(SEQ, BATCH, model.hidden, dtype=torch.bfloat16, requires_grad=True)
        with FlopCounterMode(display=False) as counter, keeping(block) as ledger:
            out = block(x).float().sum()
            (out + block.inner.extra_loss if isinstance(block.inner, Moe) else out).backward()
        attention = model.kinds[kind].attention
        assert attention is not None
        wide = (3 * attention.head_dim + 2 * attention.value_dim) / (attention.head_dim + attention.value_dim)
        squares = (1 + (2 if plain else wide)) * ours.square_flops(layer)
        assert counter.get_total_flops() == pytest.approx(2 * ours.product_flops(layer) + squares, rel=1e-12)
        small = ("statistics", "routing weights")
        theirs = {name: size for name, size in ledger.bytes().items() if name not in small}
        assert theirs == ours.saved(layer)
