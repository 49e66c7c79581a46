"""A fourth set of training steps, none of the first three: predicted and committed before any of them was measured, and
no constant was changed between. `_trace_programs.py` says how they are run."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from _trace_programs import DEVICE, PROGRAMS, Program, _timm, grouped, language, pictures
from _trace_programs_third import OwnGpt, _library, _next_word, _words, own

BEFORE = frozenset(PROGRAMS)

# Decoders of Hugging Face.
language("olmo-1b", "olmo", "OlmoForCausalLM", 4, 2048, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
         num_attention_heads=16, num_key_value_heads=16, vocab_size=50304)  # fmt: skip
language("mpt-1b-cut", "mpt", "MptForCausalLM", 2, 2048, d_model=2048, n_heads=16, n_layers=12, vocab_size=50432,
         max_seq_len=2048)  # fmt: skip
language("nemotron-cut", "nemotron", "NemotronForCausalLM", 2, 2048, precision="autocast", hidden_size=3072,
         intermediate_size=9216, num_hidden_layers=8, num_attention_heads=24, num_key_value_heads=8, head_dim=128,
         vocab_size=128000)  # fmt: skip
language("gpt-bigcode-1b", "gpt-bigcode", "GPTBigCodeForCausalLM", 4, 2048, n_embd=2048, n_layer=24, n_head=16,
         n_inner=8192, n_positions=8192, vocab_size=49280, multi_query=True)  # fmt: skip
language("gpt-neo-125m", "gpt-neo", "GPTNeoForCausalLM", 8, 1024, precision="autocast", hidden_size=768, num_layers=12,
         num_heads=12, attention_types=[[["global", "local"], 6]], vocab_size=50257,
         max_position_embeddings=2048)  # fmt: skip
language("qwen2-moe-cut", "experts", "Qwen2MoeForCausalLM", 2, 2048, hidden_size=2048, intermediate_size=5632,
         moe_intermediate_size=1408, shared_expert_intermediate_size=5632, num_hidden_layers=6, num_attention_heads=16,
         num_key_value_heads=16, num_experts=60, num_experts_per_tok=4, vocab_size=151936,
         experts_implementation="grouped_mm")  # fmt: skip
language("qwen3-4b-lora-checkpointed", "lora", "Qwen3ForCausalLM", 2, 4096, lora=True, checkpoint=True,
         hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32,
         num_key_value_heads=8, head_dim=128, vocab_size=151936, tie_word_embeddings=True)  # fmt: skip
language("olmo-compiled", "compiled", "OlmoForCausalLM", 4, 2048, compiled=True, hidden_size=1024,
         intermediate_size=4096, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=16,
         vocab_size=50304)  # fmt: skip

# Encoders, and encoders with decoders.
language("distilbert-base", "distilbert", "DistilBertForMaskedLM", 32, 512, precision="autocast", padded=True, dim=768,
         hidden_dim=3072, n_layers=6, n_heads=12, vocab_size=30522)  # fmt: skip
language("albert-large", "albert", "AlbertForMaskedLM", 16, 512, config="AlbertConfig", precision="autocast",
         hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, embedding_size=128,
         vocab_size=30000)  # fmt: skip
language("mpnet-base", "mpnet", "MPNetForMaskedLM", 32, 512, precision="autocast", hidden_size=768,
         intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, vocab_size=30527)  # fmt: skip
language("xlm-roberta-base", "xlm-roberta", "XLMRobertaForMaskedLM", 16, 512, hidden_size=768, intermediate_size=3072,
         num_hidden_layers=12, num_attention_heads=12, vocab_size=250002, max_position_embeddings=514)  # fmt: skip
language("pegasus-cut", "pegasus", "PegasusForConditionalGeneration", 8, 512, config="PegasusConfig",
         precision="autocast", d_model=1024, encoder_layers=8, decoder_layers=8, encoder_ffn_dim=4096,
         decoder_ffn_dim=4096, encoder_attention_heads=16, decoder_attention_heads=16, vocab_size=96104)  # fmt: skip
language("mt5-small", "mt5", "MT5ForConditionalGeneration", 16, 256, config="MT5Config", precision="autocast",
         d_model=512, d_ff=1024, d_kv=64, num_layers=8, num_heads=6, vocab_size=250112, decoder_start_token_id=0,
         pad_token_id=0)  # fmt: skip

# Sound and pictures of Hugging Face.
own("hubert-large", "hubert",
    _library("HubertForSequenceClassification", config="HubertConfig", hidden_size=1024, num_hidden_layers=12,
             num_attention_heads=16, intermediate_size=4096, feat_extract_norm="layer", do_stable_layer_norm=True,
             apply_spec_augment=False, layerdrop=0.0, num_labels=32),
    lambda: (torch.randn(8, 160000, device=DEVICE), torch.randint(0, 32, (8,), device=DEVICE)),
    lambda model, given: model(input_values=given[0], labels=given[1]).loss)  # fmt: skip
own("ast-base", "ast", _library("ASTForAudioClassification", config="ASTConfig", num_labels=527),
    lambda: (torch.randn(16, 1024, 128, device=DEVICE), torch.randint(0, 527, (16,), device=DEVICE)),
    lambda model, given: model(input_values=given[0], labels=given[1]).loss)  # fmt: skip
own("dinov2-base", "dinov2", _library("Dinov2ForImageClassification", config="Dinov2Config", num_labels=1000),
    lambda: (torch.randn(64, 3, 224, 224, device=DEVICE), torch.randint(0, 1000, (64,), device=DEVICE)),
    lambda model, given: model(pixel_values=given[0], labels=given[1]).loss)  # fmt: skip
own("videomae-base", "videomae", _library("VideoMAEForVideoClassification", config="VideoMAEConfig", num_labels=400),
    lambda: (torch.randn(8, 16, 3, 224, 224, device=DEVICE), torch.randint(0, 400, (8,), device=DEVICE)),
    lambda model, given: model(pixel_values=given[0], labels=given[1]).loss)  # fmt: skip

# Pictures of timm.
pictures("timm-mobilenetv2", "timm", _timm("mobilenetv2_100"), 256, last=True)
pictures("timm-seresnext50", "timm", _timm("seresnext50_32x4d"), 128, last=True)
pictures("timm-coatnet-0", "timm", _timm("coatnet_0_rw_224"), 64)
pictures("timm-pvt-v2-b2", "timm", _timm("pvt_v2_b2"), 64)
pictures("timm-vgg16-bn", "timm", _timm("vgg16_bn"), 64)
pictures("timm-cait-s24", "timm", _timm("cait_s24_224"), 64)
pictures("timm-convmixer", "timm", _timm("convmixer_768_32"), 64, last=True)


# Plain torch.
class Messages(nn.Module):
    """A graph network: what comes over each edge is added up at its end."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.edges = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.nodes = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))

    def forward(self, x: Tensor, start: Tensor, end: Tensor) -> Tensor:
        for edge, node in zip(self.edges, self.nodes, strict=True):
            sent = F.relu(edge(torch.cat((x[start], x[end]), -1)))
            got = torch.zeros_like(x).index_add(0, end, sent.to(x.dtype))
            x = x + F.relu(node(torch.cat((x, got), -1)))
        return x


