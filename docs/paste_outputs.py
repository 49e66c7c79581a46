"""Pastes fresh outputs into the README: after `$ command` lines of blocks marked `<!-- run -->`, and the accuracy table.

`shardwise` has to be on the PATH.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RUNS = "src/shardwise/catalog/measured/published.csv"
FEWEST = 5
"""sources with fewer rows are one line of the table together"""


def printed(command: str) -> str:
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")


def with_outputs(block: str) -> str:
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    return "\n\n".join(f"{command}\n{printed(command[2:])}" for command in commands) + "\n"


def accuracy() -> str:
    summary = json.loads(printed(f"shardwise validate --data {RUNS} --json -"))["summary"]
    every = summary.pop("all")
    summary.pop("unfiltered")
    rows = sorted(((n, f) for n, f in summary.items() if f["n"] >= FEWEST), key=lambda row: -row[1]["n"])
    rest = [f["n"] for f in summary.values() if f["n"] < FEWEST]
    lines = ["| source | runs | predicted | mean error | median | bias | rank | memory |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    lines += [line(name, found) for name, found in rows]
    lines.append(f"| {len(rest)} sources of 1 to {max(rest)} runs | {sum(rest)} | | | | | | |")
    lines.append(line("**all**", every))
    return "\n".join(lines) + "\n"


def line(name: str, found: dict[str, Any]) -> str:
    def percent(key: str, sign: str = "") -> str:
        return "" if found[key] is None else f"{100 * found[key]:{sign}.1f} %"

    rank = "" if found["spearman"] is None else f"{found['spearman']:.2f}"
    cells = [name, str(found["n"]), str(found["supported"]), percent("mape"), percent("median_ape"),
             percent("bias", "+"), rank, percent("memory_mape")]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    text = README.read_text(encoding="utf-8")
    text = re.sub(
        r"(<!-- run -->\n```console\n)(.*?)(```)",
        lambda found: found[1] + with_outputs(found[2]) + found[3],
        text,
        flags=re.DOTALL,
    )
    text = re.sub(
        r"(<!-- accuracy -->\n).*?(<!-- end -->)", lambda found: found[1] + accuracy() + found[2], text, flags=re.DOTALL
    )
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
