"""A model split in a user's own script trains, clips, draws and saves as one process does, or says what to change."""

from functools import cache

import pytest
import torch
import torch.distributed as dist
from small_models import ExpertBlock, FusedBlock, NormedBlock, Tiny, batch, program
from test_faults import loss_of
from torch import Tensor, nn
from torch.nn import functional as F

import shardwise
from shardwise.run.auto.plan import degrees_of
from shardwise.run.auto.prove import plan_of
from shardwise.run.runtime.train.fork import forked

STEPS, MOST = 3, 0.05
BLOCKS = {"normed": NormedBlock, "fused": FusedBlock, "experts": ExpertBlock}


@cache
def plan_for(block, text):
    return plan_of(program(BLOCKS[block]), degrees_of(text))


def whole_model(block):
    torch.manual_seed(0)
    return Tiny(BLOCKS[block]).double()


def samples():
    torch.manual_seed(7)
    return batch()


def trained(model, tokens, optimizer, order=2.0, steps=STEPS):
    norms = []
    for _ in range(steps):
        loss_of(model, tokens).backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), MOST, order)))
        optimizer.step()
        optimizer.zero_grad()
    return norms


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def padded_loss(model, tokens):
    return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten(), ignore_index=0)


def test_a_mean_over_tokens_counts_those_of_all_ranks_and_of_no_other_model():
    own = program(FusedBlock)
    tokens = samples()
    for sample, row in enumerate(tokens):
        row[sample + 3 :] = 0
    own.batches = [tokens] * 2
    own.step = lambda model, _, samples: padded_loss(model, samples).backward()
    plan = plan_of(own, degrees_of("fsdp=2"))
    assert plan.token_means == 1

    def work(rank):
        model = shardwise.parallelize(whole_model("fused"), plan)
        loss = padded_loss(model, tokens.chunk(2)[rank])
        loss.backward()
        other = padded_loss(whole_model("fused"), tokens[:1]) if rank else None  # a rank alone would wait
        return float(loss.detach()), None if other is None else float(other.detach())

    (first, _), (second, other) = forked(2, work)
    assert (first + second) / 2 == pytest.approx(float(padded_loss(whole_model("fused"), tokens).detach()), rel=1e-12)
    assert other == pytest.approx(float(padded_loss(whole_model("fused"), tokens[:1]).detach()), rel=1e-12)


def split(block, text):
    plan = plan_for(block, text)
    model = shardwise.parallelize(whole_model(block), plan)
    own = samples().chunk(plan.degrees.dp)[dist.get_rank() // plan.degrees.tp]
    return model, own


@pytest.mark.parametrize(
    ("block", "text", "order"),
    [("normed", "tp=2", 2.0), ("normed", "tp=2", 1.0), ("normed", "tp=2", float("inf")), ("fused", "fsdp=2,tp=2", 2.0),
     ("normed", "fsdp=2", 2.0), ("experts", "fsdp=2,ep=2", 2.0), ("normed", "dp=2,fsdp=2", 2.0)],
)  # fmt: skip
def test_clipping_and_the_checkpoint_are_those_of_one_process(block, text, order):
    def work(_):
        model, own = split(block, text)
        optimizer = sgd(model)
        return trained(model, own, optimizer, order), shardwise.whole_state(model, optimizer)

    ranks = forked(degrees_of(text).ranks, work)
    alone = whole_model(block)
    optimizer = sgd(alone)
    norms = trained(alone, samples(), optimizer, order)
    assert max(norms) > MOST, "it clips"
    for found, _ in ranks:
        assert found == pytest.approx(norms, rel=1e-9)
    state = ranks[0][1]
    assert not ranks[1][1]
    plain = whole_model(block)
    plain.load_state_dict(state["model"])
    names = {id(p): name for name, p in alone.named_parameters()}
    for name, parameter in alone.named_parameters():
        torch.testing.assert_close(plain.get_parameter(name), parameter, rtol=0, atol=1e-10)
    for parameter, own in optimizer.state.items():
        saved = state["optimizers"][0]["state"][names[id(parameter)]]["momentum_buffer"]
        torch.testing.assert_close(saved, own["momentum_buffer"], rtol=0, atol=1e-10)


def test_a_checkpoint_goes_on_in_another_split():
    def save(_):
        model, own = split("normed", "tp=2")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        trained(model, own, optimizer)
        state = shardwise.whole_state(model, optimizer)
        trained(model, own, optimizer)
        return state, shardwise.whole_state(model, optimizer)

    middle, last = forked(2, save)[0]

    def load(_):
        model, own = split("normed", "fsdp=2")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
        shardwise.load_whole_state(model, middle, optimizer)
        trained(model, own, optimizer)
        model(own)
        return shardwise.whole_state(model, optimizer)

    found = forked(2, load)[0]
    for name, value in last["model"].items():
        torch.testing.assert_close(found["model"][name], value, rtol=0, atol=1e-9)


class Dropping(Tiny):
    def __init__(self) -> None:
        super().__init__(NormedBlock)
        self.drops = nn.Dropout(0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.drops(super().forward(tokens))


def test_ranks_that_share_tensors_draw_the_same_numbers():
    """Each rank seeds itself otherwise, and draws numbers of its own between the steps."""
    plan = plan_for("normed", "fsdp=2,tp=2")

    def work(rank):
        torch.manual_seed(0)
        model = shardwise.parallelize(Dropping().double(), plan)
        own = samples().chunk(2)[rank // 2]
        torch.manual_seed(100 + rank)
        optimizer = sgd(model)
        drawn = []
        for _ in range(2):
            loss_of(model, own).backward()
            drawn.append(float(torch.rand(())))
            torch.rand(rank)
            optimizer.step()
            optimizer.zero_grad()
        norms = [p.full_tensor() for n, p in model.named_parameters() if "norm" in n]
        return norms, drawn, model(samples().chunk(2)[0]) == 0

    ranks = forked(4, work)
    for one, other in ((0, 1), (2, 3)):
        for left, right in zip(ranks[one][0], ranks[other][0], strict=True):
            assert torch.equal(left, right)
        assert torch.equal(ranks[one][2], ranks[other][2])
    assert not torch.equal(ranks[0][2], ranks[2][2]), "places of dp draw their own"
    assert len({tuple(drawn) for _, drawn, _ in ranks}) == 4, "a rank's own stream goes on"


def raised(work):
    try:
        work()
    except ValueError as error:
        return str(error)
    return ""


def test_what_would_be_wrong_in_silence_is_refused():
    def work(rank):
        plan = plan_for("normed", "tp=2")
        model = shardwise.parallelize(whole_model("normed"), plan)
        words = [raised(model.state_dict)]
        torch.manual_seed(rank)
        words.append(raised(lambda: model(batch())))
        plain = whole_model("normed")
        early = sgd(plain)
        sharded = shardwise.parallelize(plain, plan_for("normed", "fsdp=2"))
        loss_of(sharded, samples()).backward()
        words += [raised(early.step), raised(lambda: shardwise.whole_state(whole_model("normed")))]
        return [*words, raised(lambda: shardwise.load_whole_state(model, {"model": {}, "optimizers": []}))]

    for words in forked(2, work):
        for found, cure in zip(words, ("whole_state", "different samples", "make it afterwards", "state_dict()",
                                       "load the state"), strict=True):  # fmt: skip
            assert cure in found
