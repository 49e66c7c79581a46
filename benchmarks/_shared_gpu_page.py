"""docs/benchmarks/shared-gpu.md from what shared_gpu.py printed on a GPU."""

import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "shared-gpu.md"
STORED = PAGE.with_suffix(".json")


def write(path: Path) -> None:
    PAGE.write_text(page(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")


def page(found: dict[str, Any]) -> str:
    parts = found["parts"]
    return f"""# Ranks that share one GPU

{found["device"]}, NCCL {found["nccl"]}. Measured by `python benchmarks/shared_gpu.py --json`; its parts are in
`docs/benchmarks/shared-gpu.json`, from which `python benchmarks/shared_gpu.py --page docs/benchmarks/shared-gpu.json`
writes this page. Parts that had not finished when the machine's time was over are named.

{found["plans"]} plans ran on up to {found["ranks"]} ranks: {found["losses_equal"]} with one rank's losses,
{found["bytes_equal"]} with exactly the predicted messages. {len(found.get("failed") or {})} more did not end.

| plan | largest gap of a loss | messages | |
| --- | ---: | ---: | --- |
{_plans(parts)}

{_proofs(parts)}## Other parts

{_others(parts)}

## Time

{_times(parts)}
"""


def _plans(parts: dict[str, Any]) -> str:
    rows = [row for part in ("axes", "schedules") for row in parts.get(part, {}).get("rows", [])]
    return "\n".join(
        f"| {row['name']} | | | did not run: {_short(row['failed'])} |" if "failed" in row
        else f"| {row['name']} | {row['gap']:.1g} | {row['messages']} equal |{'' if row['equal'] else ' **differs**'} |"
        for row in rows
    )  # fmt: skip


def _proofs(parts: dict[str, Any]) -> str:
    rows = parts.get("prove", {}).get("rows", [])
    if not rows:
        return ""
    lines = [
        f"| {row['name']} | {row['plan']} | {row['gradient_gap']:.1g} | {row['messages']} |" if row.get("equal")
        else f"| {row['name']} | {row['plan']} | | no: {_short(row.get('why') or row.get('failed') or '')} |"
        for row in rows
    ]  # fmt: skip
    return "\n".join(
        ["## Splits of `auto`'s programs against one process (64 bits)", "",
         "| program | split | largest gap of a gradient | messages, as predicted |", "| --- | --- | ---: | --- |",
         *lines, "", ""]
    )  # fmt: skip


def _others(parts: dict[str, Any]) -> str:
    lines = []
    for name, row in parts.get("half", {}).items():
        if isinstance(row, dict) and "gap" in row and "one_rank" in row:
            lines.append(f"- {name}: losses of ten steps {row['gap']:.1g} from one rank's at most")
    found = parts.get("overlap", {}).get("ranks") or []
    lines += [
        f"- overlap, rank {rank}: {one['message_kernels']} kernels of messages on stream {one['streams_of_messages']}, "
        f"arithmetic on {one['streams_of_arithmetic']}; {one['together_ms']:.0f} of {one['message_ms']:.0f} ms "
        "at the same time"
        for rank, one in enumerate(found)
    ]  # fmt: skip
    late = parts.get("timeout", {})
    if "names_rank_1" in late:
        said = "`why` names it" if late["names_rank_1"] else "`why` does not name it"
        files = ", ".join(late["files"])
        lines.append(f"- a rank that stands still: {said} after {late['seconds']:.0f} s; files {files}")
    for part in ("kills", "checkpoints", "optimizers"):
        for name, row in parts.get(part, {}).items():
            if isinstance(row, dict) and "code" in row:
                facts = [f"{row['steps']} steps", f"exit code {row['code']}"]
                facts += [f"losses {row['gap']:.1g} apart"] if row.get("gap") is not None else []
                facts += [f"bit for bit {'equal' if row['bitwise'] else 'not equal'}"] if "bitwise" in row else []
                lines.append(f"- {part}, {name}: {', '.join(facts)}")
    if "sums" in parts.get("script", {}):
        lines.append(f"- a script for torchrun: {parts['script']['sums']} of 4 ranks summed right")
    missing = [name for name in PARTS if not parts.get(name, {}).get("ended")]
    lines += [f"- not finished in time: {', '.join(missing)}"] if missing else []
    return "\n".join(lines)


PARTS = ("small", "axes", "half", "prove", "script", "timeout", "kills", "schedules", "optimizers", "checkpoints",
         "overlap", "fabric")  # fmt: skip


def _times(parts: dict[str, Any]) -> str:
    lines = ["| step | predicted | measured | |", "| --- | ---: | ---: | ---: |"]
    small = parts.get("small", {})
    lines += [
        f"| one rank, {row['layers']} layers | {row['predicted_ms']:.1f} ms | {row['measured_ms']:.1f} ms "
        f"| {row['error']:+.1%} |"
        for row in small.get("rows", []) if "measured_ms" in row
    ]  # fmt: skip
    for row in parts.get("fabric", {}).get("rows", []):
        measured, error = (
            (f"{row['measured_s']:.3f} s", f"{row['error']:+.1%}") if "measured_s" in row else ("", "not measured")
        )
        lines.append(f"| {row['name']} | {row['predicted_s']:.3f} s | {measured} | {error} |")
    for row in small.get("rows", [])[:1]:
        if "first_s" in row:
            before, behind = 1e6 * small["host_s_per_op"], 1e6 * row.get("host_again", 0.0)
            lines += [
                "",
                f"The first step of the first model took {row['first_s']:.1f} s (kernels are compiled); one operation "
                f"cost the host {before:.1f} us before that row, {behind:.1f} us behind it.",
            ]
    return "\n".join(lines)


def _short(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:80]
