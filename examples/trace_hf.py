"""A Hugging Face model as it is: `pip install transformers`, nothing is downloaded.

    shardwise trace examples/trace_hf.py --on 8xh100     # FSDP2 around each of its layers, as written below
    shardwise auto examples/trace_hf.py --on 8xh100      # for one process, and shardwise splits it

`SHAPE=tiny` takes a model of two small layers.
"""

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

SHAPES = {
    # Llama 3.2 1B, and a toy of it
    "1b": {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True,
    },
    "tiny": {
        "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 256, "tie_word_embeddings": True,
    },
}  # fmt: skip
SHAPE = SHAPES[os.environ.get("SHAPE", "1b")]
SEQ, SAMPLES = (4096, 2) if SHAPE["hidden_size"] > 64 else (32, 2)


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = LlamaForCausalLM(LlamaConfig(**SHAPE, use_cache=False)).cuda()
    if dist.is_initialized():  # not under `auto`, which takes a program for one process
        mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for part in (*model.model.layers, model):
            fully_shard(part, mesh=mesh, mp_policy=precision)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-4)


def batch() -> Tensor:
    return torch.randint(0, SHAPE["vocab_size"], (SAMPLES, SEQ), device="cuda")


def step(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
