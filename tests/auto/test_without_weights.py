"""A model too large for this machine: built without weights, looked at in one block of each kind, proven on a narrow
copy; what is found is what is found with all values."""

import json

import pytest
import torch
from small_models import ExpertBlock, FusedBlock, NormedBlock, SwitchBlock, Tiny, WideBlock, step
from torch import nn

import shardwise.run.auto.answer
from shardwise.run.auto.as_model import traced_model
from shardwise.run.auto.blocks import until_backward
from shardwise.run.auto.live import LiveTensors
from shardwise.run.auto.narrow import smaller, smaller_numbers
from shardwise.run.auto.plan import Degrees
from shardwise.run.auto.program import UserProgram, program_of
from shardwise.run.auto.prove import plan_of
from shardwise.run.auto.room import fits_with_values, refuse_trained, refuse_tried
from shardwise.run.auto.shorter import Extent, extent_of, shorter
from shardwise.run.auto.skeleton import skeleton_of
from shardwise.run.auto.weightless import without_weights
from shardwise.run.auto.wide import comparable
from shardwise.run.trace.messages import tensors_in
from shardwise.show.cli import main

TOKENS, SAMPLES = 96, 8
SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn

WORDS, WIDTH, HEADS, TOKENS = {words}, {width}, 4, 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.norm1(x)
        q, k, v = (w(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for w in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(6))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for number in range(6):
            x = self.blocks[number](x)
        return self.head(self.norm(x))


def build():
    model = Model().to(torch.bfloat16).to("cuda")
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def batch():
    return torch.randint(0, WORDS, (8, TOKENS), device="cuda")


def step(model, optimizer, tokens):
    logits = model(tokens)
    F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def built(block, blocks=3):
    model = Tiny(block, blocks=blocks)
    return model, torch.optim.AdamW(model.parameters())


def words(tokens=TOKENS):
    return torch.randint(0, 48, (SAMPLES, tokens))


def outline(block, blocks=3):
    with without_weights():
        parts = built(block, blocks)
    return UserProgram(parts, step, [words()])


def run_of(program):
    def run():
        with comparable(wide=True), until_backward():
            program.step(*program.parts, program.batches[0])

    return run


@pytest.mark.parametrize("block", [NormedBlock, FusedBlock, WideBlock, ExpertBlock, SwitchBlock])
def test_found_without_weights_is_what_is_found_with_them(block):
    whole = program_of(lambda: built(block), words, step, 1, "float64")
    bones = skeleton_of(outline(block))
    assert bones.samples == whole.samples == SAMPLES
    assert bones.batches[0].shape[1] < TOKENS
    for degrees in (Degrees(), Degrees(tp=2), Degrees(dp=2, ep=2)):
        assert plan_of(bones, degrees) == plan_of(whole, degrees)
    if block is not ExpertBlock:  # a feed-forward and experts in one block: no model of the planner, either way
        assert traced_model(bones.model, run_of(bones), "it") == traced_model(whole.model, run_of(whole), "it")


def test_shared_tokens_are_found_as_well():
    bones, whole = skeleton_of(outline(WideBlock)), program_of(lambda: built(WideBlock), words, step, 1, "float64")
    assert plan_of(bones, Degrees(tp=2, sp=True)) == plan_of(whole, Degrees(tp=2, sp=True))
    assert plan_of(bones, Degrees(tp=2, sp=True)).kinds[0].whole_tokens == ""


class WithValues(LiveTensors):
    """Follows what is in memory alone."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tensors_in([*args, *(kwargs or {}).values(), out]):
            if not tensor.is_meta:
                self.storages.held(tensor, "")
        return out


def test_all_parameters_are_never_in_memory_at_once(monkeypatch):
    monkeypatch.setattr("shardwise.run.auto.skeleton.MOST_OUTSIDE", 100_000)

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(128), nn.Linear(128, 512), nn.Linear(512, 128)

        def forward(self, x):
            return x + self.down(self.up(self.norm(x)).relu())

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.blocks = nn.Embedding(10_000, 128), nn.ModuleList(Wide() for _ in range(100))
            self.head = nn.Linear(128, 10_000, bias=False)

        def forward(self, tokens):
            x = self.words(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    live = WithValues()
    with live:
        with without_weights():
            model = Model()
            parts = model, torch.optim.AdamW(model.parameters())
        plan = plan_of(skeleton_of(UserProgram(parts, step, [torch.randint(0, 10_000, (4, 64))])), Degrees(tp=2))
    size = sum(p.numel() for p in model.parameters())
    assert size > 15_000_000
    assert live.peak < 8 * size / 3
    stored = {p.untyped_storage()._cdata: p.untyped_storage().nbytes() for p in model.parameters()}
    assert sum(stored.values()) < 8 * size / 50
    assert plan.kinds[0].cuts
    assert len(plan.order) == 100


def test_what_is_built_without_weights_keeps_all_else():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False)
            shared = nn.Parameter(torch.randn(3))
            self.one, self.two = shared, shared
            self.head.weight = self.words.weight
            self.register_buffer("angles", torch.arange(4.0))

    with without_weights():
        model = Model().to("cpu").bfloat16()
        model.to_empty(device="cpu")
        nn.init.normal_(model.one)
    assert all(p.is_meta and p.dtype is torch.bfloat16 for p in model.parameters())
    assert model.head.weight is model.words.weight
    assert model.one is model.two
    assert not model.angles.is_meta
    assert not any(p.is_meta for p in Model().parameters()), "outside nothing is changed"


def test_batches_are_cut_where_they_have_tokens():
    tokens, images = torch.zeros(8, 513, dtype=torch.long), torch.zeros(6, 3, 64, 64)
    assert [extent for _, extent in shorter(tokens, experts=False)] == [Extent(2, 33), Extent(2, 129), Extent(2, 513)]
    pairs = next(iter(shorter((tokens, tokens[:, 1:]), experts=True)))[0]
    assert {x.shape[0] for x in pairs} == {8}
    assert pairs[0].shape[1] - pairs[1].shape[1] == 1
    assert extent_of((images, torch.zeros(6, dtype=torch.long))) == Extent(6, 0)
    assert [x.shape for x, _ in shorter(images, experts=False)] == [(2, 3, 64, 64)]


def test_numbers_are_made_smaller():
    assert [smaller(n, 16) for n in (4, 128, 256, 4096, 14336, 128256)] == [4, 128, 16, 256, 896, 8016]
    assert smaller_numbers({"hidden": 4096, "tied": True, "rope": [1e6, {"far": 8192}], "name": "x"}, 16) == {
        "hidden": 256, "tied": True, "rope": [1e6, {"far": 512}], "name": "x",
    }  # fmt: skip


def test_what_has_no_room_is_named():
    assert "a Block has 10,000,000,000,000 parameters" in refuse_tried("a Block", 10**13)
    assert refuse_tried("a Block", 1000) == ""
    assert "GiB" in refuse_trained(10**13, 4, 1)
    assert "hours on this machine; write fewer --steps" in refuse_trained(10**6, 4, 10**10)
    assert refuse_trained(10**6, 4, 10**6) == ""
    assert fits_with_values(10**6, 1024)
    assert not fits_with_values(10**6, 2**20), "a long step, not a large model"
    assert not fits_with_values(10**12, 1)


@pytest.fixture
def large(monkeypatch):
    """What has more than a million parameters counts as too large."""
    monkeypatch.setattr(shardwise.run.auto.answer, "fits_with_values", lambda parameters, _: parameters < 1_000_000)


@pytest.mark.usefixtures("large")
def test_a_large_script_is_proven_on_a_narrow_copy(tmp_path, capsys):
    (tmp_path / "big.py").write_text(SCRIPT.format(words=2048, width=512))
    assert main(["auto", str(tmp_path / "big.py"), "--on", "2xh100", "--fix", "tp=2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["holds"]
    assert found["proof"]["narrowed"] == 16
    assert found["split"]["tp"] == 2
    assert found["cuts"][0] == {
        "block": "Block", "blocks": 6, "share": pytest.approx(1.0, abs=0.01),
        "cuts": ["up by columns, down by rows", "q, k, v by columns, o by rows"],
    }  # fmt: skip
    assert found["prediction"]["step_s"] > 0


@pytest.mark.usefixtures("large")
def test_where_no_narrow_copy_can_be_it_is_told(tmp_path, capsys):
    (tmp_path / "big.py").write_text(SCRIPT.format(words="16 * 128", width="4 * 128"))
    assert main(["auto", str(tmp_path / "big.py"), "--on", "2xh100", "--fix", "tp=2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["holds"] is None
    assert "no narrow copy can be" in found["proof"]["not_run"]
    assert found["cuts"][0]["cuts"]


@pytest.mark.usefixtures("large")
def test_what_repeats_nothing_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "big.py").write_text(SCRIPT.format(words=20480, width=512).replace("range(6)", "range(1)"))
    assert main(["auto", str(tmp_path / "big.py"), "--on", "2xh100"]) == 2
    err = capsys.readouterr().err.strip()
    assert "no module repeats" in err
    assert "\n" not in err


@pytest.mark.usefixtures("large")
def test_tokens_that_are_written_into_the_code_are_made_fewer_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("shardwise.run.auto.skeleton.MOST_WORK", 2e9)
    text = SCRIPT.format(words=2048, width=640).replace("self.places(torch.arange(tokens.shape[1]", "self.angles(")
    text = text.replace("self.angles(, device=tokens.device))", "torch.arange(TOKENS).sin()[:, None]")
    (tmp_path / "big.py").write_text(text.replace(", nn.Embedding(TOKENS, WIDTH)", ", None"))
    plan = tmp_path / "plan.json"
    assert main(["auto", str(tmp_path / "big.py"), "--on", "2xh100", "--fix", "tp=2", "--out", str(plan)]) == 0
    found = json.loads(plan.read_text())
    assert (found["tokens"], found["samples"], found["boundary"]) == (512, 8, 8 * 512 * 640)
    assert "holds" in capsys.readouterr().out


def test_code_that_wants_its_own_tokens_gets_them_or_is_refused(monkeypatch):
    class Fixed(Tiny):
        def forward(self, tokens):
            assert tokens.shape[1] == TOKENS, "it takes 96 tokens"
            return super().forward(tokens)

    def fixed():
        with without_weights():
            model = Fixed(NormedBlock)
            return UserProgram((model, torch.optim.AdamW(model.parameters())), step, [words()])

    assert skeleton_of(fixed()).batches[0].shape == (2, TOKENS)
    monkeypatch.setattr("shardwise.run.auto.skeleton.MOST_WORK", 1.0)
    with pytest.raises(ValueError, match=r"shorter batch, on which it does not run \(it takes 96 tokens\)"):
        skeleton_of(fixed())
