"""The options of a question stand in docs/cli.md once, as the table of parameters has them."""

import importlib.util
import re
import sys
from pathlib import Path

from shardwise.spec.parameters import flag_of, parameters

DOCS = Path(__file__).resolve().parents[2] / "docs"


def writer():
    spec = importlib.util.spec_from_file_location("write_options", DOCS / "write_options.py")
    module = sys.modules["write_options"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_as_the_table_of_parameters_writes_it():
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert writer().MARKS[0] in text
    assert writer().with_options(text) == text, "run: python docs/write_options.py"


def test_each_option_stands_in_one_row_of_it():
    rows = writer().options_table().splitlines()[2:]
    flags = [re.findall(r"`--([a-z-]+)`", line.split(" | ")[0])[0] for line in rows]
    assert sorted(flags) == sorted(flag_of(name) for name in parameters())
