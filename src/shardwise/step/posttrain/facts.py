"""Facts of the programs that post-train: engine, trainer, transfers, and what each adds around them.

Constants are in catalog/posttrain.toml, with source and the rows that each was fitted on.
"""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from shardwise import catalog
from shardwise.fields import read_file
from shardwise.registry import closest

FILE = Path(catalog.__file__).with_name("posttrain.toml")


class EngineFacts(Struct, frozen=True, kw_only=True):
    """What an inference engine takes besides its kernels."""

    step_s: float
    """of the host for each engine step that no kernel hides"""
    sequence_s: float
    """the same for each running sequence: sampling, detokenizing, the scheduler"""
    most_sequences: int
    """`max_num_seqs` where nobody states it"""
    reserve_bytes: float
    """CUDA graphs, activations of a prefill, the communication library"""
    sampler_bytes: float
    """bytes that sampling moves for each sequence and word of the vocabulary"""
    attention: str = "flash"
    """kernel of a prefill"""
    whole_reach: float = 0.0
    """share of the bandwidth at which its decode kernel reads contexts that it does not split; 0: it splits all"""


class TransferFacts(Struct, frozen=True, kw_only=True):
    """How weights get from trainer to engine."""

    fixed_s: float
    """to pause, flush the cache and resume"""
    rate: float = 0.0
    """bytes/s of the whole model, gathered and converted on the way; 0: nothing waits for it"""
    gpu_rate: float = 0.0
    """bytes/s of an engine GPU's part, as the trainer has it; 0: nothing waits for it"""
    expert_s: float = 0.0
    """for each expert's matrix, or its slice, that an engine GPU loads by itself"""
    host_rate: float = 0.0
    """bytes/s of a trainer rank's fp32 weights that wait in host memory until they are sent; 0: in the rest"""
    shared_experts: bool = False
    """a trainer whose ranks keep their experts apart sends them from all ranks at once, fused"""
    source: str


class ProgramFacts(Struct, frozen=True, kw_only=True):
    """A post-training program as its recipes run it."""

    trainer: str
    """stack of the update: a name of `catalog programs`"""
    engine: str
    colocated_share: float
    """of GPU memory the engine may fill beside the trainer"""
    split_share: float
    together: str
    """path of the weights on shared GPUs: a name of `transfers`"""
    apart: str
    fixed_s: float
    """of a step that belongs to no phase: data, rewards by rule, advantages, the controller"""
    sequence_s: float
    """the same for each sequence"""
    rollout: float
    """time of a rollout over the laws of its kernels: unequal replicas, graphs padded to fixed batches, preemption"""
    log_prob: float
    """time of the policy's pass for log-probabilities over that of a training forward; verl's has the entropy too"""
    frozen: float
    """the same of a frozen model, or a critic"""
    update: float
    """time of the trainer's passes over our estimate of it alone: unequal lengths, packing, data on the way"""
    steps: int
    """published ones that the prediction was held against"""
    lends: bool = False
    """trainers may roll out while they would wait"""
    offloads: bool
    """the trainer's state waits in host memory while the engine runs"""
    sleeps: bool = True
    """an engine on shared GPUs gives its memory back while the trainer updates"""
    source: str


class ErrorFacts(Struct, frozen=True, kw_only=True):
    """Measured over predicted of steps whose source was left out of the fit: 80 % of them lie between."""

    low: float
    high: float
    source: str


class PosttrainFacts(Struct, frozen=True, kw_only=True):
    engines: dict[str, EngineFacts]
    transfers: dict[str, TransferFacts]
    programs: dict[str, ProgramFacts]
    error: ErrorFacts
    """of a program with published steps"""
    error_elsewhere: ErrorFacts
    """of the others"""

    def program(self, name: str) -> ProgramFacts:
        if name not in self.programs:
            raise ValueError(f"stack: {name!r} does not post-train; {closest(name, list(self.programs))}")
        return self.programs[name]


@cache
def facts() -> PosttrainFacts:
    raw: Any = msgspec.toml.decode(read_file(FILE, "posttrain", catalog.MOST_BYTES, "facts of post-training programs"))
    return msgspec.convert(raw, PosttrainFacts)
