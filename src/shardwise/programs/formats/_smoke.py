"""What an exported folder still needs from its user, and how to try it: a few steps on tiny data, on CPUs too where the
program itself runs on them."""

import re
from collections.abc import Mapping

TRIAL = "smoke.py"
OPEN = re.compile(r"\$\{(\w+):\?")
TOY = """\
import sys

import torch
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

words = ["--output_dir", "smoke", "--report_to", "none"]
(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses([*sys.argv[1:], *words])
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=128, num_key_value_heads=2, **sizes))
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 128, (64, 32))]
Trainer(model, arguments, train_dataset=rows).train()
"""
"""of Hugging Face's Trainer, under accelerate"""
OWN_LOOP = """\
import argparse

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
arguments = deepspeed.add_config_arguments(parser).parse_args()
deepspeed.init_distributed()
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
engine, *_ = deepspeed.initialize(args=arguments, model=model, model_parameters=model.parameters())
kept = next(engine.parameters())
for _ in range(2 * engine.gradient_accumulation_steps()):
    batch = torch.randn(engine.train_micro_batch_size_per_gpu(), 64, dtype=kept.dtype, device=engine.device)
    engine.backward(engine(batch).float().square().mean())
    engine.step()
print(f"smoke: {engine.global_steps} steps of ZeRO {engine.zero_optimization_stage()}")
"""
"""of a training loop of one's own, under DeepSpeed"""
DATA = """\
import json, os

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

words = {word: number for number, word in enumerate(["<unk>", "<eos>", *map(str, range(126))])}
plain = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
tokens = PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="<unk>", eos_token="<eos>", pad_token="<eos>")
tokens.save_pretrained("smoke/model")
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
LlamaForCausalLM(LlamaConfig(vocab_size=128, num_key_value_heads=2, **sizes)).save_pretrained("smoke/model")
os.makedirs("smoke/data", exist_ok=True)
with open("smoke/data/train.jsonl", "w") as file:
    file.writelines(json.dumps({"text": " ".join(map(str, range(each, each + 60)))}) + "\\n" for each in range(64))
"""
"""a model and a data set of nearly nothing, for TRL"""


def with_smoke(files: Mapping[str, str], smoke: str) -> tuple[dict[str, str], list[str]]:
    """The files, the script of which ends with what is to be filled in and how to try it; and the same as notes."""
    found = dict(files)
    script = found["train.sh"]
    open_ones = list(dict.fromkeys(OPEN.findall(script)))
    said = [f"fill in: {', '.join(open_ones)}"] if open_ones else []
    if smoke:
        command = smoke if "train.sh" in smoke else f"bash train.sh {smoke}"
        said.append(f"a few steps on tiny data: {command}")
    found["train.sh"] = script + "".join(f"# {line}\n" for line in said)
    if smoke:
        said[-1] = "a few steps on tiny data: the last line of train.sh"
    return found, said
