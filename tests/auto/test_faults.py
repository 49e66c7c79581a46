"""Faults that a split may hide: each is a NO that names its cause, or is refused by name."""

import pytest
import torch
import torch.nn.functional as F
from small_models import SAMPLES, TOKENS, WIDTH, WORDS, FusedBlock, Tiny, batch, step
from torch import Tensor, nn

from shardwise.run.auto.plan import degrees_of
from shardwise.run.auto.program import program_of
from shardwise.run.auto.prove import plan_of, proven
from shardwise.run.auto.small import few_blocks
from shardwise.run.auto.truth import truth_of


def proof(text, build, own_batch=batch, own_step=step, steps=3):
    program = program_of(build, own_batch, own_step, steps, "float64")
    return proven(program, plan_of(program, degrees_of(text)), truth_of(program))


def built(model):
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def loss_of(model, tokens):
    return F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


class OnRanks(nn.Module):
    """Spoils what it is given on one rank of several, in one call or a later one."""

    def __init__(self, rank: int, value: float, *, backward: bool, call: int = 0) -> None:
        super().__init__()
        self.rank, self.value, self.backward_only, self.call, self.calls = rank, value, backward, call, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        if ranks == 1 or torch.distributed.get_rank() != self.rank or self.calls <= self.call:
            return x
        if self.backward_only:
            x.register_hook(lambda grad: grad * self.value)
            return x
        return x * self.value


class Spoilt(nn.Module):
    def __init__(self, **how) -> None:
        super().__init__()
        self.inside, self.spoils = Tiny(FusedBlock), OnRanks(**how)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.spoils(self.inside(tokens))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("backward", [True, False])
def test_what_is_not_finite_on_one_rank_does_not_hold(value, rank, backward):
    found = proof("fsdp=2", lambda: built(Spoilt(rank=rank, value=value, backward=backward)))
    assert not found.equal
    assert "not finite" in found.why


def test_a_last_loss_that_is_not_finite_does_not_hold():
    """Three updates are equal; the ranks' weights are spoilt behind the last, so only the checkpoint shows it."""

    def spoiling(model, optimizer, tokens):
        step(model, optimizer, tokens)
        model.steps += 1
        if torch.distributed.is_initialized() and model.steps == 3:
            model.norm.weight.data.fill_(float("nan"))

    def build():
        model = Tiny(FusedBlock)
        model.steps = 0
        return built(model)

    found = proof("tp=2", build, own_step=spoiling)
    assert "norm.weight" in found.why
    assert "not finite" in found.why


def test_one_process_that_is_not_finite_proves_nothing():
    def spoilt(model, optimizer, tokens):
        (loss_of(model, tokens) * float("nan")).backward()
        optimizer.step()
        optimizer.zero_grad()

    found = proof("fsdp=2", lambda: built(Tiny(FusedBlock)), own_step=spoilt)
    assert not found.equal
    assert "step 1 in one process" in found.why


class Averaging(Tiny):
    """Keeps a running mean that nothing else reads while it trains."""

    def __init__(self) -> None:
        super().__init__(FusedBlock)
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        with torch.no_grad():
            self.mean.lerp_(self.words(tokens).mean((0, 1)).to(self.mean), 0.1)
        return super().forward(tokens)


@pytest.mark.parametrize("text", ["fsdp=2", "pp=2"])
def test_a_buffer_that_ranks_fill_otherwise_does_not_hold(text):
    found = proof(text, lambda: built(Averaging()))
    assert found.buffers == 1
    assert found.gradient_gap < 1e-12
    assert "buffer mean" in found.why


def test_a_buffer_that_all_ranks_fill_alike_holds():
    found = proof("tp=2", lambda: built(Averaging()))
    assert found.equal, found.why
    assert found.buffers == 1
    assert found.buffer_gap < 1e-12


