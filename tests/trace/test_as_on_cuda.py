"""A traced step does what CUDA does where a CPU does something else: optimizers, autocast, attention, dropout."""

import pytest

torch = pytest.importorskip("torch")

from shardwise.run.trace.capture import traced  # noqa: E402
from shardwise.run.trace.events import AttentionCall, Pass  # noqa: E402

HEAD = "import torch\nimport torch.nn.functional as F\nimport torch.distributed as dist\nfrom torch import nn\n"


def captured(tmp_path, step, *, build="return nn.Linear(64, 64)", world=1, imports=""):
    lines = [f"    {line}" for line in step.splitlines()]
    text = [HEAD, imports, "def build():", *(f"    {line}" for line in build.splitlines()), "def step(model):", *lines]
    path = tmp_path / "own.py"
    path.write_text("\n".join(text))
    return traced(path, world)


def names(found) -> list[str]:
    return [event.name for event in found.events]


def works(found, name):
    return [event.work for event in found.events if event.name == name]


def test_an_optimizer_goes_over_lists_and_holds_a_temporary_of_each(tmp_path) -> None:
    found = captured(
        tmp_path,
        "model.step_with(torch.ones(2, 64))",
        build="m = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])\n"
        "adam = torch.optim.AdamW(m.parameters())\n"
        "def step_with(x):\n    m(x).sum().backward(); adam.step(); adam.zero_grad()\n"
        "m.step_with = step_with\nreturn m",
    )
    assert names(found).count("_foreach_sqrt") == 1
    whole = 4 * (64 * 64 + 64) * 4
    assert works(found, "_foreach_sqrt")[0].bytes == 2 * whole
    now = peak = 0
    for held, change in found.changes:
        now += change if held.kind == "working" else 0
        peak = max(peak, now)
    assert peak >= whole


AUTOCAST = 'x = torch.ones(4, 64, dtype=torch.bfloat16)\nwith torch.autocast("cuda", torch.bfloat16):\n    '


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        ("F.layer_norm(x, (64,))", "float32"),
        ("torch.pow(x, 3.0)", "float32"),
        ("torch.softmax(x, -1)", "float32"),
        ("torch.softmax(x, -1, dtype=torch.bfloat16)", "bfloat16"),
        ("x.sum(-1)", "float32"),
        ("F.gelu(x)", "bfloat16"),
        ("x.mean(-1)", "bfloat16"),
        ("x.norm(dim=-1)", "float32"),
        ("F.interpolate(x[None, None], scale_factor=2.0)", "float32"),
    ],
)
def test_autocast_widens_what_cuda_widens(call, dtype, tmp_path) -> None:
    captured(tmp_path, f"{AUTOCAST}y = {call}\nassert y.dtype is torch.{dtype}, y.dtype")


def test_the_loss_of_narrow_logits_is_narrow_until_it_is_picked(tmp_path) -> None:
    found = captured(tmp_path, f"{AUTOCAST}F.cross_entropy(x, torch.zeros(4, dtype=torch.int64))")
    assert works(found, "_log_softmax")[0].bytes == 2 * 4 * 64 * 2


ATTEND = "q, k, v = (torch.ones(2, 4, 128, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))\n"


@pytest.mark.parametrize(
    ("settings", "causal", "masked", "drops"),
    [
        ("is_causal=True", True, False, False),
        ("", False, False, False),
        ("attn_mask=torch.ones(128, 128, dtype=torch.bool)", False, True, False),
        ("is_causal=True, dropout_p=0.1", True, False, True),
    ],
)
def test_attention_is_one_kernel_each_way(settings, causal, masked, drops, tmp_path) -> None:
    found = captured(tmp_path, f"{ATTEND}F.scaled_dot_product_attention(q, k, v, {settings}).sum().backward()")
    calls = [event.work for event in found.events if isinstance(event.work, AttentionCall)]
    assert [call.backward for call in calls] == [False, True]
    assert all((call.causal, call.masked, call.drops) == (causal, masked, drops) for call in calls)


