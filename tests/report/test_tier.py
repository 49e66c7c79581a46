"""`tier` says how an answer was found, in one spelling on every verb."""

import json
import re
from pathlib import Path

import pytest

from shardwise.report.tier import CLOSED_FORM, FLOW_LEVEL, SAMPLED, SIMULATION, TIERS
from shardwise.show.cli import main
from shardwise.show.cli._verbs import VERBS
from shardwise.show.cli.schema import published_schema

SOURCE = Path(main.__code__.co_filename).parents[1]
ON = ["llama-3-8b", "--on", "dgx-h100:16"]
ASKED = {
    "estimate": ([*ON, "--tp", "8"], CLOSED_FORM), "plan": (ON, CLOSED_FORM),
    "simulate": ([*ON, "--pp", "2"], SIMULATION),
    "operate": ([*ON, "--tokens", "10B", "--runs", "20"], None),
}  # fmt: skip


def tops(schema: dict) -> list[dict]:
    ways = [schema, *schema.get("anyOf", [])]
    return [schema["$defs"][way["$ref"].rpartition("/")[2]] if "$ref" in way else way for way in ways]


def test_every_answer_with_a_tier_takes_it_from_the_list():
    """Verbs whose schema has the field; what they write is a name of `report.tier`, never a text of their own."""
    verbs = {verb for verb in VERBS for top in tops(published_schema(verb)) if "tier" in top.get("properties", {})}
    assert verbs >= {"estimate", "plan", "simulate", "operate", "place", "trace"}
    own = re.compile(r"""["']tier["']: ["']|\btier=["']""")
    for path in SOURCE.rglob("*.py"):
        assert not own.search(path.read_text()), path


@pytest.mark.parametrize("verb", ASKED)
def test_the_word_of_a_verb(verb, capsys):
    words, tier = ASKED[verb]
    assert main([verb, *words, "--json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)["tier"]
    assert found in ((tier,) if tier else (CLOSED_FORM, SAMPLED))


def test_spellings():
    assert len(set(TIERS)) == len(TIERS)
    assert FLOW_LEVEL in TIERS
    assert all(re.fullmatch(r"[a-z]+( [a-z]+)?", tier) for tier in TIERS)
