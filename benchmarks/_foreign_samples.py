"""Small checkpoints written by the programs themselves, on CPU ranks: `_foreign_samples.py PROGRAM FOLDER`.

Run by an interpreter in which the program is installed; one that is not is reported as missing by foreign.py.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

RANKS = 2
STEPS = 3


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3 * width + 1, bias=False)
        self.down = nn.Linear(3 * width + 1, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width: int = 6, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(17, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, 17, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def loss_of(model: Any, rank: int, step: int) -> torch.Tensor:
    words = torch.randint(0, 17, (4, 8), generator=torch.Generator().manual_seed(100 * step + rank))
    return nn.functional.cross_entropy(model(words).flatten(0, 1).float(), words.flatten())


def sharded(rank: int, steps: int = STEPS, *, scheduled: bool = True) -> tuple[Any, Any, Any]:
    """Model, optimizer and schedule under FSDP2, after a few steps."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(1)
    model = Net()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)) if scheduled else None
    for step in range(steps):
        loss_of(model, rank, step).backward()
        optimizer.step()
        optimizer.zero_grad()
        if schedule is not None:
            schedule.step()
    return model, optimizer, schedule


def fsdp2(rank: int, folder: str) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model, optimizer, schedule = sharded(rank)
    weights, state = get_state_dict(model, optimizer)
    rest = {"scheduler": schedule.state_dict(), "rng": torch.get_rng_state(), "step": STEPS}
    dcp.save({"model": weights, "optim": state, **rest}, checkpoint_id=folder)


def torchtitan(rank: int, folder: str) -> None:
    """As its CheckpointManager lays it out: bare model names, flat optimizer, train_state, by its own containers."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
    from torchtitan.components.checkpoint import ModelWrapper

    model, optimizer, schedule = sharded(rank)
    states = ModelWrapper([model]).state_dict()
    flat = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    states |= {"optimizer": flat, "lr_scheduler": schedule.state_dict()}
    states["train_state"] = {"step": torch.tensor(STEPS), "ntokens_seen": torch.tensor(96)}
    dcp.save(states, checkpoint_id=folder)


def deepspeed_engine(stage: int, more: dict[str, Any]) -> Any:
    import deepspeed
    import deepspeed.comm.torch

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]  # it compiles C++
    torch.manual_seed(1)
    model = Net()
    if stage == 3:
        with deepspeed.zero.Init(config_dict_or_path={"zero_optimization": {"stage": 3}, "train_batch_size": 8}):
            model = Net()
    config = {
        "train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True, **more,
    }  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def deepspeed(rank: int, folder: str, stage: int = 1) -> None:
    engine = deepspeed_engine(stage, {})
    for step in range(STEPS):
        engine.backward(loss_of(engine, rank, step))
        engine.step()
    engine.save_checkpoint(folder, tag=f"global_step{STEPS}")


def deepspeed1(rank: int, folder: str) -> None:
    deepspeed(rank, folder, 1)


def deepspeed2(rank: int, folder: str) -> None:
    deepspeed(rank, folder, 2)


def deepspeed3(rank: int, folder: str) -> None:
    deepspeed(rank, folder, 3)


def megatron_model() -> tuple[Any, Any, dict[str, Any]]:
    """Its own layers, tensor parallel over two ranks; moments as its optimizer names them."""
    from argparse import Namespace

    from megatron.core import parallel_state
    from megatron.core.dist_checkpointing.optimizer import (
        get_param_id_to_sharded_param_map,
        optim_state_to_sharding_state,
    )
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_config import TransformerConfig

    torch.cuda.synchronize = lambda *_: None  # its writer calls these whatever the device
    torch.cuda.current_device = lambda: "cpu"
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=RANKS)
    torch.manual_seed(1)
    config = TransformerConfig(
        num_layers=2, hidden_size=8, num_attention_heads=4, num_query_groups=2, use_cpu_initialization=True,
        gated_linear_unit=True, normalization="RMSNorm", add_bias_linear=False, tensor_model_parallel_size=RANKS,
        persist_layer_norm=False, bias_dropout_fusion=False, gradient_accumulation_fusion=False,
    )  # fmt: skip
    model = GPTModel(
        config, get_gpt_layer_local_spec(normalization="RMSNorm"), vocab_size=32, max_sequence_length=16,
        position_embedding_type="rope", share_embeddings_and_output_weights=False,
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    weights = model.sharded_state_dict()
    state = optimizer.state_dict()
    ids = get_param_id_to_sharded_param_map(weights, model.parameters())
    steps = {one.pop("step") for one in state["state"].values()}
    optim_state_to_sharding_state(state, ids)
    state["state"]["common_step"] = int(next(iter(steps)))
    args = Namespace(num_layers=2, hidden_size=8, tensor_model_parallel_size=RANKS)
    return model, optimizer, {**weights, "optimizer": state, "iteration": 1, "args": args, "checkpoint_version": 3.0}


def megatron(_rank: int, folder: str) -> None:
    from megatron.core import dist_checkpointing

    dist_checkpointing.save(megatron_model()[2], folder)


def transformers(rank: int, folder: str) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    if rank:
        return
    torch.manual_seed(1)
    config = LlamaConfig(
        hidden_size=16, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=64, max_position_embeddings=64, tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder, max_shard_size="6KB")


WRITERS = {
    "fsdp2": fsdp2, "torchtitan": torchtitan, "deepspeed1": deepspeed1, "deepspeed2": deepspeed2,
    "deepspeed3": deepspeed3, "megatron": megatron, "transformers": transformers,
}  # fmt: skip


def join(rank: int, port: int) -> None:
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "LOCAL_SIZE": str(RANKS),
    }  # fmt: skip
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def one_rank(rank: int, program: str, folder: str, port: int) -> None:
    join(rank, port)
    WRITERS[program](rank, folder)
    dist.barrier()
    dist.destroy_process_group()


def main(program: str, folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    mp.spawn(one_rank, args=(program, folder, free_port()), nprocs=RANKS)


if __name__ == "__main__":
    main(*sys.argv[1:])
