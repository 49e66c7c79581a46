"""One line wherever a widely read text is wrong about what the user is looking at.

Texts: 'How to think about GPUs' (a book chapter) and 'Distributed training for LLMs' (a talk).
"""

BLACKWELL = "'How to think about GPUs' writes Broadwell for this generation: it is Blackwell."
B200_SMS = "A B200 has 148 SMs; the table of 'How to think about GPUs' has '?' there."
SPINE = (
    "InfiniBand leaf and spine switches carry 64 x 400 Gbps = 3.2 TB/s each way, so a DGX H100 SuperPOD's spine has "
    "51.2 TB/s (50 GB/s per GPU); 'How to think about GPUs' takes 1.6 TB/s per switch and gets half of that "
    "(77 tokens instead of 39 with 256-way inner sharding)."
)
SHARP = (
    "In-network reduction halves the traffic on paper; measured on large messages it gains about 30 % "
    "(column 'in practice')."
)
NVLINK_MEASURED = "Datasheet bandwidths: an H100's NVLink measures about 370 of its 450 GB/s on large messages."
TENSOR_BOUND = (
    "'How to think about GPUs' computes this bound with 898e12 FLOP/s; an H100 has 989e12, "
    "so F = 16k gives 8 ways, not 9."
)
ALL_GATHER = (
    "'How to think about GPUs' gives 9 us for an AllGather of 33.5 MB on 8 H100: at 450 GB/s it takes "
    "33.5e6 x 7 / (8 x 450e9) = 65 us."
)
GPT_3 = (
    "'Distributed training for LLMs' gives U = 0.44 for GPT-3 (300B tokens, 1,024 A100, 35 days): its 8TP formula "
    "gives 0.435."
)
LLAMA_65B = (
    "'Distributed training for LLMs' gives U = 0.3 for LLaMA-65B (1.4T tokens, 2,048 A100, 21 days): its own 8TP "
    "formula gives 0.63, and 6TP, which counts no recompute, gives 0.47."
)


def on_gpu(name: str, architecture: str) -> list[str]:
    notes = [BLACKWELL] if architecture.lower() == "blackwell" else []
    return [*notes, B200_SMS] if name.lower() == "b200" else notes


def on_model(name: str) -> list[str]:
    return {"llama-65b": [LLAMA_65B], "gpt-3-175b": [GPT_3]}.get(name.lower(), [])


def on_blackwell(gpu: str, tokens: float, ways: float) -> str:
    """`tokens`, `ways`: of this GPU in its NVLink domain, the second for a feed-forward of 16,000."""
    return (
        "'How to think about GPUs' gives Blackwell 549 tokens per GPU with in-network reduction and a tensor-parallel "
        f"bound of 18 for F = 16,000, with the FLOP/s of an H100: by its own a {gpu} needs {tokens:,.0f} tokens and "
        f"its bound is {ways:.1f}."
    )
