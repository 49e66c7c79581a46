"""What tools print may be cut off, empty, binary or in another language: then less is known, never more."""

from random import Random

import pytest
from made_node import Made
from test_items import NOT_HERE, ONE_NODE, PLAN, WRONG, changed

from shardwise.run.preflight.check import checked, chosen
from shardwise.run.preflight.facts import decoded, encoded
from shardwise.run.preflight.finding import WORST

ITEMS = [item.name for _, item in chosen(ONE_NODE) if item.name not in NOT_HERE]


class Spied:
    """A node that notes what it is asked."""

    def __init__(self, node) -> None:
        self.node, self.commands, self.files = node, set(), set()

    def __getattr__(self, name):
        return getattr(self.node, name)

    def run(self, command, keep="", seconds=1.0):
        self.commands.add(command)
        return self.node.run(command, keep, seconds)

    def read(self, path):
        self.files.add(path)
        return self.node.read(path)


def sources(item: str) -> Spied:
    spy = Spied(Made().recorded())
    checked([spy], PLAN, chosen([item]))
    return spy


def damaged(text: str, how: str, random: Random) -> str:
    if how == "empty":
        return ""
    if how == "cut":
        return text[: random.randrange(1, max(len(text), 2))]
    if how == "binary":
        return bytes(random.randrange(256) for _ in range(200)).decode("utf-8", errors="replace")
    if how == "another language":
        return "Fehler: Befehl nicht gefunden; 错误：找不到设备\n" * 3
    lines = text.splitlines()
    random.shuffle(lines)
    return "\n".join(line.replace("0", "x") for line in lines)


@pytest.mark.parametrize("how", ["empty", "cut", "binary", "another language", "shuffled"])
@pytest.mark.parametrize("item", ITEMS)
def test_damage_is_survived_and_never_makes_a_pass(item, how):
    """Of an item that fails, damage to the tools it asks must not make a pass; of any item it raises nothing."""
    random, asked = Random(f"{item} {how}"), sources(item)
    broken = [change for other, verdict, change in WRONG.values() if other == item and verdict == "fail"]
    for change in [{}, *broken]:
        for _ in range(6):
            made = changed(change)
            for command in asked.commands & set(made.commands):
                code, text = made.commands[command]
                made.commands[command] = (code, damaged(text, how, random))
            for path in asked.files & set(made.files):
                made.files[path] = damaged(made.files[path], how, random)
            (row,) = checked([made.recorded()], PLAN, chosen([item]))
            assert row.verdict in WORST
            assert row.evidence.isprintable()
            if how in ("empty", "another language", "binary") and item != "nccl-env":
                assert row.verdict != "pass", row.evidence


def test_a_table_that_lacks_gpus_is_no_table_of_all():
    made = Made()
    for command, (code, text) in made.commands.items():
        if "--query" in command:
            made.commands[command] = (code, "".join(text.splitlines(keepends=True)[:5]))
    found = {row.item: row.verdict for row in checked([made.recorded()], None, chosen(["gpus"]))}
    tables = ("gpu-count", "gpu-idle", "gpu-errors", "gpu-rows", "gpu-throttle", "gpu-power", "gpu-modes")
    assert {item: found[item] for item in tables} == dict.fromkeys(tables, "not available")


@pytest.mark.parametrize(
    "odd",
    [
        "null",
        "1",
        '"a"',
        "[]",
        '{"products": 1}',
        '{"collectives": [{}]}',
        '{"pairs": [{"a": "x", "b": "y", "bytes_per_s": -1}]}',
        '{"storage": {"folder": "a", "write_bytes_per_s": 0}}',
        '{"counters": {"before": {"a": "b"}}}',
        '{"trial": {"steps": {}}}',
    ],
)
def test_measurements_of_another_shape_are_refused(odd):
    raw = encoded(Made().recorded().facts)
    plain = encoded(Made().recorded().facts.measured)
    with pytest.raises(ValueError, match="holds no facts of a node"):
        decoded(raw.replace(b'"measured":' + plain, b'"measured":' + odd.encode()), "gather: 'a.json'")
