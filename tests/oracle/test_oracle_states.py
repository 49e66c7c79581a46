"""torch as judge: bytes of weights, gradients and optimizer moments of a real training step, and DDP's traffic."""

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
import work_sums as ours  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from priced import priced  # noqa: E402
from reference import Decoder, Moe  # noqa: E402
from reference_saved import keeping  # noqa: E402
from reference_split import Split  # noqa: E402

from shardwise.spec.job import PRECISIONS, Job, optimizer_of  # noqa: E402
from shardwise.spec.model import Model  # noqa: E402
from shardwise.spec.policy import Policies, Policy  # noqa: E402
from shardwise.step.estimate.memory import memory_of  # noqa: E402
from shardwise.work import work_of  # noqa: E402
from shardwise.work.case import training_of  # noqa: E402
from shardwise.work.parameters import stage_parameters  # noqa: E402

SEQ = 16
MODELS = {
    "gpt": ours.gpt(),
    "llama": ours.llama(),
    "qwen2-like": ours.llama(kv_heads=2, bias=True),
    "mixtral": ours.mixtral(shared=48),
    "deepseek": ours.deepseek(),
}
WEIGHTS = {"fp32": torch.float32, "autocast": torch.float32, "bf16-pure": torch.bfloat16}
STEPS = {
    "adamw": (torch.optim.AdamW, {}, ("exp_avg", "exp_avg_sq")),
    "sgd-m": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, ("momentum_buffer",)),
    "sgd": (torch.optim.SGD, {"lr": 0.1}, ()),
}


SPLITS = [
    ({"tp": 2}, {"tp": 2}),
    ({"tp": 4}, {"tp": 4, "etp": 1}),
    ({"tp": 8}, {"tp": 8, "etp": 1}),
    ({"ep": 4}, {"dp": 4, "ep": 4}),
    ({"tp": 2, "ep": 4, "etp": 1}, {"tp": 2, "dp": 2, "ep": 4}),
    ({"tp": 2, "ep": 2, "etp": 2}, {"tp": 2, "dp": 2, "ep": 2, "etp": 2}),
]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("split", "policy"), SPLITS)
@pytest.mark.parametrize("name", MODELS)
def test_parameters_of_one_rank(name: str, split: dict, policy: dict, tied: bool) -> None:
    """Weights cut by columns, rows, vocabulary and experts; fewer key/value heads than ranks are copied."""
    model = replace(MODELS[name], tied=tied)
    heads = max(kind.attention.heads for kind in model.kinds if kind.attention)
    if split.get("tp", 1) > heads:
        split, policy = {**split, "tp": heads}, {**policy, "tp": heads}
    if not any(kind.experts for kind in model.kinds):
        split, policy = {"tp": split.get("tp", 1)}, {"tp": policy.get("tp", 1)}
    elif policy == {"tp": 2}:
        split = {"tp": 2, "etp": 2}
    decoder = Decoder(model, Split(**split))
    work = ours.work(model, Policy(**policy), SEQ)
    dense, expert = stage_parameters(work.counts, work.layout, work.stages)
    experts = [
        p for block in decoder.blocks if isinstance(block.inner, Moe) for p in (block.inner.up, block.inner.down)
    ]
    assert expert.sum() == sum(p.numel() for p in experts)
    assert dense.sum() + expert.sum() == sum(p.numel() for p in decoder.parameters())


def size(tensors) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def train(model: Model, precision: str, optimizer: str) -> tuple[Decoder, torch.optim.Optimizer]:
    decoder = Decoder(model).to(WEIGHTS[precision])
    kind, options, _ = STEPS[optimizer]
    stepper = kind(decoder.parameters(), **options)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
        loss = decoder(torch.randint(0, model.vocab, (SEQ, 1)))
    loss.backward()
    stepper.step()
    return decoder, stepper


@pytest.mark.parametrize("optimizer", STEPS)
@pytest.mark.parametrize("precision", WEIGHTS)
@pytest.mark.parametrize("name", MODELS)
def test_states(name: str, precision: str, optimizer: str) -> None:
    model = MODELS[name]
    decoder, stepper = train(model, precision, optimizer)
    job = Job(seq=SEQ, global_batch=1, precision=PRECISIONS[precision], optimizer=optimizer_of(optimizer))
    held = memory_of(
        work_of(training_of(model, job, ours.PLAIN_STACK), Policies.of([Policy(zero=0)]), every_stage=True)
    ).kinds
    parameters = list(decoder.parameters())
    assert held["parameters"].max() == size(parameters)
    assert held["gradients"].max() == size(p.grad for p in parameters)
    assert held["optimizer"].max() == size(s[m] for s in stepper.state.values() for m in STEPS[optimizer][2])
    # besides: one fp32 step counter per tensor, which we leave out
    rest = {key for state in stepper.state.values() for key in state} - set(STEPS[optimizer][2])
    assert rest <= {"step"}


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_autocast_activations(name: str) -> None:
    """fp32 residual stream, 16-bit products; a 16-bit copy of every matrix lives until the backward."""
    model, batch = replace(MODELS[name], pattern=(0,)), 2
    decoder = Decoder(model)
    block = decoder.blocks[0]
    x = torch.randn(SEQ, batch, model.hidden, requires_grad=True)
    with keeping(block) as ledger, torch.autocast("cpu", torch.bfloat16):
        block(x)
    found = ledger.bytes()
    want = ours.saved(ours.work(model, Policy(micro_batch=batch), SEQ, precision="autocast").kinds[0])
    norms = model.kinds[0].norms
    assert found.pop("statistics") == norms * batch * SEQ * 4 * (2 if model.norm == "layer" else 1)
    # the norm's fp32 output is let go; its 16-bit copy is what the product keeps
    casts = {key: found.pop(key) for key in list(found) if key.startswith("unnamed torch.bfloat16")}
    weights = 2 * sum(p.numel() for p in block.parameters() if p.dim() == 2)
    assert sum(casts.values()) == want.pop("norm output") + weights
    assert found == want
    assert weights <= PRECISIONS["autocast"].cast_bytes * sum(p.numel() for p in block.parameters())


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("precision", ["fp32", "bf16-pure"])
@pytest.mark.parametrize("name", MODELS)
def test_ddp_reduces_every_gradient_once(name: str, precision: str) -> None:
    model, reduced = MODELS[name], []

    def hook(_, bucket):
        reduced.append(size([bucket.buffer()]))
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        ddp = torch.nn.parallel.DistributedDataParallel(Decoder(model).to(WEIGHTS[precision]))
        ddp.register_comm_hook(None, hook)
        ddp(torch.randint(0, model.vocab, (SEQ, 1))).backward()
    finally:
        dist.destroy_process_group()
    job = Job(seq=SEQ, global_batch=8, precision=PRECISIONS[precision])
    policy = Policy(dp=8, zero=0, overlap_grad=False)
    charge = priced("all_reduce", model, job, policy, ours.PLAIN_STACK)
    assert charge == {"grad_comm": pytest.approx(sum(reduced), rel=1e-12)}