def test_buffers_are_loaded_with_a_checkpoint():
    """The loss reads one that training changes: a checkpoint without it would give another loss."""

    class Scaled(Averaging):
        def forward(self, tokens: Tensor) -> Tensor:
            return super().forward(tokens) * (1 + self.mean.square().sum())

    assert proof("tp=2", lambda: built(Scaled())).equal


def test_a_learning_rate_that_ranks_see_otherwise_does_not_hold():
    def warmed(model, optimizer, tokens):
        model.steps += 1  # in a pipeline this runs once a micro-batch
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * model.steps
        step(model, optimizer, tokens)

    def build():
        model = Tiny(FusedBlock)
        model.steps = 0
        return built(model)

    assert proof("tp=2", build, own_step=warmed).equal
    assert not proof("pp=2", build, own_step=warmed).equal


class Counter:
    calls = 0


def drawing(model, optimizer, tokens):
    """Numbers that are no row a sample."""
    logits = model(tokens) + 0.1 * torch.randn(TOKENS, len(tokens), WORDS).transpose(0, 1)
    F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()


def counting(model, optimizer, tokens):
    Counter.calls += 1
    (loss_of(model, tokens) * (1 + 0.1 * Counter.calls)).backward()
    optimizer.step()
    optimizer.zero_grad()


def decaying(model, optimizer, tokens):
    """The loss says nothing of the global, the update does."""
    Counter.calls += 1
    optimizer.param_groups[0]["lr"] = 0.1 / Counter.calls
    step(model, optimizer, tokens)


def clipping_by_hand(model, optimizer, tokens):
    loss_of(model, tokens).backward()
    norm = sum(float(p.grad.square().sum()) for p in model.parameters()) ** 0.5
    for p in model.parameters():
        p.grad.mul_(0.1 / norm)
    optimizer.step()
    optimizer.zero_grad()


def padded_batch():
    tokens = batch()
    for sample in range(SAMPLES):
        tokens[sample, sample + 3 :] = 0
    return tokens


def padded(model, optimizer, tokens):
    wanted = tokens.masked_fill(tokens == 0, -100)
    F.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten(), ignore_index=-100).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()


def padded_by_hand(model, optimizer, tokens):
    """The mean is the program's own: nobody sees what is counted."""
    losses = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten(), reduction="none")
    (losses * (tokens.flatten() != 0)).sum().div((tokens != 0).sum()).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("text", ["fsdp=2", "tp=2", "dp=2,fsdp=2"])
def test_a_loss_averaged_over_tokens_adds_sums_and_counts(text):
    found = proof(text, lambda: built(Tiny(FusedBlock)), padded_batch, padded)
    assert found.equal, found.why
    assert found.messages_equal


def test_stages_refuse_a_loss_averaged_over_tokens():
    assert "averages over tokens" in proof("pp=2", lambda: built(Tiny(FusedBlock)), padded_batch, padded).why


