"""Public threads about memory: whether `posttrain` says of each job what its user saw."""

import csv
from dataclasses import replace
from pathlib import Path

from shardwise.answers.posttrain import posttrain_answer
from shardwise.question.posttrain import posttrain_question
from shardwise.spec.parameters import PosttrainOptions

ROOT = Path(__file__).resolve().parents[1] / "evidence" / "posttrain"
FSDP = ["zero=3", "tp=1", "pp=1", "recompute=full", "offload=none"]
CASES = {
    ("verl-855", "8"): PosttrainOptions(
        prompts=1024, group=4, lengths="300,512", engine_tp=8, offload=False, trainer="torch-fsdp2",
        fix=[*FSDP, "micro=16"],
    ),
    ("verl-3620", "8"): PosttrainOptions(prompts=64, group=8, lengths="3000,7000", prompt_tokens=10_000),
    ("verl-249", "16"): PosttrainOptions(
        algorithm="ppo", prompts=64, group=1, lengths="200,256", engine_tp=8, engine_share=0.4
    ),
}  # fmt: skip
"""what a thread states, by source and GPUs; group and mean length are ours where it does not say. 855 packs 24,000
tokens a GPU, more than the 16 sequences here. Not judged: verl 2820 and 2186 (GPU not named), 3366 (an adapter),
NeMo-RL 2319 (a recurrence) and SkyRL 1768 (lengths not named)"""


def memory_verdicts() -> dict[str, object]:
    judged, wrong = 0, []
    with (ROOT / "memory.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        options = CASES.get((row["source"], row["gpus"]))
        if options is None:
            continue
        options = replace(options, stack=row["stack"], layout=row["mode"])
        gpu, gpus = row["gpu"], int(row["gpus"])
        on = f"{gpus // 8}x8x{gpu}" if gpus > 8 else f"{gpus}x{gpu}"
        found = posttrain_answer(posttrain_question(row["model"], on, options))
        judged += 1
        if ("runs" if found.recommended else "oom") != row["verdict"]:
            wrong.append(f"{row['source']} on {gpus}")
    return {"memory_threads": len(rows), "memory_judged": judged, "memory_wrong": wrong}
