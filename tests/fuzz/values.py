"""Words and numbers at the edges of what can be written."""

from random import Random

NUMBERS = (
    "0", "-0", "-1", "1", "2", "3", "7", "8", "64", "1000", "4096", "65536", "1000000", "100000000", "1e9", "1e12",
    str(2**31 - 1), str(2**31), str(2**63 - 1), str(2**63), str(2**64), str(10**30), "9" * 400, "-" + "9" * 30,
    "0.5", "0.999", "1.5", "-0.1", "1e-300", "1e308", "1e400", "-1e400", "nan", "-nan", "inf", "-inf", "0x10", "1_000",
    "1,000", "٣", "½", "+1", "1e", "--1", "true", "none",
)  # fmt: skip
TEXTS = (
    "", " ", "\t", "\n", "-", "--", ".", "..", "/", "\\", "*", "?", "a", "x" * 5000, "[bold]red[/bold]", "{}",
    "[]", "null", "\x00", "\x1b[31m", "é", "\u202e", "\ud800", "😀", "%s", "{0}", "$HOME", "~", "a=b", "=", "a=",
    "=b", ",", ",,", ":", "a:b:c", "tp=8", "tp=9999999999999999999999", "tp=-1", "tp<=0", "tp=8,tp=4", "best",
    "best,tp>1", "3d", "fsdp,zero=0", "8x8xh100", "0xh100", "9" * 12 + "xh100", "dgx-h100:0", "dgx-h100:7",
    "dgx-h100:1e9", "dgx-h100:", "h100", "gpus=1:0", "gpus=8:64", "seq=1:9e18", "micro=1:4", "batch=64:128",
    "network=0Gbps:1Gbps", "network=10Gbps:800Gbps", "stage=0,factor=0", "stage=99,factor=2",
    "link=0,factor=inf", "5 USD", "-5 USD", "8 GPUs", "1 W", "30 d", "0 s", "1e99 d", "400 Gbps", "0 Gbps",
    "1 GiB", "-1 GiB", "4M tokens", "0 tokens", "1e30 tokens", "rules", "any", "auto",
)  # fmt: skip


def number(random: Random) -> str:
    if random.random() < 0.7:
        return random.choice(NUMBERS)
    return str(random.randint(-(2 ** random.randint(0, 70)), 2 ** random.randint(0, 70)))


def text(random: Random) -> str:
    if random.random() < 0.8:
        return random.choice(TEXTS)
    letters = "abcxyz019 -_=,.:;/%<>[](){}'\"\n\té\x00"
    return "".join(random.choice(letters) for _ in range(random.randint(0, 24)))


def json_value(random: Random) -> object:
    """Of any type JSON has, and of any size."""
    made: list[object] = [
        None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, -(10**30), 1.5, 1e308, [], {}, [[]], {"a": {}}, [None] * 3,
        "", "x", [1, 2, 3], ["a"], {"tp": 2}, 10**400, "9" * 40, random.choice(TEXTS), number(random),
    ]  # fmt: skip
    return random.choice(made)
