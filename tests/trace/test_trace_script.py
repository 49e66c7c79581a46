"""`trace`: a script on a pretended world against the same script on real gloo ranks, and against the planner."""

import json
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.trace.capture import ran, traced  # noqa: E402
from shardwise.run.trace.events import AttentionCall, Capture, Product  # noqa: E402
from shardwise.run.trace.result import result_of  # noqa: E402
from shardwise.spec.arch import model_from_shape  # noqa: E402
from shardwise.spec.job import PRECISIONS, Job  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402
from shardwise.spec.software import stack_of  # noqa: E402
from shardwise.work.case import training_of  # noqa: E402
from shardwise.work.messages import Piece, messages, piecewise  # noqa: E402
from terminal import narrow_terminal, refused, shown  # noqa: E402, F401

EXAMPLES = Path(__file__).parents[2] / "examples"
WORLD = 4
pytestmark = [
    pytest.mark.filterwarnings("ignore:FSDP2-wrapped module"),
    pytest.mark.filterwarnings("ignore:DTensor random"),
    pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning"),
]

PIPELINE = """
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

def build():
    part = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    shape = [torch.empty(2, 16, requires_grad=True)]
    stage = PipelineStage(part, dist.get_rank(), dist.get_world_size(), torch.device("cpu"), input_args=(*shape,),
                          output_args=(*shape,))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda y, target: (y - target).square().mean())
    return schedule, torch.optim.AdamW(part.parameters())

def batch():
    return torch.randn(8, 16), torch.randn(8, 16)

def step(schedule, optimizer, samples):
    first, last = dist.get_rank() == 0, dist.get_rank() == dist.get_world_size() - 1
    schedule.step(*samples[:1] if first else (), **({"target": samples[1]} if last else {}))
    optimizer.step()
    optimizer.zero_grad()
"""
REPLICAS = """
import torch, torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import init_device_mesh

def build():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).cuda()
    replicate(model, mesh=init_device_mesh("cuda", (dist.get_world_size(),)))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

def batch():
    return torch.randn(8, 64, device="cuda")

def step(model, optimizer, x):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
BY_HAND = """
import torch, torch.distributed as dist
from torch import nn

class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(gradient)
        return gradient

def build():
    model = nn.Linear(64, 64 // dist.get_world_size())
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

def batch():
    return torch.randn(8, 64, requires_grad=True)

def step(model, optimizer, x):
    y = model(Split.apply(x))
    parts = [torch.empty_like(y) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, y.detach())
    y.sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, async_op=True).wait()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setenv("SHAPE", "tiny")
    monkeypatch.setenv("TP", "2")


def told(captured: Capture) -> tuple[list[object], int, dict[str, int]]:
    found, _ = result_of(captured, None)
    return [(event.phase, message) for event, message in captured.messages], found.peak_bytes, found.memory_bytes


def compared(path: Path, world: int, tolerance: float, runs: int = 1) -> None:
    """Every rank's messages are those of the real rank, in order; its peak memory is within the tolerance.

    gloo's threads let go of a tensor a moment after it was sent, so a real peak may be too high: of several runs the
    least one counts.
    """
    real = forked(world, lambda _: [told(ran(path)) for _ in range(runs)])
    for rank in range(world):
        sent, peak, kinds = told(traced(path, world, rank))
        assert sent
        assert peak == pytest.approx(min(real_peak for _, real_peak, _ in real[rank]), rel=tolerance)
        for real_sent, _, real_kinds in real[rank]:
            assert sent == real_sent
            assert kinds["parameters"] == real_kinds["parameters"] > 0
            assert kinds["optimizer"] == real_kinds["optimizer"]


@pytest.mark.parametrize("name", ["trace_llama.py", "trace_vit.py"])
@pytest.mark.usefixtures("tiny")
def test_examples_send_and_hold_what_gloo_ranks_do(name) -> None:
    compared(EXAMPLES / name, WORLD, 0.02)


@pytest.mark.usefixtures("tiny")
def test_a_hugging_face_model_sends_what_gloo_ranks_do() -> None:
    """transformers makes an explicit attention mask once it notices tensors without values: a little more memory."""
    pytest.importorskip("transformers", reason="transformers is not installed: no model of it can be traced")
    compared(EXAMPLES / "trace_hf.py", WORLD, 0.03)


@pytest.mark.parametrize(
    ("text", "tolerance"),
    # the optimizer's list of temporaries is the peak, and gloo still holds the last micro-batch it sent
    [(PIPELINE, 0.02), (REPLICAS, 0.0), (BY_HAND, 0.0)],
    ids=["pipeline", "replicas", "by hand"],
)
def test_other_parallelism_is_what_gloo_ranks_do(text, tolerance, tmp_path) -> None:
    path = tmp_path / "own.py"
    path.write_text(text)
    compared(path, 2, tolerance, runs=12)