def noisy(model, optimizer, tokens):
    """As diffusion models draw them: a noise and a time for each sample."""
    optimizer.zero_grad()
    noise = torch.randn(len(tokens), TOKENS, WORDS)
    times = torch.randint(1, 9, (len(tokens),))
    logits = model(tokens)
    shaken = logits + torch.randn_like(logits) + noise * times[:, None, None] + torch.empty_like(logits).uniform_()
    F.cross_entropy(shaken.flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()


@pytest.mark.parametrize("text", ["fsdp=2", "tp=2", "pp=2", "fsdp=2,pp=2,micro=2"])
def test_random_numbers_of_samples_are_those_of_one_process(text):
    found = proof(text, lambda: built(Tiny(FusedBlock)), own_step=noisy)
    assert found.equal, found.why
    assert found.gradient_gap < 1e-12


@pytest.mark.parametrize(
    ("own_step", "own_batch", "cause"),
    [
        (drawing, batch, "random numbers"),
        (counting, batch, "a global"),
        (padded_by_hand, padded_batch, "not the mean"),
        (decaying, batch, "a global"),
    ],
)
def test_a_no_names_its_cause(own_step, own_batch, cause):
    found = proof("fsdp=2", lambda: built(Tiny(FusedBlock)), own_batch, own_step)
    assert not found.equal
    assert cause in found.why


def test_a_no_names_the_line_that_reads_a_share_of_the_gradients():
    found = proof("tp=2", lambda: built(Tiny(FusedBlock)), own_step=clipping_by_hand)
    assert "test_faults.py:" in found.why
    assert "use torch.nn.utils.clip_grad_norm_" in found.why


def test_a_norm_over_samples_is_named():
    class Normed(Tiny):
        def __init__(self) -> None:
            super().__init__(FusedBlock)
            self.over = nn.BatchNorm1d(WORDS)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.over(super().forward(tokens).transpose(1, 2)).transpose(1, 2).contiguous()

    assert "BatchNorm" in proof("fsdp=2", lambda: built(Normed())).why


class HeadsBlock(FusedBlock):
    """Blocks with weights of the same shapes, and other heads; `shown`: as an attribute, or only in the code."""

    def __init__(self, heads: int, *, shown: bool) -> None:
        super().__init__()
        if shown:
            self.heads = heads
        self.attends = lambda q, k, v: F.scaled_dot_product_attention(
            *(x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v)), is_causal=True
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.out(self.attends(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.relu(self.up(self.norm2(x))))


class Headed(Tiny):
    def __init__(self, *, shown: bool) -> None:
        super().__init__(FusedBlock, blocks=0)
        self.blocks = nn.ModuleList(HeadsBlock(heads, shown=shown) for heads in (4, 4, 2, 8))


@pytest.mark.parametrize("shown", [True, False])
def test_blocks_are_alike_only_when_their_heads_are(shown):
    """A copy of the first two blocks would say nothing of the other two."""
    program = program_of(lambda: built(Headed(shown=shown)), batch, step, 3, "float64")
    plan = plan_of(program, degrees_of("tp=2"))
    assert [kind.blocks for kind in plan.kinds] == [("blocks.0", "blocks.1"), ("blocks.2",), ("blocks.3",)]
    assert len(few_blocks(program, plan, plan.degrees).model.blocks) == 4
    found = proven(program, plan, truth_of(program))
    assert found.equal, found.why
    assert all(kind.cuts for kind in plan.kinds)


def averaging_in_place(model, optimizer, averages, tokens):
    step(model, optimizer, tokens)
    with torch.no_grad():
        for name, p in model.named_parameters():
            averages[name].lerp_(p, 0.1)


def averaging_anew(model, optimizer, averages, tokens):
    step(model, optimizer, tokens)
    averages |= {name: 0.9 * averages[name] + 0.1 * p.detach() for name, p in model.named_parameters()}


def clipping_by_value(model, optimizer, _, tokens):
    loss_of(model, tokens).backward()
    nn.utils.clip_grad_value_(model.parameters(), 1e-3)
    optimizer.step()
    optimizer.zero_grad()


def counting_before(model, optimizer, averages, tokens):
    averages["norm.weight"].add_(1.0)
    step(model, optimizer, tokens)


def with_averages():
    model = Tiny(FusedBlock)
    return *built(model), {name: p.detach().clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("own_step", "when"),
    [(averaging_in_place, "after backward"), (averaging_anew, "after backward"), (counting_before, "before backward")],
)  # fmt: skip
def test_stages_name_what_they_would_leave_out(own_step, when):
    found = proof("pp=2", with_averages, own_step=own_step)
    assert "test_faults.py:" in found.why
    assert when in found.why


def test_stages_clip_by_value():
    found = proof("pp=2", with_averages, own_step=clipping_by_value)
    assert found.equal, found.why


def plain_step(model, optimizer, tokens):
    loss_of(model, tokens).backward()
    optimizer.step()
    optimizer.zero_grad()


def with_copy():
    model = Tiny(FusedBlock)
    return (
        *built(model),
        torch.optim.swa_utils.AveragedModel(model, use_buffers=True),
        {"steps": 0, "seen": torch.zeros(())},
    )


def averaging_a_copy(model, optimizer, average, counters, tokens):
    step(model, optimizer, tokens)
    average.update_parameters(model)
    counters["steps"] += 1
    counters["seen"] += 1


@pytest.mark.parametrize("text", ["fsdp=2", "tp=2"])
@pytest.mark.parametrize(
    ("build", "own_step"),
    [(with_averages, averaging_in_place), (with_averages, averaging_anew), (with_copy, averaging_a_copy)],
    ids=["in-place", "anew", "copy"],
)
def test_averages_of_the_weights_are_split_and_compared(text, build, own_step):
    found = proof(text, build, own_step=own_step)
    assert found.equal, found.why
    assert found.buffers >= len(dict(Tiny(FusedBlock).named_parameters()))
    assert found.buffer_gap < 1e-10


def test_what_a_step_keeps_and_ranks_keep_otherwise_does_not_hold():
    def counting(model, optimizer, counters, tokens):
        step(model, optimizer, tokens)
        counters["samples"] += len(tokens)

    found = proof("fsdp=2", lambda: (*built(Tiny(FusedBlock)), {"samples": 0}), own_step=counting)
    assert not found.equal
    assert "build()[2]['samples']" in found.why
    assert proof("tp=2", lambda: (*built(Tiny(FusedBlock)), {"samples": 0}), own_step=counting).equal


class HalvingBlock(nn.Module):
    """Hands on half as many tokens as it takes, as pyramids of windows do."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = FusedBlock()

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(x).unflatten(1, (-1, 2)).mean(2)


@pytest.mark.parametrize("text", ["pp=2", "cp=2", "tp=2"])
def test_blocks_that_hand_on_other_shapes_share_no_sequence(text):
    def pooled(model, optimizer, tokens):
        F.cross_entropy(model(tokens).mean(1), tokens[:, 0]).backward()
        optimizer.step()
        optimizer.zero_grad()

    found = proof(text, lambda: built(Tiny(HalvingBlock)), own_step=pooled)
    assert found.why == ("" if "cp" not in text else "blocks take tensors of different shapes")


class RoundedBlock(FusedBlock):
    """What it adds hangs on the last digits of its features: two of them make rounding 1e8 times as large."""

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        return x + torch.sin(1e4 * x.detach())


def test_a_program_that_loses_digits_is_judged_by_its_own_rounding():
    def build():
        model = Tiny(RoundedBlock)
        return model, torch.optim.SGD(model.parameters(), lr=1e-9)

    found = proof("tp=2", build, own_step=plain_step)
    assert found.gradient_gap > 1e-9
    assert found.equal, found.why
    assert found.gradient_gap <= found.tolerance <= 1e-6
    assert proof("tp=2", lambda: built(Tiny(FusedBlock))).tolerance == 1e-9


def test_rounding_excuses_no_small_fault():
    """A gradient that is 1e-7 off on one rank, of a program that loses no digits."""
    found = proof("fsdp=2", lambda: built(Spoilt(rank=1, value=1 + 1e-7, backward=True)))
    assert not found.equal
    assert found.tolerance == 1e-9


def test_stages_run_a_step_that_forgets_gradients_first():
    def first(model, optimizer, tokens):
        optimizer.zero_grad()
        loss_of(model, tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        print(f"{sum(p.numel() for p in model.parameters())} parameters")

    found = proof("pp=2", lambda: built(Tiny(FusedBlock)), own_step=first)
    assert found.equal, found.why


def test_stages_refuse_several_backwards():
    def twice(model, optimizer, tokens):
        for part in tokens.chunk(2):
            (loss_of(model, part) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()

    assert proof("tp=2", lambda: built(Tiny(FusedBlock)), own_step=twice).equal
    assert "backward 2 times" in proof("pp=2", lambda: built(Tiny(FusedBlock)), own_step=twice).why
