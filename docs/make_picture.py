"""Draws docs/plan.svg, the README's picture: what the plan verb prints, as a terminal shows it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WORDS = ["plan", "llama-3-70b", "--on", "dgx-h100:1024", "--tokens", "15T", "--top", "6"]
COLUMNS = 84
PICTURE = Path(__file__).parent / "plan.svg"
OUTSIDE_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""a picture that fetches fonts from elsewhere is not complete in itself; the viewer's monospace font does"""


def printed(words: list[str]) -> str:
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1"}
    command = [sys.executable, "-m", "shardwise", *words]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def main() -> None:
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere)
        console.print(Text.assemble(("$ ", "bold green"), ("shardwise " + " ".join(WORDS), "bold")))
        console.print(Text.from_ansi(printed(WORDS)))
        picture = console.export_svg(title="shardwise", unique_id="plan")
    PICTURE.write_text(
        "\n".join(line.rstrip() for line in OUTSIDE_FONT.sub("", picture).splitlines()) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
