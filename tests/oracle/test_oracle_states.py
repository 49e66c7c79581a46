"""torch as judge: bytes of weights, gradients and optimizer moments of a real training step, and DDP's traffic."""

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
import work_sums as ours  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from priced import priced  # noqa: E402
from reference import Decoder  # noqa: E402
from reference_saved import keeping  # noqa: E402

from shardwise.estimate.memory import memory_of  # noqa: E402
from shardwise.spec.job import OPTIMIZERS, PRECISIONS, Job  # noqa: E402
from shardwise.spec.model import Model  # noqa: E402
from shardwise.spec.policy import Policies, Policy  # noqa: E402
from shardwise.work import work_of  # noqa: E402

SEQ = 16
MODELS = {
    "gpt": ours.gpt(),
    "llama": ours.llama(),
    "mixtral": ours.mixtral(shared=48),
    "deepseek": ours.deepseek(),
}
WEIGHTS = {"fp32": torch.float32, "autocast": torch.float32, "bf16-pure": torch.bfloat16}
STEPS = {
    "adamw": (torch.optim.AdamW, {}, ("exp_avg", "exp_avg_sq")),
    "sgd-m": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, ("momentum_buffer",)),
    "sgd": (torch.optim.SGD, {"lr": 0.1}, ()),
}


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
    job = Job(seq=SEQ, global_batch=1, precision=PRECISIONS[precision], optimizer=OPTIMIZERS[optimizer])
    held = memory_of(work_of(model, job, Policies.of([Policy(zero=0)]), ours.PLAIN_STACK, every_stage=True)).kinds
    parameters = list(decoder.parameters())
    assert held["parameters"].max() == size(parameters)
    assert held["gradients"].max() == size(p.grad for p in parameters)
    assert held["optimizer"].max() == size(s[m] for s in stepper.state.values() for m in STEPS[optimizer][2])
    # besides: one fp32 step counter per tensor, which we leave out
    rest = {key for state in stepper.state.values() for key in state} - set(STEPS[optimizer][2])
    assert rest <= {"step"}


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_autocast_activations(name: str) -> None:
    """fp32 residual stream, 16-bit products; a 16-bit copy of every weight that is multiplied by lives until backward."""
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