def test_a_plain_script_is_run_until_its_second_step(tmp_path) -> None:
    path = tmp_path / "plain.py"
    path.write_text("""
import os, torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

if __name__ == "__main__":
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).to("cuda")
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(10**9):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(torch.randn(8, 64, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())
""")
    captured = traced(path, 16)
    sent = Counter((message.op, event.phase) for event, message in captured.messages)
    # the outermost unit keeps its weights from the forward on
    assert sent == {("all_gather", "forward"): 1, ("reduce_scatter", "backward"): 1}
    assert {event.work.dtype for event in captured.events if isinstance(event.work, Product)} == {"bf16"}
    assert captured.numbers_read == 1
    parameters = 2 * (64 * 64 + 64) * 4
    assert result_of(captured, None)[0].memory_bytes["parameters"] == parameters // 16


def test_what_training_loops_have(tmp_path) -> None:
    """A shuffling data loader, accumulation, a compiler, clipping, a fused optimizer, a model left on meta."""
    path = tmp_path / "own.py"
    path.write_text("""
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

def build(world):
    mesh = init_device_mesh("cuda", (world,), mesh_dim_names=("dp",))
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return torch.compile(model), torch.optim.AdamW(model.parameters(), fused=True)

def batch():
    return next(iter(DataLoader(torch.randn(16, 64), batch_size=8, shuffle=True)))

def step(model, optimizer, x):
    for _ in range(2):
        model(x.to("cuda:0")).square().mean().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert norm.full_tensor().item() == 1.0
    optimizer.step()
    optimizer.zero_grad()
""")
    captured = traced(path, 8)
    sent = Counter((message.op, event.phase) for event, message in captured.messages)
    assert sent == {("all_gather", "forward"): 6, ("all_gather", "backward"): 6, ("reduce_scatter", "backward"): 6,
                    ("all_reduce", "optimizer"): 1}  # fmt: skip
    assert captured.compiled
    assert captured.numbers_read == 1
    assert captured.samples == 8
    held = result_of(captured, None)[0].memory_bytes
    assert held["parameters"] == 3 * (64 * 64 + 64) * 4 // 8
    assert held["optimizer"] == pytest.approx(2 * held["parameters"], rel=0.02)


@pytest.mark.usefixtures("tiny")
def test_a_llama_sends_what_the_planner_predicts() -> None:
    """ZeRO-3 and tensor parallelism: the same bytes of every kind, but for what evidence/trace-checks.md lists."""
    captured = traced(EXAMPLES / "trace_llama.py", WORLD)
    sent: Counter[tuple[str, str, str]] = Counter()
    for event, message in captured.messages:
        sent[message.group.name, message.op, event.phase] += message.bytes
    model = model_from_shape("tiny", 2, 64, 4, 2, 192, True, 256, tied=False)
    job = Job(seq=32, global_batch=2, precision=PRECISIONS["fsdp-mixed-reduce32"])
    work = piecewise(training_of(model, job, stack_of("torchtitan")), Policy(dp=2, tp=2, zero=3, sp=True))
    predicted: Counter[tuple[str, str, str]] = Counter()
    for one in messages(work, Piece(0, 0, False, False)):
        predicted[one.axis, one.op, one.phase] += round(one.bytes * one.count)
    # kept from the forward pass by DTensor, gathered once more in the planner's
    again = predicted.pop(("tp", "all_gather", "backward"))
    assert again == 2 * sent.pop(("tp", "all_gather", "backward"))
    # gradients of norms: one message for each norm in the backward pass, one for all in the planner's
    assert predicted.pop(("tp", "all_reduce", "step")) == sent.pop(("tp", "all_reduce", "backward"))
    # clipping: the planner does not count messages that steer
    steering = {("dp", "all_reduce", "optimizer"), ("tp", "all_reduce", "optimizer")}
    assert {key for key in sent if key not in predicted} == steering
    assert {key: sent[key] for key in predicted} == predicted


