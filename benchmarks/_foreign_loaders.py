"""A checkpoint loaded by the program it is for: `_foreign_loaders.py PROGRAM FOLDER OUT.json` writes the SHA-256 of
every weight and moment as the program has them after loading, by kind and name."""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch
import torch.multiprocessing as mp

from _foreign_samples import Net, free_port, join, megatron_model, sharded

STEP_KINDS = ("exp_avg", "exp_avg_sq", "step")


def digest(tensor: Any) -> str:
    whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    plain = whole.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(plain.numpy().tobytes()).hexdigest()


def torch_state(model: Any, optimizer: Any) -> dict[str, str]:
    found = {f"weight {name}": digest(one) for name, one in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for kind in STEP_KINDS:
            found[f"{kind} {name}"] = digest(optimizer.state[parameter][kind])
    return found


def fsdp2(rank: int, folder: str) -> dict[str, str]:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    # as the job that it came from: DeepSpeed's has no schedule
    kept = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    scheduled = any(name.startswith("scheduler.") for name in kept)
    model, optimizer, schedule = sharded(rank, steps=1, scheduled=scheduled)
    weights, state = get_state_dict(model, optimizer)
    everything = {"model": weights, "optim": state} | ({"scheduler": schedule.state_dict()} if scheduled else {})
    dcp.load(everything, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    found = torch_state(model, optimizer) | {"learning rate": str(optimizer.param_groups[0]["lr"])}
    if scheduled:
        schedule.load_state_dict(everything["scheduler"])
        found["schedule"] = str(schedule.last_epoch)
    return found


def torchtitan(rank: int, folder: str) -> dict[str, str]:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )
    from torchtitan.components.checkpoint import ModelWrapper

    model, optimizer, _ = sharded(rank, steps=1)
    wrapper, flat = ModelWrapper([model]), StateDictOptions(flatten_optimizer_state_dict=True)
    states = wrapper.state_dict() | {"optimizer": get_optimizer_state_dict(model, optimizer, options=flat)}
    dcp.load(states, checkpoint_id=folder)
    wrapper.load_state_dict({name: one for name, one in states.items() if name != "optimizer"})
    set_optimizer_state_dict(model, optimizer, states["optimizer"], options=flat)
    return torch_state(model, optimizer) | {"learning rate": str(optimizer.param_groups[0]["lr"])}


def megatron(rank: int, folder: str) -> dict[str, str]:
    """Each rank's own shards, so that both ranks' are told apart."""
    from megatron.core import dist_checkpointing

    _, _, everything = megatron_model()
    loaded = dist_checkpointing.load(everything, folder)
    found = {f"rank {rank} weight {n}": digest(one) for n, one in loaded.items() if isinstance(one, torch.Tensor)}
    for number, state in loaded["optimizer"]["state"].items():
        if isinstance(state, dict):
            found |= {f"rank {rank} {kind} {number}": digest(one) for kind, one in state.items()}
    return found | {"iteration": str(loaded["iteration"])}


def deepspeed(_rank: int, folder: str) -> dict[str, str]:
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    from _foreign_samples import deepspeed_engine

    engine = deepspeed_engine(1, {"checkpoint": {"load_universal": True}})
    engine.load_checkpoint(folder)
    found = {}
    for name, parameter in engine.module.named_parameters():
        found[f"weight {name}"] = digest(safe_get_full_fp32_param(parameter))
        for kind in STEP_KINDS[:2]:
            found[f"{kind} {name}"] = digest(safe_get_full_optimizer_state(parameter, kind))
    return found | {"steps": str(engine.global_steps)}


def transformers(_rank: int, folder: str) -> dict[str, str]:
    from transformers import AutoModelForCausalLM

    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.bfloat16)
    assert not any(map(len, report.values())), report
    return {f"weight {name}": digest(one) for name, one in model.state_dict().items()}


def safetensors(_rank: int, folder: str) -> dict[str, str]:
    from safetensors.torch import load_file

    model = Net()
    model.load_state_dict(load_file(f"{folder}/model.safetensors"))
    return {f"weight {name}": digest(one) for name, one in model.state_dict().items()}


LOADERS = {
    "fsdp2": fsdp2, "torchtitan": torchtitan, "megatron": megatron, "deepspeed": deepspeed,
    "transformers": transformers, "safetensors": safetensors,
}  # fmt: skip


def one_rank(rank: int, program: str, folder: str, out: str, port: int) -> None:
    join(rank, port)
    found = LOADERS[program](rank, folder)
    parts: list[Any] = [None, None]
    torch.distributed.all_gather_object(parts, found)
    if rank == 0:
        Path(out).write_text(json.dumps(parts[0] | parts[1]))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main(program: str, folder: str, out: str) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    mp.spawn(one_rank, args=(program, folder, out, free_port()), nprocs=2)


if __name__ == "__main__":
    main(*sys.argv[1:])
