"""The planner's Model told by what a module runs is the one its hand-written family reads from the configuration."""

import pytest
import torch
from msgspec.structs import replace
from small_models import WIDTH, FusedBlock, MixingBlock, NormedBlock, SwitchBlock, batch, program
from torch.utils.flop_counter import FlopCounterMode

from shardwise import catalog
from shardwise.run.auto.as_model import traced_model
from shardwise.run.auto.picture_ends import NotRecognised
from shardwise.spec.arch import model_from_config, model_of
from shardwise.spec.arch.tensors import matmul_parameters, parameters, products_per_token
from shardwise.spec.arch.traced import traced_config
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of

SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "vocab_size": 96,
    "intermediate_size": 128,
}
PICTURES = {
    **{name: size for name, size in SMALL.items() if name != "vocab_size"},
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 10,
}
GROUPED = {**SMALL, "num_key_value_heads": 4}
EXPERTS = {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}
FAMILIES = {
    "Llama": ("LlamaForCausalLM", GROUPED),
    "Qwen3": ("Qwen3ForCausalLM", {**GROUPED, "head_dim": 16}),
    "Mixtral": ("MixtralForCausalLM", EXPERTS),
    "GPT2": ("GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 8, "vocab_size": 96, "n_positions": 32}),
    "Bert": ("BertForPreTraining", {**SMALL, "max_position_embeddings": 32}),
    "ViT": ("ViTForImageClassification", PICTURES),
    "DeiT": ("DeiTForImageClassification", PICTURES),
}
NOT_SEEN = ("family", "context", "norm_epsilon", "rope_theta", "source")
"""what a module's shapes do not tell, and what no cost depends on"""


def traced(model):
    return traced_model(model, lambda: model(batch()), "mine")


def test_a_module_nobody_wrote_a_family_for():
    own = program(NormedBlock, tied=False).model
    found = traced(own.float())
    (layer,) = found.kinds
    assert (layer.attention.heads, layer.attention.kv_heads, layer.attention.qk_norm) == (4, 2, "head")
    assert (layer.feed_forward.width, layer.feed_forward.glu) == (48, True)
    assert found.pattern == (0, 0)
    assert parameters(found) == sum(p.numel() for p in own.parameters())


def test_a_fused_block_is_the_same_to_the_planner():
    found = traced(program(FusedBlock).model.float())
    assert found.tied
    assert found.kinds[0].attention.bias_qkv


def test_a_router_may_be_a_module_of_its_own():
    own = program(SwitchBlock).model.float()
    found = traced(own)
    assert (found.kinds[0].experts.count, found.kinds[0].experts.top_k, found.kinds[0].experts.width) == (4, 2, 24)
    assert parameters(found) == sum(p.numel() for p in own.parameters())


def test_what_is_not_recognised_is_refused():
    with pytest.raises(NotRecognised, match="0 scaled dot-product attentions"):
        traced(program(MixingBlock).model.float())


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_what_the_family_reads(family):
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: no family to compare with"
    )
    name, fields = FAMILIES[family]
    config = getattr(transformers, f"{family}Config")(**fields)
    model = getattr(transformers, name)(config).eval()
    given = torch.randn(2, 3, 32, 32) if "patch_size" in fields else torch.randint(3, 96, (2, 8))
    found = traced_model(model, lambda: model(given), "mine")
    wanted = model_from_config(config.to_dict(), "mine")
    same = {field: getattr(wanted, field) for field in NOT_SEEN}
    assert replace(found, **same) == wanted


@pytest.mark.parametrize("name", ["vit-l-16", "vit-h-14"])
@pytest.mark.parametrize("policy", [Policy(dp=8, zero=3, micro_batch=16), Policy(dp=2, tp=2, pp=2, sp=False)])
def test_a_real_picture_model_costs_what_its_family_says(name, policy):
    """On the meta device: nothing of it is computed."""
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: no family to compare with"
    )
    entry = catalog.entry("models", name)
    config = transformers.ViTConfig(**{key: value for key, value in entry.items() if key in VIT_FIELDS})
    with torch.device("meta"):
        model = transformers.ViTForImageClassification(config).eval()
        found = traced_model(model, lambda: model(torch.empty(2, 3, 224, 224)), name)
    wanted = model_of(name)
    assert parameters(found) == parameters(wanted) == sum(p.numel() for p in model.parameters())
    assert products_per_token(found) == products_per_token(wanted)
    steps, peaks = zip(*(_estimated(each, policy) for each in (found, wanted)), strict=True)
    assert steps[0] == pytest.approx(steps[1], rel=0.03)
    assert peaks[0] == pytest.approx(peaks[1], rel=0.02)