@pytest.mark.parametrize(
    "call",
    ["F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(128, 128, requires_grad=True).t())",
     "F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], is_causal=True)"],
)  # fmt: skip
def test_attention_that_no_kernel_takes_writes_its_scores(call, tmp_path) -> None:
    found = captured(tmp_path, f"{ATTEND}{call}")
    assert not [event for event in found.events if isinstance(event.work, AttentionCall)]
    assert any(event.name == "_softmax" for event in found.events)


def test_dropout_keeps_a_byte_an_element(tmp_path) -> None:
    found = captured(tmp_path, "F.dropout(torch.ones(64, 64), 0.1)")
    assert works(found, "native_dropout") == [Pass(64 * 64 * 9, "dropout", 64 * 64)]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("x + y", "stream"),
        ("x * torch.ones(64)", "broadcast"),
        ("x * y.to(torch.bfloat16)", "mixed"),
        ("x * torch.tensor(2.0)", "stream"),
        ("x * torch.tensor(2.0, device='cuda')", "broadcast"),
        ("-x[:, :32]", "strided"),
        ("x.t().contiguous()", "turned"),
        ("x.to(torch.bfloat16).float()", "widened"),
        ("torch.zeros_like(x)", "fill"),
        ("x.sum(0)", "reduced_columns"),
        ("x.view(8, 8, 64).sum((0, 2))", "reduced_planes"),
        ("torch.where(x > 0, x, y)", "chosen"),
        ("x.cumsum(0)", "summed_down"),
        ("x.gather(1, torch.zeros(64, 8, dtype=torch.int64))", "gathered_in_rows"),
        ("x[:, ::2].contiguous()", "strided"),
        ("torch.cat((x, torch.ones(64, 1)), 1)", "joined_unevenly"),
        ("x.sum(1)", "reduced"),
        ("torch.cat((x, y))", "joined"),
        ("torch.cat((x[:, :32], y), 1)", "joined_pieces"),
    ],
)
def test_a_pass_is_priced_by_the_way_it_moves(call, kind, tmp_path) -> None:
    found = captured(tmp_path, f"x, y = torch.ones(64, 64), torch.ones(64, 64)\n{call}")
    assert found.events[-1].work.kind == kind


def test_a_router_picks_every_expert_equally_often(tmp_path) -> None:
    found = captured(
        tmp_path,
        "x = torch.randn(64, 16)\n"
        "chosen = torch.topk(x, 2, -1)[1]\n"
        "hot = F.one_hot(chosen, 16).permute(2, 1, 0)\n"
        "for expert in (hot.sum((-1, -2)) > 0).nonzero():\n"
        "    place, token = torch.where(hot[expert[0]])\n"
        "    assert token.shape == (8,), token.shape\n"
        "rows, _ = torch.where(chosen == 3)\n"
        "assert rows.shape == (8,), rows.shape",
    )
    assert sum(event.read_by_host for event in found.events) > 16


@pytest.mark.parametrize("asked", ["mask.all()", "mask.sum() == mask.numel()", "not mask.any()"])
def test_a_mask_is_taken_to_mask_nothing(asked, tmp_path) -> None:
    found = captured(tmp_path, f"mask = torch.randn(4, 4) > 0\nassert {asked}")
    assert found.numbers_read == 1


def test_replicas_sum_their_gradients_in_buckets(tmp_path) -> None:
    found = captured(
        tmp_path,
        "model(torch.ones(8, 1024)).sum().backward()\nmodel.zero_grad()",
        build="m = nn.Sequential(*[nn.Linear(1024, 1024, bias=False) for _ in range(8)])\n"
        "return DDP(m, bucket_cap_mb=9)",
        imports="from torch.nn.parallel import DistributedDataParallel as DDP",
        world=4,
    )
    sums = [message.bytes for _, message in found.messages]
    one = 1024 * 1024 * 4
    assert sum(sums) == 8 * one
    assert sums == [one, 3 * one, 3 * one, one]
    assert {message.op for _, message in found.messages} == {"all_reduce"}


