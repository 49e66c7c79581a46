"""Writes the table of a question's options into docs/cli.md, from the table of parameters that the verbs have too."""

from pathlib import Path

from shardwise.spec.parameter import CLUSTER, JOB, OVERLAP, POLICY, PROGRAM, SPACE
from shardwise.spec.parameters import flag_of, parameters

PAGE = Path(__file__).resolve().parent / "cli.md"
MARKS = ("<!-- options -->\n", "<!-- /options -->\n")
TITLES = {CLUSTER: "cluster", JOB: "job", PROGRAM: "program", POLICY: "policy", OVERLAP: "overlap", SPACE: "search"}


def options_table() -> str:
    """One row for each parameter; the usual ones, which `--help` shows too, in bold."""
    lines = ["| option | of | default | |", "| --- | --- | --- | --- |"]
    for acts_on, title in TITLES.items():
        for name, row in parameters().items():
            if row.acts_on == acts_on:
                flags = " ".join(f"`{flag}`" for flag in (f"--{flag_of(name)}", *row.also, *filter(None, [row.off])))
                shown = f"**{flags}**" if row.usual else flags
                lines.append(f"| {shown} | {title} | {row.default} | {row.text.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def with_options(text: str) -> str:
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return before + MARKS[0] + options_table() + MARKS[1] + after


if __name__ == "__main__":
    PAGE.write_text(with_options(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
