"""Pastes the answer of `shardwise catalog layouts --ranks` into docs/layouts.md; `shardwise` has to be on the PATH."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("layouts.md")
HEAD = [
    "layout",
    "GPUs",
    "policy",
    "step s",
    "reported",
    "error",
    "band",
    "MFU",
    "reported MFU",
    "own",
    "now",
    "degrees",
]
WORDS = (0, 2)


def percent(share: float | None, sign: str = "") -> str:
    return "" if share is None else f"{100 * share:{sign}.1f} %"


def row(item: dict[str, Any]) -> list[str]:
    low, high = item["error_range"]
    today = item["today"]
    return [
        item["layout"], f"{item['gpus']:,}", item["policy_code"], f"{item['step_s']:.4g}",
        f"{item['reported_step_s']:.4g}", percent(item["error"], "+") + ("" if item["inside_error_band"] else " \\*"),
        f"{percent(low, '+')} .. {percent(high, '+')}", percent(item["mfu_causal_half"]),
        percent(item["reported_mfu_causal_half"]), percent(item["own"]["share_faster"]),
        "" if today is None else percent(today["share_faster"]), percent(item["degrees_today_share_faster"]),
    ]  # fmt: skip


def counts(items: list[dict[str, Any]], top: float = 0.05) -> str:
    places = [[p for p in (item["own"], item["today"]) if p is not None] for item in items]
    own = sum(p[0]["share_faster"] <= top for p in places)
    now = sum(p[-1]["share_faster"] <= top for p in places)
    degrees = sum(item["degrees_today_share_faster"] <= top for item in items)
    alike = sum(item["own_same_recompute_share_faster"] <= top for item in items)
    short = [item["layout"] for item in items if not item["fits"]]
    fitting = f"all fitting but {', '.join(short)}" if short else "all fitting"
    return (
        f"Of {len(items)} layouts, all legal and {fitting}, {own} stand in the top 5 % of what their own program "
        f"could run ({alike} among the policies that recompute as they do), {now} as they are on the software of "
        f"today, and {degrees} by their degrees on the software of today.\n"
    )


def tables(items: list[dict[str, Any]]) -> str:
    """Everything on the page that is computed."""
    marks = ["---" if i in WORDS else "---:" for i in range(len(HEAD))]
    lines = [HEAD, marks, *map(row, items)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    why = "\n".join(f"- {line}" for item in items for line in item["why_not"])
    return f"{counts(items)}\n{table}\n\n## Why not in the top 5 %\n\n{why}\n"


def main() -> None:
    done = subprocess.run(
        ["shardwise", "catalog", "layouts", "--ranks", "--json"], check=True, capture_output=True, text=True
    )
    fresh = tables(json.loads(done.stdout)["layouts"])
    text = PAGE.read_text(encoding="utf-8")
    text = re.sub(
        r"(<!-- layouts -->\n).*?(<!-- end -->)", lambda found: found[1] + fresh + found[2], text, flags=re.DOTALL
    )
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