def test_fsdp1_gathers_and_scatters_each_unit(tmp_path) -> None:
    found = captured(
        tmp_path,
        "model(torch.ones(8, 64)).sum().backward()\nmodel.zero_grad()",
        build="units = [nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(2)]\n"
        "policy = ModuleWrapPolicy({nn.Linear})\n"
        "return FSDP(nn.Sequential(*units), auto_wrap_policy=policy, device_id=torch.cuda.current_device())",
        imports="from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "from torch.distributed.fsdp.wrap import ModuleWrapPolicy",
        world=4,
    )
    whole = (64 * 64 + 64) * 4
    sent = [(message.op, event.phase, message.bytes) for event, message in found.messages]
    assert sent.count(("all_gather", "forward", whole)) == 2
    assert sent.count(("reduce_scatter", "backward", whole)) == 2


def test_sums_of_few_columns_wait_longer_than_sums_of_rows(tmp_path) -> None:
    rows, many, few = (
        works(captured(tmp_path, f"{x}.sum({axis})"), "sum")[-1].wait_s
        for x, axis in (("torch.ones(64, 64)", 1), ("torch.ones(64, 4096)", 0), ("torch.ones(4096, 64)", 0))
    )
    assert rows == 0.0 < many < few


@pytest.mark.parametrize(
    ("call", "kernels"),
    [
        ("torch.ones(4, 8, requires_grad=True)[:, :4].sum().backward()", ["fill_", "copy_"]),
        ("torch.ones(4, 8).masked_fill(torch.ones(4, 1, dtype=torch.bool), 0.0)", ["copy_", "masked_fill_"]),
        ("F.layer_norm(torch.ones(8, 4).t(), (8,))", ["copy_", "native_layer_norm"]),
        ("F.conv2d(torch.ones(2, 8, 4, 4), torch.ones(8, 8, 3, 3), torch.ones(8))", ["convolution", "add_"]),
    ],
)
def test_an_operator_is_as_many_kernels_as_cuda_runs(call, kernels, tmp_path) -> None:
    assert names(captured(tmp_path, call))[-len(kernels) :] == kernels


def test_a_part_of_the_channels_is_copied_and_convolved_as_it_lies(tmp_path) -> None:
    made = "x = torch.ones(2, 8, 8, 96)[..., :64].permute(0, 3, 1, 2)\nw = torch.ones(64, 1, 3, 3)"
    found = captured(tmp_path, f"{made}\nF.conv2d(x, w, groups=64)")
    (work,) = works(found, "convolution")
    assert work.last
    assert names(found)[-2:] == ["copy_", "convolution"]


