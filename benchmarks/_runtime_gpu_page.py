"""docs/benchmarks/runtime-gpu.md from stored measurements and the predictions of the present model."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
STORED, PAGE = FOLDER / "runtime-gpu.json", FOLDER / "runtime-gpu.md"
WAITS = 0.8
"""a step whose kernels fill less of it than this waits for the host"""


def joined(stored: dict[str, Any], expected: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_name = {row["name"]: row for row in expected}
    found = []
    for row in stored["rows"]:
        now = by_name[row["name"]]
        found.append(
            row | {
                "predicted_ms": now["predicted_ms"], "predicted_bytes": now["predicted_bytes"],
                "time_error": now["predicted_ms"] / row["measured_ms"] - 1.0,
                "memory_error": now["predicted_bytes"] / row["measured_bytes"] - 1.0,
                "waits": row["gpus"] == 1 and row["kernels_ms"] < WAITS * row["measured_ms"],
            }
        )  # fmt: skip
    return found


def page(stored: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    one, many = ([r for r in rows if (r["gpus"] > 1) == m] for m in (False, True))
    bound = [r for r in one if not r["waits"]]
    ratio = stored["plain_loop_ms"] / stored["llama8b_cut_ms"]
    return f"""# The runtime on one GPU

{stored["device"]}, torch {stored["torch"]}, {stored["date"]}. Measured by `{stored["command"]}`;
this page is written by `python benchmarks/runtime_gpu.py --page docs/benchmarks/runtime-gpu.json` with what is
predicted now (stack `shardwise`, profile `profiles/h200.toml`). Predictions were corrected after earlier runs of the
same cases (the settings in the stack's file), so agreement is a check of the model's form, not a blind test.

Speed: Llama-8B cut to 8 layers, 8,192 tokens: {stored["llama8b_cut_ms"]:.1f} ms a step; a plain PyTorch loop of such
a model (compiled blocks, autocast, fused AdamW; `benchmarks/_step_models.py`) {stored["plain_loop_ms"]:.1f} ms in the
same run: {ratio:.2f} of its tokens/s, with rotary positions and a gradient norm that the plain loop lacks.

## Whole jobs of one GPU

{told(bound)} where kernels set the pace.

{table(one)}

`waits`: the GPU waits for the host, whose speed changed by half between two runs of the same case; such a time says
more of the machine's other work than of the model. gpt-2.7b-half has heads of 80, which the kernel fills up to 128; the
model does not know that.

## One rank of many

The same program with a process group that only pretends: real kernels and memory of one rank (of the slowest stage),
nothing sent. Time is the sum of its own kernels.

{told(many)}.

{table(many)}
"""


def told(rows: list[dict[str, Any]]) -> str:
    times, sizes = ([abs(r[key]) for r in rows] for key in ("time_error", "memory_error"))
    inside = sum(t <= 0.05 for t in times)
    return (
        f"{inside} of {len(rows)} within 5 % (mean {sum(times) / len(times):.1%}, largest {max(times):.1%}), "
        f"peak memory within {max(sizes):.1%} (mean {sum(sizes) / len(sizes):.1%})"
    )


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| case | ranks | measured ms | predicted | peak GiB | predicted | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for r in rows:
        gib = 2.0**30
        lines.append(
            f"| {r['name']} | {r['gpus']:,} | {r['measured_ms']:.1f} | {r['time_error']:+.1%} "
            f"| {r['measured_bytes'] / gib:.2f} | {r['memory_error']:+.1%} | {'waits' if r['waits'] else ''} |"
        )
    return "\n".join(lines)


def write(source: Path, expected: list[dict[str, Any]]) -> None:
    stored = json.loads(source.read_text(encoding="utf-8"))
    PAGE.write_text(page(stored, joined(stored, expected)), encoding="utf-8")
