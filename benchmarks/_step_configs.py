"""The training steps that measure_steps.py measures: one line each, in the columns of its table."""

import csv
import io
from dataclasses import asdict, dataclass, replace
from pathlib import Path

TABLE = """
name,layers,hidden,heads,kv_heads,ffn,glu,vocab,seq,micro_batch,accum,recompute,precision,compiled,moe_experts,moe_topk
gpt-125m,12,768,12,12,3072,0,50304,1024,16,1,none,autocast,0,,
gpt-125m-one-sequence,12,768,12,12,3072,0,50304,1024,1,1,none,autocast,0,,
gpt-350m-compiled,24,1024,16,16,4096,0,50304,1024,8,1,none,autocast,1,,
gpt-350m-short,24,1024,16,16,4096,0,50304,512,2,1,none,autocast,0,,
gpt-760m-accumulated,24,1536,16,16,6144,0,50304,2048,2,8,none,autocast,1,,
gpt-2.7b-half,16,2560,32,32,10240,0,50304,2048,4,1,none,autocast,0,,
gpt-2.7b-half-recompute,16,2560,32,32,10240,0,50304,2048,8,1,full,autocast,0,,
gpt-6.7b-cut-pure,6,4096,32,32,16384,0,50304,2048,4,1,none,bf16-pure,0,,
gpt-13b-cut-compiled,4,5120,40,40,20480,0,50304,2048,2,1,none,autocast,1,,
llama-160m,12,768,12,4,2048,1,32000,2048,8,1,none,autocast,0,,
llama-tiny,24,512,8,8,1408,1,32000,512,2,1,none,autocast,0,,
llama-tiny-compiled,24,512,8,8,1408,1,32000,512,2,1,none,autocast,1,,
llama-tiny-pure,24,512,8,8,1408,1,32000,512,2,1,none,bf16-pure,0,,
llama-deep,48,1024,16,16,2816,1,32000,1024,4,1,none,autocast,0,,
llama-1b-16k,16,2048,32,8,8192,1,128256,16384,1,1,full,autocast,0,,
llama-1b-half-32k,8,2048,16,4,8192,1,32000,32768,1,1,none,autocast,1,,
llama-1b-half-32k-recompute,8,2048,16,4,8192,1,32000,32768,1,1,full,bf16-pure,0,,
llama-3b-pure,28,3072,24,8,8192,1,128256,2048,2,1,none,bf16-pure,0,,
llama-3b-half-compiled,14,3072,24,8,8192,1,128256,4096,2,1,none,autocast,1,,
llama-8b-quarter,8,4096,32,8,14336,1,128256,4096,2,1,none,autocast,0,,
llama-8b-cut-16k,6,4096,32,8,14336,1,128256,16384,1,1,full,autocast,0,,
llama-13b-cut-accumulated,6,5120,40,40,13824,1,32000,4096,1,4,none,autocast,0,,
llama-70b-cut-pure,2,8192,64,8,28672,1,32000,2048,2,1,none,bf16-pure,1,,
qwen-1.5b-accumulated,28,1536,12,2,8960,1,151936,2048,2,4,none,autocast,0,,
qwen-7b-cut-pure,8,3584,28,4,18944,1,152064,4096,1,1,none,bf16-pure,0,,
mistral-cut-compiled,8,4096,32,8,14336,1,32000,8192,2,1,none,autocast,1,,
gqa-wide,4,6144,48,8,16384,1,64000,8192,1,1,none,autocast,0,,
moe-8-top2,8,1024,16,8,3584,1,32000,2048,4,1,none,autocast,0,8,2
moe-16-top1,8,1536,12,12,4096,1,50304,2048,4,1,none,autocast,0,16,1
moe-16-top4-recompute,8,2048,16,16,2816,1,32000,4096,2,1,full,autocast,0,16,4
moe-64-top8,6,2048,16,4,1024,1,64000,4096,2,1,none,autocast,0,64,8
moe-mixtral-cut-pure,2,4096,32,8,14336,1,32000,4096,2,1,none,bf16-pure,0,8,2
""".strip()

MEASURED = (
    "params", "step_ms", "forward_ms", "optimizer_ms", "spread", "peak_alloc_gib", "peak_reserved_gib", "tflops_causal",
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    glu: bool
    vocab: int
    seq: int
    micro_batch: int
    accum: int
    recompute: str
    precision: str
    compiled: bool
    moe_experts: int = 0
    moe_topk: int = 0
    fused: bool = False
    """a gated model's queries, keys and values are one projection, its gate and up too"""

    def cells(self) -> dict[str, str]:
        found = {key: str(int(value)) if isinstance(value, bool) else str(value) for key, value in asdict(self).items()}
        return found | ({} if self.moe_experts else {"moe_experts": "", "moe_topk": ""})


STATED = tuple(Config.__dataclass_fields__)[:14]
COLUMNS = (*STATED, *MEASURED, "moe_experts", "moe_topk", "fused")


def configs(path: Path | None = None) -> list[Config]:
    """The built-in list, or the one a CSV with these columns (and perhaps others) gives."""
    text = TABLE if path is None else path.read_text(encoding="utf-8")
    return [config_of(row) for row in csv.DictReader(io.StringIO(text))]


def config_of(row: dict[str, str]) -> Config:
    words = ("name", "recompute", "precision")
    flags = ("glu", "compiled", "fused")
    values = {
        key: row[key] if key in words else row.get(key) == "1" if key in flags else int(row.get(key) or 0)
        for key in Config.__dataclass_fields__
    }
    return Config(**values)  # type: ignore[arg-type]


def tiny(config: Config) -> Config:
    """The same kind of model at a size a processor runs in a moment."""
    heads = 4
    return replace(
        config, layers=2, hidden=32, heads=heads, kv_heads=heads if config.kv_heads == config.heads else 2, ffn=64,
        vocab=128, seq=16, micro_batch=2, accum=min(config.accum, 2),
        moe_experts=min(config.moe_experts, 4), moe_topk=min(config.moe_topk, 2),
    )  # fmt: skip