@pytest.mark.parametrize(
    ("channels", "groups", "last", "kind", "turned"),
    [
        (64, 1, True, "dense", False),
        (64, 1, False, "dense", True),
        (3, 1, False, "few_channels", False),
        (64, 64, True, "depthwise", False),
        (64, 2, False, "grouped", True),
        (64, 2, True, "grouped", False),
    ],
)
def test_a_convolution_is_priced_by_its_channels_and_layout(channels, groups, last, kind, turned, tmp_path) -> None:
    layout = ".to(memory_format=torch.channels_last)" if last else ""
    made = f"x = torch.ones(2, {channels}, 8, 8){layout}\nw = torch.ones(64, {channels // groups}, 3, 3){layout}"
    (work,) = works(captured(tmp_path, f"{made}\nF.conv2d(x, w, groups={groups})"), "convolution")
    assert (work.kind, work.turned_bytes > 0) == (kind, turned)
    assert work.flops == 2 * 2 * 6 * 6 * 64 * (channels // groups) * 9


def test_heads_that_share_keys_unsaid_are_plain_and_safe(tmp_path) -> None:
    heads = "q, k = (torch.ones(1, h, 16, 64, dtype=torch.bfloat16, requires_grad=True) for h in (4, 1))"
    found = names(
        captured(tmp_path, f"{heads}\nF.scaled_dot_product_attention(q, k, k, is_causal=True).sum().backward()")
    )
    assert {"_softmax", "isneginf", "all", "where", "_softmax_backward_data"} <= set(found)
    assert "attention" not in found


def test_batch_norm_of_few_channels_has_few_blocks(tmp_path) -> None:
    few, many = (
        works(captured(tmp_path, f"nn.BatchNorm2d({c})(torch.ones({n}, {c}, 32, 32).bfloat16())"), "native_batch_norm")[
            -1
        ]
        for n, c in ((64, 16), (8, 128))
    )
    assert few.elements == 8 * many.elements > 0


def test_rows_that_fall_together_are_added_one_after_the_other(tmp_path) -> None:
    waits = [
        works(captured(tmp_path, f"x = torch.ones({rows}, 8, requires_grad=True)\n{BACK}"), "index_put")[-1].wait_s
        for rows in (1, 4, 16)
    ]
    assert waits[-1] > 0
    assert waits[0] - waits[1] == pytest.approx(4 * (waits[1] - waits[2]))


BACK = "x[torch.zeros(64, dtype=torch.int64)].sum().backward()"


def test_an_optimizer_that_reads_a_norm_waits_for_it(tmp_path) -> None:
    build = "m = nn.Linear(64, 64)\nm.o = torch.optim.{}(m.parameters())\nreturn m"
    step = "model(torch.ones(2, 64)).sum().backward()\nmodel.o.step()\nmodel.o.zero_grad()"
    reads = [
        sum(event.read_by_host for event in captured(tmp_path, step, build=build.format(name)).events)
        for name in ("AdamW", "Adafactor")
    ]
    assert reads[0] == 0 < reads[1]


@pytest.mark.parametrize(("device", "waits"), [("", False), (', device="cuda"', True)])
def test_a_number_made_on_the_host_is_not_waited_for(device, waits, tmp_path) -> None:
    found = captured(tmp_path, f"bool(torch.rand([]{device}) < 0.5)")
    assert any(event.read_by_host for event in found.events) == waits


LAST = "to(memory_format=torch.channels_last)"


@pytest.mark.parametrize(("layout", "copies"), [(LAST, 1), ("contiguous()", 0)])
def test_group_norm_knows_one_layout(layout, copies, tmp_path) -> None:
    """CUDA copies what has its channels next to each other, and gives back what has them apart."""
    step = f"x = torch.ones(2, 32, 8, 8).{layout}\ny = F.group_norm(x, 4)\nassert y.is_contiguous()"
    found = captured(tmp_path, step)
    behind = names(found)[-1 - copies :]
    assert behind == [*["clone"] * copies, "native_group_norm"]


def test_under_autocast_that_copy_is_of_wide_numbers(tmp_path) -> None:
    step = (
        f"x = torch.ones(2, 32, 8, 8, dtype=torch.bfloat16).{LAST}\n"
        'with torch.autocast("cuda", torch.bfloat16):\n    F.group_norm(x, 4)'
    )
    copied = works(captured(tmp_path, step), "clone")[-1]
    assert copied.bytes == 2 * 4 * 2 * 32 * 8 * 8


@pytest.mark.parametrize(("places", "converted", "copies"), [(1, True, 1), (3, True, 1), (1, False, 0), (3, False, 0)])
def test_weights_tell_the_layout_of_a_convolution(places, converted, copies, tmp_path) -> None:
    """cuDNN has one layout for all it reads: filters with channels next to each other, of one place too once somebody
    has converted them, make torch copy an input that has them apart."""
    made = f"w = torch.ones(16, 32, {places}, {places}){'.' + LAST if converted else ''}"
    found = captured(tmp_path, f"{made}\nF.conv2d(torch.ones(2, 32, 8, 8), w)")
    assert names(found)[-1 - copies :] == [*["copy_"] * copies, "convolution"]