VIT_FIELDS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "image_size", "patch_size",
    "num_labels",
)  # fmt: skip


def _estimated(model, policy):
    job = Job(seq=model.sample_tokens, global_batch=256)
    case = case_of(model, cluster_of("8xh100"), job, stack_of("torchtitan"))
    found = estimate(case, Policies.of([policy]))
    return float(found.times.step_s[0]), float(found.memory.peak[0])


def test_a_classifier_of_words_has_a_head_of_one_row_a_sample():
    own = Classifier().float()
    found = traced(own)
    assert found.head_once
    assert parameters(found) == sum(p.numel() for p in own.parameters())
    every = replace(found, head_once=False)
    saved = (1 - 1 / 8) * WIDTH * 5
    assert products_per_token(every, seq=8) - products_per_token(found, seq=8) == pytest.approx(saved)


def test_a_product_behind_a_table_reads_no_patches():
    own = Classifier(narrow=8).float()
    found = traced(own)
    assert found.inputs == "tokens"
    assert parameters(found) == sum(p.numel() for p in own.parameters())
    assert [each.product for each in found.kinds[found.pattern[0]].further] == [False, True]


class Classifier(torch.nn.Module):
    """Words, blocks, and a class of each sample, told from its first word."""

    def __init__(self, narrow: int = 0) -> None:
        super().__init__()
        words = torch.nn.Embedding(48, narrow or WIDTH)
        self.words = torch.nn.Sequential(words, torch.nn.Linear(narrow, WIDTH)) if narrow else words
        self.blocks = torch.nn.ModuleList(FusedBlock() for _ in range(2))
        self.norm, self.out = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 5)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x)[:, 0])


class Pictures(torch.nn.Module):
    """Patches, places, a condition that is added once a sample, blocks, and an output for every patch."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, WIDTH, 4, 4)
        self.places = torch.nn.Parameter(torch.zeros(1, 16, WIDTH))
        self.classes = torch.nn.Embedding(10, WIDTH)
        self.blocks = torch.nn.ModuleList(FusedBlock() for _ in range(2))
        self.norm, self.out = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 40)

    def forward(self, pictures: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        x = self.patches(pictures).flatten(2).transpose(1, 2) + self.places + self.classes(classes).unsqueeze(1)
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


def test_a_model_of_pictures_has_its_parameters_and_products():
    model, samples = Pictures(), 2
    given = torch.randn(samples, 3, 16, 16), torch.zeros(samples, dtype=torch.int64)
    found = traced_model(model, lambda: model(*given), "mine")
    assert parameters(found) == sum(p.numel() for p in model.parameters())
    with FlopCounterMode(display=False) as counted:
        model(*given)
    ops = counted.get_flop_counts()["Global"].items()
    products = sum(flops for op, flops in ops if "attention" not in str(op))
    assert products == 2 * samples * 16 * matmul_parameters(found)


def test_it_is_read_as_it_was_written():
    found = traced(program(NormedBlock).model.float())
    again = model_from_config(traced_config(found), found.name)
    assert replace(again, context=found.context) == found
    assert parameters(again) == parameters(found)


@pytest.mark.parametrize(
    "change", [{"model": None}, {"model": {"hidden": "wide"}}, {"model": {"hidden": -1}}, {"model": 3}]
)
def test_a_file_that_is_none_is_refused_in_one_line(change):
    config = traced_config(traced(program(NormedBlock).model.float()))
    broken = {**config["model"], **change["model"]} if isinstance(change["model"], dict) else change["model"]
    with pytest.raises(ValueError, match=r"model mine: .*--model-out") as told:
        model_from_config({**config, "model": broken}, "mine")
    assert "\n" not in str(told.value)
