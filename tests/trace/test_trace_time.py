"""A traced step in time: what waits for what, what a compiler joins, what torch must still have for tracing."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from shardwise.run.runtime import private  # noqa: E402
from shardwise.run.trace.capture import traced  # noqa: E402
from shardwise.run.trace.compiled import compiled_changes, fused  # noqa: E402
from shardwise.run.trace.events import Capture, CollectiveCall, Pass, ProcessGroup, Product, StepEvent, TensorStorage  # noqa: E402
from shardwise.run.trace.launches import ENTERED, USUAL_S, launches  # noqa: E402
from shardwise.run.trace.overlap import KERNELS, played  # noqa: E402
from shardwise.run.trace.price import prices_of  # noqa: E402
from shardwise.run.trace.result import result_of  # noqa: E402
from shardwise.spec.load import cluster_of  # noqa: E402
from shardwise.spec.software import known_stack  # noqa: E402
from shardwise.step.estimate.odd_rows import ODD_READ, UNEVEN_READ  # noqa: E402

DP = ProcessGroup("dp", 8, 1, True)
BIG = Product(m=8192, n=8192, k=8192, batch=1, dtype="bf16", rows=(8192.0,) * 3)


def event(work, reads=(), writes=(), *, scope="", phase="forward", name="op") -> StepEvent:
    touched = (tuple((held, 1) for held in part) for part in (reads, writes))
    return StepEvent(name, phase, work, scope, *touched, 0, 1, compiled=True)


def gather(*, waited=False) -> CollectiveCall:
    return CollectiveCall("all_gather", 2**28, "bf16", DP, waited)


def step_of(events):
    prices = prices_of(Capture(rank=0, world=8, events=events), cluster_of("8xh100"), known_stack("torch-eager"))
    return played(events, prices)


def test_a_message_nobody_waits_for_hides() -> None:
    found = step_of([event(gather(), writes=[TensorStorage("other", 1)]), event(BIG), event(BIG)])
    assert found.exposed_s == 0
    assert found.hidden_s == pytest.approx(found.messages["dp"])
    assert found.end_s < found.messages["dp"] + found.busy["products"]


def test_each_call_of_a_compiled_block_costs_the_host_its_entrance() -> None:
    small = Product(m=64, n=64, k=64, batch=1, dtype="bf16", rows=(64.0,) * 3)

    def host_s(calls: list[int]) -> float:
        both = [(call, "forward") for call in calls] + [(call, "backward") for call in reversed(calls)]
        return step_of([replace(event(small, phase=phase), compiled=call) for call, phase in both]).end_s

    entrance = (ENTERED["forward"] + ENTERED["backward"]) * USUAL_S
    assert host_s([1, 2, 3, 4]) - host_s([1, 1, 1, 1]) == pytest.approx(3 * entrance)
    assert host_s([1, 1, 1, 1]) - host_s([0, 0, 0, 0]) > 0.9 * entrance


def test_no_kernel_reaches_from_one_compiled_call_into_the_next() -> None:
    inner = TensorStorage("activations", 100)
    events = [
        StepEvent("add", "forward", Pass(200), "", (), ((inner, 100),), 1, 1, compiled=1),
        StepEvent("mul", "forward", Pass(200), "", ((inner, 100),), (), 2, 1, compiled=2),
    ]
    assert len(fused(Capture(rank=0, world=1, events=events))) == 2
    assert len(fused(Capture(rank=0, world=1, events=[replace(one, compiled=1) for one in events]))) == 1


def test_a_kernel_waits_for_what_it_reads() -> None:
    weights = TensorStorage("gathered", 1)
    found = step_of([event(gather(), writes=[weights]), event(BIG, reads=[weights])])
    assert found.exposed_s + found.host_s == pytest.approx(found.end_s - found.busy["products"])
    assert found.waits["dp"] > 0.9 * found.messages["dp"]


def test_a_message_that_is_waited_for_holds_kernels_up() -> None:
    late, at_once = (step_of([event(BIG), event(gather(waited=waited)), event(BIG)]) for waited in (False, True))
    assert at_once.waits["dp"] == pytest.approx(at_once.messages["dp"])
    assert late.waits["dp"] == 0
    assert at_once.end_s == pytest.approx(late.end_s + at_once.messages["dp"])


def test_fsdp_gathers_run_under_the_layer_before() -> None:
    """Called one by one, each in front of its layer and waited for by it: only the first is exposed."""
    events = []
    for _ in range(4):
        buffer, weights = TensorStorage("gathered", 1), TensorStorage("gathered", 1)
        events += [
            event(gather(waited=True), writes=[buffer], scope="all_gather"),
            event(Pass(2**20), reads=[buffer], writes=[weights], scope="all_gather_copy_out",
                  name="split_with_sizes_copy"),
            *[event(BIG, reads=[weights]) for _ in range(4)],
        ]  # fmt: skip
    found = step_of(events)
    one = found.messages["dp"] / 4
    assert found.waits["dp"] == pytest.approx(one, rel=0.1)


def test_work_behind_a_reduction_does_not_hold_kernels_up() -> None:
    buffer, shard = TensorStorage("gathered", 1), TensorStorage("gradients", 1)
    reduce = CollectiveCall("reduce_scatter", 2**28, "fp32", DP, waited=True)
    found = step_of([
        event(BIG, phase="backward"),
        event(Pass(1), writes=[buffer], scope="post_backward_reduce", phase="backward", name="chunk_cat"),
        event(reduce, reads=[buffer], writes=[shard], scope="post_backward_reduce", phase="backward"),
        event(Pass(1), reads=[shard], writes=[shard], scope="post_backward_reduce", phase="backward"),
        event(BIG, phase="backward"),
        event(Pass(1), reads=[shard], phase="optimizer"),
    ])  # fmt: skip
    last = [span for span in found.spans if span.lane == KERNELS]
    assert last[-2].start_s == pytest.approx(last[-3].end_s, abs=1e-4)
    assert last[-1].start_s >= found.messages["dp"]


def test_rows_that_start_off_the_lines_are_slow() -> None:
    def seconds(width: float, *, compiled: bool = False) -> float:
        called = replace(event(replace(BIG, rows=(8192.0, width, 8192.0))), compiled=compiled)
        (span,) = step_of([called]).spans
        return span.end_s - span.start_s

    for width, slowed in (
        (50304.0, 1.0),
        (1800.0, 1.0),
        (30522.0, UNEVEN_READ),
        (50257.0, ODD_READ),
    ):
        assert seconds(width) / seconds(8192.0) == pytest.approx(slowed, rel=1e-2)
        # a compiler copies the factor, which costs its bytes and nothing else
        assert 1.0 <= seconds(width, compiled=True) / seconds(8192.0, compiled=True) < 1.1


def test_a_compiler_holds_a_copy_of_what_lies_badly() -> None:
    badly = replace(BIG, rows=(8192.0, 50257.0, 8192.0))
    events = [replace(event(badly), phase="forward"), event(BIG)]
    found = compiled_changes(Capture(rank=0, world=1, events=events))
    assert [change for _, _, change in found] == [8192 * 8192 * 2, -8192 * 8192 * 2]


def test_the_host_takes_longer_for_a_product_than_for_a_cast_and_for_much_python_than_for_both() -> None:
    product, cast, plain = (
        replace(event(work, name=name), compiled=False)
        for work, name in ((BIG, "mm"), (Pass(8), "_to_copy"), (Pass(8), "add"))
    )
    assert launches(product, 0.0) > launches(cast, 0.0) > launches(plain, 0.0) > 0
    assert launches(replace(plain, calls=5), 0.0) > launches(replace(plain, calls=5, quiet=4), 0.0)
    hooked = replace(plain, python=(400, 400))
    assert launches(hooked, 0.0) > 10 * launches(product, 0.0)
    assert launches(replace(hooked, phase="optimizer"), 0.0) == launches(replace(plain, phase="optimizer"), 0.0)
    assert launches(replace(plain, calls=0), 0.0) == 0.0


def test_a_compiler_joins_passes_between_products() -> None:
    x, inner, kept = TensorStorage("activations", 0), TensorStorage("activations", 0), TensorStorage("activations", 0)
    changes = [(x, 100), (inner, 100), (kept, 100), (inner, -100), (kept, -100)]
    first = StepEvent("mul", "forward", Pass(200), "", ((x, 100),), ((inner, 100),), 2, 1, compiled=True)
    second = StepEvent("add", "forward", Pass(200), "", ((inner, 100),), ((kept, 100),), 3, 2, compiled=True)
    product = StepEvent("mm", "forward", BIG, "", ((kept, 100),), (), 4, 1, compiled=True)
    captured = Capture(rank=0, world=1, events=[first, second, product], changes=changes)
    joined = fused(captured, 1.0)
    assert [one.name for one in joined] == ["fused", "mm"]
    assert joined[0].work == Pass(200)  # reads x, writes what outlives it
    assert joined[0].calls == 3
    assert all(held is not inner for _, held, _ in compiled_changes(captured))


def test_a_compiler_keeps_products_and_makes_passes_again() -> None:
    """The backward reads what a product made and what a pass made of that: the second is not kept for it."""
    gate, bent, out = (TensorStorage("activations", 0) for _ in range(3))
    changes = [(gate, 100), (bent, 100), (out, 10), (bent, -100), (gate, -100)]
    events = [
        StepEvent("mm", "forward", BIG, "", (), ((gate, 100),), 1, 1, compiled=True),
        StepEvent("silu", "forward", Pass(200), "", ((gate, 100),), ((bent, 100),), 2, 1, compiled=True),
        StepEvent("mm", "forward", BIG, "", ((bent, 100),), ((out, 10),), 3, 1, compiled=True),
        StepEvent("mul", "backward", Pass(200), "", ((bent, 100), (gate, 100)), (), 3, 1, compiled=True),
    ]
    found = compiled_changes(Capture(rank=0, world=1, events=events, changes=changes))
    freed = {id(held): index for index, held, change in found if change < 0}
    assert freed[id(bent)] == 3  # behind the product that reads it
    assert freed[id(gate)] == 4


def test_a_compiler_keeps_the_smaller_of_a_product_and_what_passes_made_of_it() -> None:
    """Logits in 16 bits and not their probabilities in 32, but the sum of a residual that later layers read."""
    logits, wide, loss = (TensorStorage("activations", 0) for _ in range(3))
    changes = [(logits, 100), (wide, 200), (loss, 1), (logits, -100), (wide, -200)]
    made = StepEvent("mm", "forward", BIG, "", (), ((logits, 100),), 1, 1, compiled=True)
    softmax = StepEvent("softmax", "forward", Pass(300), "", ((logits, 100),), ((wide, 200),), 2, 1, compiled=True)
    summed = StepEvent("nll", "forward", Pass(200), "", ((wide, 200),), ((loss, 1),), 3, 1, compiled=True)
    backward = StepEvent("nll_backward", "backward", Pass(200), "", ((wide, 200),), (), 4, 1, compiled=True)

    def freed(events: list[StepEvent]) -> dict[int, int]:
        found = compiled_changes(Capture(rank=0, world=1, events=events, changes=changes))
        return {id(held): index for index, held, change in found if change < 0}

    assert freed([made, softmax, summed, backward]) == {id(logits): 4}  # as late as what it stands for
    product = StepEvent("mm", "forward", BIG, "", (), (), 3, 1, compiled=True)
    assert freed([made, softmax, product, summed, backward]) == {id(logits): 3, id(wide): 4}


def test_a_compiler_keeps_a_sum_and_not_the_products_it_was_added_up_from() -> None:
    """A norm widens a residual to 32 bits: its sum in 16 is kept, neither the wide copy nor both products."""
    first, second, total, wide = (TensorStorage("activations", 0) for _ in range(4))
    changes = [(first, 100), (second, 100), (total, 100), (wide, 190), (first, -100), (second, -100), (total, -100),
               (wide, -190)]  # fmt: skip
    both = ((first, 100), (second, 100))
    events = [
        StepEvent("mm", "forward", BIG, "", (), both, 2, 1, compiled=True),
        StepEvent("add", "forward", Pass(300), "", both, ((total, 100),), 3, 1, compiled=True),
        StepEvent("_to_copy", "forward", Pass(290), "", ((total, 100),), ((wide, 190),), 4, 1, compiled=True),
        StepEvent("norm_backward", "backward", Pass(190), "", ((wide, 190),), (), 4, 1, compiled=True),
    ]
    found = compiled_changes(Capture(rank=0, world=1, events=events, changes=changes))
    freed = {id(held): index for index, held, change in found if change < 0}
    assert freed == {id(first): 4, id(second): 5, id(total): 7}


def test_what_one_kernel_reads_is_freed_behind_it() -> None:
    """Logits are there until their gradient is written, though the passes it was joined of let go of them before."""
    logits, wide, narrow = (TensorStorage(kind, 0) for kind in ("activations", "working", "working"))
    changes = [(logits, 100), (wide, 200), (logits, -100), (narrow, 100), (wide, -200)]
    events = [
        StepEvent("mm", "forward", BIG, "", (), ((logits, 100),), 1, 1, compiled=True),
        StepEvent("softmax_backward", "backward", Pass(300), "", ((logits, 100),), ((wide, 200),), 2, 1, compiled=True),
        StepEvent("_to_copy", "backward", Pass(300), "", ((wide, 200),), ((narrow, 100),), 4, 1, compiled=True),
        StepEvent("mm", "backward", BIG, "", ((narrow, 100),), (), 5, 1, compiled=True),
    ]
    found = compiled_changes(Capture(rank=0, world=1, events=events, changes=changes))
    order = [(held, change) for _, held, change in found if held in (logits, narrow)]
    assert order == [(logits, 100), (narrow, 100), (logits, -100)]


def test_what_a_compiled_module_returns_for_nothing_has_a_gradient_of_zeros() -> None:
    logits = TensorStorage("activations", 0)
    logits.returned = 1
    made = StepEvent("mm", "forward", BIG, "", (), ((logits, 100),), 1, 1, compiled=True)
    backward = [StepEvent("mm", "backward", BIG, "", (), (), at, 1, compiled=True) for at in (2, 3)]
    changes = [(logits, 100), (logits, -100), (TensorStorage("working", 0), 5)]

    def zeros(*events: StepEvent) -> list[tuple[int, int]]:
        found = compiled_changes(Capture(rank=0, world=1, events=[*events], changes=changes))
        return [(index, change) for index, held, change in found if held.kind == "working" and held.size == 100]

    assert zeros(made, *backward) == [(2, 100), (3, -100)]
    read = StepEvent("loss", "forward", Pass(100), "", ((logits, 100),), (), 1, 1)
    assert zeros(made, read, *backward) == []
    assert zeros(made, replace(read, compiled=True), *backward) == []  # by the next compiled module
    logits.returned = 2  # read inside, by the loss that is returned beside them
    assert zeros(made, replace(read, compiled=True), *backward) == [(2, 100), (3, -100)]


def test_torch_still_has_what_tracing_takes_of_it() -> None:
    """The canary: each private piece, tried by itself."""
    resized: list[int] = []
    with private.resizes(lambda storage: resized.append(storage.nbytes())):
        torch.empty(4).untyped_storage().resize_(0)
    assert resized == [0]
    mode = private.fake_tensors()
    with mode, private.convertible_modules(mode):
        layer = torch.nn.Linear(4, 4).to(torch.bfloat16)
        assert layer.weight.dtype is torch.bfloat16
        with pytest.raises(private.VALUE_ERRORS):
            torch.ones(4).sum().item()
        assert private.is_fake(layer.weight)
    assert not private.in_backward()
    seen = []
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda gradient: seen.append(private.in_backward()) or gradient)
    x.sum().backward()
    assert seen == [True]
    assert hasattr(private.ShardingPropagator, private.PROPAGATES)
    with private.static_pipelines():
        pass
    private.forget_meshes()


def test_the_workspace_of_products_is_in_the_peak(tmp_path) -> None:
    """torch.cuda.max_memory_allocated counts it; without a GPU there is none."""
    path = tmp_path / "own.py"
    path.write_text("from torch import nn, ones\ndef build():\n    return nn.Linear(8, 8)\n"
                    "def step(model):\n    model(ones(2, 8)).sum().backward()\n")  # fmt: skip
    captured = traced(path, 1)
    stack = known_stack("torch-eager")
    alone, on_gpu = (result_of(captured, p)[0] for p in (None, prices_of(captured, cluster_of("1xh200"), stack)))
    assert "workspace" not in alone.memory_bytes
    assert on_gpu.peak_bytes - alone.peak_bytes == on_gpu.memory_bytes["workspace"] == 75_000_000
