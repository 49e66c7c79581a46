"""On a terminal of 80 columns a row of a table stands in one line; only a policy may go on below, at its spaces."""

import re

import pytest

from terminal import narrow_terminal, shown  # noqa: F401

RULE = re.compile(r"─{3,}")
POLICY = re.compile(r"( *([a-z]+\d[\w/%.]*|full|selective|nosp|off-[a-z]+\S*|[a-z]+-[a-z]+-[a-z]+-[a-z]+|[a-z_]+))+ *")
MARKED = re.compile(r" {3}\S+( \S+)*( {2,}\S+){4,}$")
"""a row whose first column, the mark of the policy to take, is empty"""
VERBS = {
    "plan": ["plan", "qwen3-30b-a3b", "--on", "4x8xh100", "--top", "5"],
    "size": ["size", "llama-3-8b", "--on", "dgx-h100:64", "--tokens", "1T"],
    "compare": ["compare", "llama-3-8b", "--on", "dgx-h100:1024", "--on", "8xh100", "--policy", "best", "--policy",
                "fsdp"],
    "sweep": ["sweep", "llama-3-8b", "--on", "8xh100", "--over", "seq=4096:131072", "--jobs", "1"],
    "programs": ["catalog", "programs"],
    "one program": ["catalog", "programs", "megatron-core"],
    "collective": ["calc", "collective", "all_reduce", "bf16[4096,16384]", "--on", "dgx-h100:1024"],
    "max": ["size", "--max", "batch", "llama-3-8b", "--on", "8xh100"],
}  # fmt: skip


def loose_lines(text: str) -> list[str]:
    """Lines inside a table that are neither a row nor the rest of a policy."""
    found, inside = [], False
    for line in text.splitlines():
        if RULE.match(line):
            inside = True
        elif not line.strip():
            inside = False
        elif inside and line.startswith(" ") and not POLICY.fullmatch(line) and not MARKED.match(line):
            found.append(line)
    return found


@pytest.mark.usefixtures("narrow_terminal")
@pytest.mark.parametrize("words", VERBS.values(), ids=VERBS)
def test_a_row_is_one_line(words, capsys):
    text = shown(capsys, words)
    assert RULE.search(text), "no table was found"
    assert loose_lines(text) == []
    assert max(map(len, text.splitlines())) <= 80


def test_a_row_that_falls_apart_is_found():
    table = "GPUs  policy     step s\n───────────────────────\n8     dp8 z3     1.234\n      mb1\n"
    assert loose_lines(table) == []
    assert loose_lines(table + "      mb1        567\n") == ["      mb1        567"]
    assert loose_lines(table + "                 5.67\n") == ["                 5.67"]
