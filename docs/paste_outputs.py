"""Pastes fresh outputs into the README and the pages: below each `$ command` of blocks marked `<!-- run -->`.

`shardwise` has to be on the PATH.
"""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def printed(command: str) -> str:
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")


def with_outputs(block: str) -> str:
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    return "\n\n".join(f"{command}\n{printed(command[2:])}" for command in commands) + "\n"


def main() -> None:
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        new = re.sub(
            r"(<!-- run -->\n```console\n)(.*?)(```)",
            lambda found: found[1] + with_outputs(found[2]) + found[3],
            old,
            flags=re.DOTALL,
        )
        if new != old:
            page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
