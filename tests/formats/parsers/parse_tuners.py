"""The own classes of TRL, Axolotl and LLaMA-Factory; prints what they make of a file. `parse_tuners.py PROGRAM FILE`"""

import json
import os
import re
import shlex
import sys
import types
from pathlib import Path

program, file = sys.argv[1], Path(sys.argv[2])
os.environ["DISABLE_VERSION_CHECK"] = "1"
if program == "trl":
    from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser

    words = shlex.split(re.search(r"ARGS=\((.*?)\n\)", file.read_text(), re.S).group(1))
    _, trainer, model = TrlParser((ScriptArguments, SFTConfig, ModelConfig)).parse_args_and_config(
        [*words, "--use_cpu"]
    )
    found = {
        "seq": trainer.max_length, "micro": trainer.per_device_train_batch_size, "rank": model.lora_r,
        "steps": trainer.gradient_accumulation_steps, "four_bits": model.load_in_4bit, "dora": model.use_dora,
        "targets": model.lora_target_modules, "double": model.use_bnb_nested_quant, "packing": trainer.packing,
    }  # fmt: skip
elif program == "axolotl":
    sys.modules["ring_flash_attn"] = types.ModuleType("ring_flash_attn")  # asked for, not used
    import yaml
    from axolotl.utils.schemas.config import AxolotlInputConfig

    read = AxolotlInputConfig(**yaml.safe_load(file.read_text()))
    targets = "all-linear" if read.lora_target_linear else read.lora_target_modules
    found = {
        "seq": read.sequence_len, "micro": read.micro_batch_size, "rank": read.lora_r, "cp": read.context_parallel_size,
        "steps": read.gradient_accumulation_steps, "four_bits": read.load_in_4bit, "dora": bool(read.peft_use_dora),
        "targets": targets, "shard": read.dp_shard_size, "packing": read.sample_packing,
        "double": (read.bnb_config_kwargs or {}).get("bnb_4bit_use_double_quant", True),
        "reshards": read.fsdp_config.reshard_after_forward,
    }  # fmt: skip
else:
    import yaml
    from llamafactory.hparams.parser import _TRAIN_ARGS
    from transformers import HfArgumentParser

    values = yaml.safe_load(file.read_text()) | {"use_cpu": True}
    model, data, trainer, tuned, _ = HfArgumentParser(_TRAIN_ARGS).parse_dict(values)
    found = {
        # its own way to a length that 8 divides: packed sequences get one more
        "seq": data.cutoff_len + data.packing, "micro": trainer.per_device_train_batch_size, "rank": tuned.lora_rank,
        "steps": trainer.gradient_accumulation_steps, "four_bits": model.quantization_bit == 4,
        "dora": tuned.use_dora, "targets": "all-linear" if tuned.lora_target == ["all"] else tuned.lora_target,
        "double": model.double_quantization, "packing": data.packing,
        "recomputes": not model.disable_gradient_checkpointing,
    }  # fmt: skip
print(json.dumps(found, default=str))