@pytest.mark.usefixtures("tiny")
def test_flops_are_those_of_the_formula() -> None:
    captured = traced(EXAMPLES / "trace_llama.py", WORLD)
    layers, hidden, heads, kv, ffn, vocab, seq = 2, 64, 4, 2, 192, 256, 32
    matrices = layers * (2 * hidden * hidden + 2 * hidden * kv * hidden // heads + 3 * hidden * ffn) + vocab * hidden
    products = sum(event.work.flops for event in captured.events if isinstance(event.work, Product))
    assert products == 6 * matrices * seq / 2
    square = [e.work.square_flops for e in captured.events if isinstance(e.work, AttentionCall)]
    forward = layers * 4 * seq * seq * hidden / 2
    assert sum(square) == forward + 2.5 * forward


CASES = {
    "no such file": (None, "is no file"),
    "no Python": ("def build(:", "is not Python"),
    "one function": ("def build():\n    return None", "no function `step`"),
    "nothing": ("import torch", "write two steps or more"),
    "raises": ("def build():\n    return None\ndef step(x):\n    y = 1\n    raise KeyError('lr')",
               "line 5, in step: KeyError: 'lr'"),
    "too many arguments": ("def build():\n    return 1\ndef step(a, b, c):\n    pass", "step needs 3 arguments"),
    "values decide": ("import torch\ndef build():\n    return torch.rand(4)\ndef step(x):\n    x[x > 0].sum()",
                      "line 5, in step: the value of a tensor decides"),
    "objects": ("import torch.distributed as dist\ndef build():\n    return 1\n"
                "def step(x):\n    dist.all_gather_object([None] * 4, x)", "all_gather_object sends Python objects"),
    "small world": ("from torch.distributed.device_mesh import init_device_mesh\n"
                    "def build():\n    return init_device_mesh('cuda', (4, 8))\ndef step(m):\n    pass",
                    "write --world 32 or more"),
    "exit": ("import sys\nsys.exit(3)", "ended by itself (3)"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_trouble_is_one_line(case, tmp_path, capsys) -> None:
    text, cure = CASES[case]
    path = tmp_path / "own.py"
    if text is not None:
        path.write_text(text)
    refused(capsys, ["trace", str(path), "--world", "4"], cure)


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ((), "write --world 8"),
        (("--world", "0"), "write a whole number"),
        (("--world", "4", "--rank", "4"), "write 0 to 3"),
        (("--world", "16", "--on", "8xh100"), "write a larger one"),
        (("--world", "4", "--perfetto", "x.json"), "write --on 8xh100"),
        (("--world", "4", "--stack", "nothing"), "stack: 'nothing' is unknown"),
    ],
)
def test_bad_flags_are_one_line(words, cure, tmp_path, capsys) -> None:
    path = tmp_path / "own.py"
    path.write_text(REPLICAS)
    refused(capsys, ["trace", str(path), *words], cure)


@pytest.mark.usefixtures("tiny", "narrow_terminal")
def test_the_page_is_narrow_and_the_json_adds_up(tmp_path, capsys) -> None:
    words = ["trace", str(EXAMPLES / "trace_vit.py"), "--world", "4", "--on", "dgx-h100:16"]
    page = shown(capsys, words)
    assert max(map(len, page.splitlines())) <= 80
    trace = tmp_path / "step.json"
    found = json.loads(shown(capsys, [*words, "--json", "--perfetto", str(trace)]))
    time = found["time"]
    assert sum(time["parts"].values()) == pytest.approx(time["step_s"])
    assert sum(time["exposed"].values()) == pytest.approx(time["parts"]["messages"])
    assert time["low_s"] < time["step_s"] < time["high_s"]
    assert sum(found["memory_bytes"].values()) == found["peak_bytes"]
    assert found["memory_bytes"]["workspace"] == stack_of(time["stack"]).memory.base_bytes
    assert found["flops"]["recompute"] > 0
    assert found["fit"]["fits"]
    events = json.loads(trace.read_text())["traceEvents"]
    lanes = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"kernels", "shard", "replicate"} <= lanes
    assert any(event["name"] == "memory GiB" for event in events)


@pytest.mark.usefixtures("tiny")
def test_a_trace_leaves_torch_as_it_was() -> None:
    before = (torch.cuda.is_available, torch.compile, torch.UntypedStorage.resize_, torch.nn.init.normal_)
    traced(EXAMPLES / "trace_vit.py", 4)
    assert (torch.cuda.is_available, torch.compile, torch.UntypedStorage.resize_, torch.nn.init.normal_) == before
    assert not torch.distributed.is_initialized()
    assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).isfinite().all()


@pytest.mark.slow
def test_eight_billion_parameters_on_a_thousand_ranks(monkeypatch) -> None:
    monkeypatch.setenv("SHAPE", "8b")
    monkeypatch.setenv("TP", "8")
    captured = traced(EXAMPLES / "trace_llama.py", 1024, 1000)
    sent = Counter((message.group.name, message.group.size, message.op, event.phase)
                   for event, message in captured.messages)  # fmt: skip
    assert sent["dp", 128, "all_gather", "forward"] == sent["dp", 128, "reduce_scatter", "backward"] == 34
    assert sent["tp", 8, "all_gather", "forward"] == sent["tp", 8, "reduce_scatter", "backward"] == 65
    found, _ = result_of(captured, None)
    parameters = sum((4096 * (2 * 4096 + 2 * 1024 + 3 * 14336) for _ in range(32)), 2 * 128256 * 4096)
    norms = 65 * 4096
    assert found.memory_bytes["parameters"] == pytest.approx(4 * (parameters / 1024 + norms / 128), rel=1e-3)
    assert 8 * 2**30 < found.peak_bytes < 16 * 2**30