def _graph() -> Any:
    nodes, edges = 32768, 262144
    return (torch.randn(nodes, 256, device=DEVICE), *torch.randint(0, nodes, (2, edges), device=DEVICE))


own("own-graph-network", "own", lambda: Messages(256, 6), _graph,
    lambda model, given: model(*given).float().square().mean())  # fmt: skip


class Critic(nn.Module):
    """The discriminator of a DCGAN behind its generator, in 32 bits."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        made: list[nn.Module] = []
        for inner, outer in ((100, 8 * width), (8 * width, 4 * width), (4 * width, 2 * width), (2 * width, width)):
            made += [nn.ConvTranspose2d(inner, outer, 4, 2, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(True)]
        made += [nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh()]
        for inner, outer in ((3, width), (width, 2 * width), (2 * width, 4 * width), (4 * width, 8 * width)):
            made += [nn.Conv2d(inner, outer, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
        self.layers = nn.Sequential(*made)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x)
        return found


own("own-dcgan-fp32", "own", Critic, lambda: torch.randn(512, 100, 2, 2, device=DEVICE),
    lambda model, x: model(x).square().mean(), dtype=None)  # fmt: skip


def titan(name: str) -> None:
    """A decoder as torchtitan trains it: FSDP2 around each block, a fused optimizer, clipping."""

    def build() -> tuple[Any, ...]:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        grouped()
        mesh = init_device_mesh("cuda", (1,), mesh_dim_names=("dp",))
        with torch.device(DEVICE):
            model: Any = OwnGpt(2048, 16, 16, 32000, 2048)
        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for part in (*model.blocks, model):
            fully_shard(part, mesh=mesh, mp_policy=precision)
        return model, torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
        _next_word(model, tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    PROGRAMS[name] = Program("sharded", build, _words(4, 2048, 32000), step)


titan("own-gpt-titan")
FOURTH = [name for name in PROGRAMS if name not in BEFORE]
