"""Pastes fresh outputs into the README: below each `$ command` of blocks marked `<!-- run -->`, and the accuracy table.

`shardwise` has to be on the PATH. With the path of a larger table of runs its two summary lines are renewed as well.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from statistics import mean, median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RUNS = "src/shardwise/catalog/measured/published.csv"
HEAD = "| source | runs | predicted | mean error | median | bias | rank | memory |\n" + "| --- " + "| ---: " * 7 + "|"
FEWEST = 5
"""sources with fewer rows are one line of the table together"""


def printed(command: str) -> str:
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")


def with_outputs(block: str) -> str:
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    return "\n\n".join(f"{command}\n{printed(command[2:])}" for command in commands) + "\n"


def accuracy() -> str:
    document = json.loads(printed(f"shardwise validate --data {RUNS} --json -"))
    summary = document["summary"]
    every = summary.pop("all")
    summary.pop("unfiltered")
    rows = sorted(((n, f) for n, f in summary.items() if f["n"] >= FEWEST), key=lambda row: -row[1]["n"])
    few = {name: found for name, found in summary.items() if found["n"] < FEWEST}
    lines = [HEAD]
    lines += [line(name, found) for name, found in rows]
    if few:
        lines.append(line(f"{len(few)} sources below {FEWEST} runs", together(few, document["rows"])))
    lines.append(line("**all**", every))
    return "\n".join(lines) + "\n"


def larger(path: str) -> str:
    summary = json.loads(printed(f"shardwise validate --data {shlex.quote(path)} --json -"))["summary"]
    lines = [HEAD, line("scored", summary["all"]), line("every row", summary["unfiltered"])]
    return "\n".join(lines) + "\n"


def together(few: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One summary of several small sources: nobody's error is left out for being alone."""
    errors = [row["error"] for row in rows if row["source"] in few and row["error"] is not None]
    sizes = [abs(error) for error in errors]
    return {
        "n": sum(found["n"] for found in few.values()), "supported": sum(found["supported"] for found in few.values()),
        "mape": mean(sizes), "median_ape": median(sizes), "bias": mean(errors), "spearman": None, "memory_mape": None,
    }  # fmt: skip


def line(name: str, found: dict[str, Any]) -> str:
    def percent(key: str, sign: str = "") -> str:
        return "" if found[key] is None else f"{100 * found[key]:{sign}.1f} %"

    rank = "" if found["spearman"] is None else f"{found['spearman']:.2f}"
    cells = [name, str(found["n"]), str(found["supported"]), percent("mape"), percent("median_ape"),
             percent("bias", "+"), rank, percent("memory_mape")]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def between(mark: str, new: str, text: str) -> str:
    return re.sub(
        rf"(<!-- {mark} -->\n).*?(<!-- end -->)", lambda found: found[1] + new + found[2], text, flags=re.DOTALL
    )


def main() -> None:
    text = README.read_text(encoding="utf-8")
    text = re.sub(
        r"(<!-- run -->\n```console\n)(.*?)(```)",
        lambda found: found[1] + with_outputs(found[2]) + found[3],
        text,
        flags=re.DOTALL,
    )
    text = between("accuracy", accuracy(), text)
    if len(sys.argv) > 1:
        text = between("larger", larger(sys.argv[1]), text)
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
