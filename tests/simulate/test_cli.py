"""simulate and stages as a user meets them."""

import gzip
import json

import pytest

from terminal import narrow_terminal, refused, shown  # noqa: F401

SIMULATE = ["simulate", "llama-3-8b", "--on", "dgx-h100:64", "--pp", "4", "--global-batch", "128"]
STAGES = ["search", "stages", "llama-3-8b", "--on", "8xh100", "--pp", "8", "--global-batch", "64"]
BAD = [
    (["simulate", "llama-3-8b"], "--on"),
    ([*SIMULATE, "--schedule", "1f2b"], "did you mean"),
    ([*SIMULATE, "--straggler", "stage=2"], "factor=1.2"),
    ([*SIMULATE, "--straggler", "stage=9,factor=2"], "from 0 to 3"),
    ([*SIMULATE, "--jitter", "-1"], "jitter"),
    ([*SIMULATE, "--jitter", "0.1", "--steps", "0"], "steps"),
    ([*SIMULATE, "--jitter", "0.1", "--seed", "-1"], "seed"),
    ([*SIMULATE, "--jitter", "0.1", "--tail", "normal"], "tail"),
    ([*SIMULATE, "--trace", "trace.txt"], ".json.gz"),
    ([*SIMULATE, "--slices", "0"], "slices"),
    ([*SIMULATE, "--tp", "0"], "tp"),
    ([*SIMULATE[:-2], "--global-batch", "1B sequences"], "micro-batches"),
    ([*STAGES, "--headroom", "2"], "headroom"),
    (["search", "stages", "lama-3-8b", "--on", "8xh100"], "did you mean"),
]


pytestmark = pytest.mark.usefixtures("narrow_terminal")


@pytest.mark.parametrize(("arguments", "cure"), BAD, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_bad_input_is_one_line_and_exit_2(arguments, cure, capsys):
    refused(capsys, arguments, cure)


@pytest.mark.parametrize("more", [[], ["--straggler", "stage=2,factor=1.2", "--jitter", "0.05", "--steps", "20"],
                                  ["--vpp", "2"], ["--schedule", "dualpipe", "--recompute", "full"]])  # fmt: skip
def test_pages_are_80_columns_wide(more, capsys):
    text = shown(capsys, [*SIMULATE, *more])
    assert max(map(len, text.splitlines())) <= 80
    assert "idle" in text
    assert "1f1b" in text


def test_json_of_simulate(capsys):
    found = json.loads(shown(capsys, [*SIMULATE, "--json", "--slices", "10"]))
    assert {"step_s", "bubble_share", "idle_share", "active", "peak_bytes", "schedules", "closed_form"} <= set(found)
    assert len(found["peak_bytes"]) == 4
    assert len(found["active"]) == 10
    assert all(0 <= share <= 1 + 1e-9 for share in found["active"])
    assert found["jitter"] is None
    assert found["closed_form"]["gap"] == pytest.approx(found["step_s"] / found["closed_form"]["step_s"] - 1)
    mine = next(row for row in found["schedules"] if row["schedule"] == "1f1b")
    assert mine["step_s"] == found["step_s"]
    peak = found["peaks"][0]
    assert sum(peak["kinds_bytes"].values()) == pytest.approx(peak["bytes"])


def test_a_straggler_and_a_seed(capsys):
    base = json.loads(shown(capsys, [*SIMULATE, "--json"]))
    slow = json.loads(shown(capsys, [*SIMULATE, "--straggler", "stage=3,factor=1.3", "--json"]))
    assert base["step_s"] < slow["step_s"] < 1.3 * base["step_s"]
    assert (base["rank_classes"], slow["rank_classes"]) == (4, 8)
    assert len(slow["peak_bytes"]) == 4
    jitter = [*SIMULATE, "--jitter", "0.05", "--steps", "50", "--json", "--seed"]
    found = [json.loads(shown(capsys, [*jitter, seed]))["jitter"] for seed in ("1", "1", "2")]
    assert found[0] == found[1] != found[2]
    assert found[0]["p50_s"] < found[0]["p99_s"]


def test_a_trace_is_written(tmp_path, capsys):
    path = tmp_path / "out.json.gz"
    assert "perfetto" in shown(capsys, [*SIMULATE, "--trace", str(path)])
    assert len(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]) > 100


@pytest.mark.parametrize("verb", ["simulate", "search stages"])
def test_what_cannot_run_is_exit_1_with_a_cure(verb, capsys):
    line = [*verb.split(), "llama-3-70b", "--on", "dgx-h100:64", "--tp", "3"]
    assert json.loads(shown(capsys, [*line, "--json"], 1))["cure"].startswith("shardwise ")
    assert "tp" in shown(capsys, line, 1)
    assert (
        json.loads(shown(capsys, [*verb.split(), "llama-3-70b", "--on", "8xh100", "--tp", "8", "--json"], 1))["fits"]
        is False
    )


def test_stages(capsys):
    text = shown(capsys, STAGES)
    assert max(map(len, text.splitlines())) <= 80
    found = json.loads(shown(capsys, [*STAGES, "--json"]))
    assert sum(found["best"]["layers"]) == sum(found["even"]["layers"]) == 32
    assert found["best"]["step_s"] < found["even"]["step_s"]
    assert max(found["best"]["peak_bytes"]) <= found["limit_bytes"]
