"""Whatever is typed: exit code 0, 1 or 2, never a traceback, and an error is one line."""

import contextlib
import io

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardwise.cli import main
from shardwise.cli._verbs import VERBS

OPTIONS = [
    "--json", "--yaml", "--dtype", "--inner", "--experts", "--active", "--ffn", "--glu", "--tps", "--on", "--tokens",
    "--gpus", "--time", "--seq", "--recompute", "--global", "--micro", "--accumulation", "--dp", "--tp", "--pp", "--cp",
    "--help", "--", "--policy", "--over", "--fix", "--budget", "--within", "--chinchilla", "--flops", "--why",
    "--pareto", "--chain", "--block", "--graph", "--ends", "--memory", "--accumulate", "--top", "--method",
]  # fmt: skip
VALUES = [
    "h100", "b200", "dgx-h100:1024", "8xh100", "llama-65b", "gpt-3-175b", "0", "-1", "1", "8", "4096", "4k", "1e400",
    "nan", "inf", "4M tokens", "35 d", "9" * 40, "full", "fp8", "", " ", "µ", "[bold]", "/", "\x00", "x.yaml",
    "x.json", "8x", "0xh100", "1.5", "1_0",
    "tp=8", "tp<=0", "fsdp", "gpus=8:64", "micro=1:4", "network=1Gbps:2Gbps", "5 USD", "8 GPUs", "sequence", "model",
    "64,128,64", "attention", "tokens", "any", "1 GiB", "exhaustive",
]  # fmt: skip
word = st.one_of(st.sampled_from(OPTIONS), st.sampled_from(VALUES), st.text(max_size=12))
lines = st.one_of(
    st.builds(lambda verb, rest: [verb, *rest], st.sampled_from(sorted(VERBS)), st.lists(word, max_size=8)),
    st.lists(word, max_size=4),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lines)
def test_no_input_ends_in_a_traceback(arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    assert code in (0, 1, 2)
    if code == 2:
        assert err.getvalue().startswith("error: ")
        assert err.getvalue().count("\n") == 1
    else:
        assert err.getvalue() == ""
