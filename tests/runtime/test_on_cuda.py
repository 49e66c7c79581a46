"""On a GPU: kernels against the arithmetic they stand for, and losses against the CPU's."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
from training import GPT, LLAMA, shaped, task_of  # noqa: E402

from shardwise.run.runtime.device import measured_on_device  # noqa: E402
from shardwise.run.runtime.net.attention import FlashAttention  # noqa: E402
from shardwise.run.runtime.net.device_attention import kernel_backward, kernel_forward  # noqa: E402
from shardwise.run.runtime.net.ring import RingAttention  # noqa: E402
from shardwise.run.runtime.train.loop import Trainer  # noqa: E402
from shardwise.run.runtime.train.task import TrainingOrder, TrainingSettings  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402


def apart(a, b) -> float:
    return float((a.float() - b.float()).norm() / b.float().norm())


@pytest.mark.parametrize("batch", [1, 3])
def test_the_attention_kernel_computes_attention(batch: int) -> None:
    q = torch.randn(256, batch, 8, 64, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(256, batch, 2, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    at = torch.arange(256, device="cuda")
    wide = [x.float().requires_grad_() for x in (q, k, v)]
    reference = FlashAttention.apply(*wide, at, at)
    grad = torch.randn_like(reference)
    reference.backward(grad)
    out, lse, how = kernel_forward(q, k, v, causal=True)
    found = kernel_backward(grad.to(q.dtype), q, k, v, out, lse, how)
    assert apart(out, reference.detach()) < 1e-2
    for mine, theirs in zip(found, wide, strict=True):
        assert apart(mine, theirs.grad) < 1e-2


class Passing:
    """Ranks are threads of this process and hand each other their blocks."""

    def __init__(self, size: int) -> None:
        self.boxes = {(index, step): Queue() for index in range(size) for step in (1, -1)}

    def passed_on(self, x, group, step: int):
        torch.cuda.synchronize()
        self.boxes[(group.index + step) % group.size, step].put(x)
        return self.boxes[group.index, step].get(timeout=60).clone()


class Context(SimpleNamespace):
    def save_for_backward(self, *tensors) -> None:
        self.saved_tensors = tensors


@pytest.mark.parametrize("size", [2, 4])
def test_the_ring_over_kernels_computes_attention(size: int) -> None:
    length = 256 * size
    q = torch.randn(length, 2, 8, 64, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(length, 2, 2, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    at = torch.arange(length, device="cuda")
    wide = [x.float().requires_grad_() for x in (q, k, v)]
    reference = FlashAttention.apply(*wide, at, at)
    grad = torch.randn_like(reference)
    reference.backward(grad)
    pieces = at.view(2 * size, -1)
    comm = Passing(size)

    def rank(index: int):
        mine = torch.cat([pieces[index], pieces[-1 - index]])
        context, group = Context(), SimpleNamespace(size=size, index=index)
        out = RingAttention.forward(context, q[mine], k[mine], v[mine], comm, group)
        gradients = RingAttention.backward(context, grad[mine].to(q.dtype))[:3]
        assert all(how is not None for how in context.hows.values()), "no kernel ran"
        return mine, out, gradients

    with ThreadPoolExecutor(size) as ranks:
        for mine, out, gradients in ranks.map(rank, range(size)):
            assert apart(out, reference.detach()[mine]) < 1e-2
            for found, whole in zip(gradients, wide, strict=True):
                assert apart(found, whole.grad[mine]) < 2e-2


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-pure"])
@pytest.mark.parametrize("model", [LLAMA, GPT], ids=lambda m: m.name)
def test_losses_are_the_cpus(model, precision: str) -> None:
    def losses(device: str, precision: str) -> list[float]:
        order = TrainingOrder(
            task=task_of(model, Policy(), precision), settings=TrainingSettings(steps=5, device=device)
        )
        return [line.loss for line in Trainer(order, torch.device(device)).run().lines]

    assert losses("cuda", precision) == pytest.approx(losses("cpu", "fp32"), rel=1e-5 if precision == "fp32" else 1e-2)


def test_a_rank_of_a_pretended_world_runs_its_kernels() -> None:
    policy = Policy(tp=2, cp=2, pp=2, dp=2, zero=1)
    wide = shaped("wide heads", hidden=512, ffn=1024)
    order = TrainingOrder(task=task_of(wide, policy, "bf16"), settings=TrainingSettings(steps=100, device="cuda"))
    found = measured_on_device(order, 2, rank=8)
    assert found.kernels_s > 0
    assert found.peak_bytes > 0


def test_ranks_that_share_the_gpu_train_as_one_does() -> None:
    shared = Path(__file__).parents[2] / "benchmarks" / "shared_gpu.py"
    # in a process of its own: ranks are forked, and a CUDA context does not survive that
    done = subprocess.run([sys.executable, shared, "--json", "--parts", "axes,timeout"], capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["plans"] == found["losses_equal"] == found["bytes_equal"] > 0, done.stderr
    assert found["parts"]["timeout"]["names_rank_1"], found["parts"]["timeout"]
