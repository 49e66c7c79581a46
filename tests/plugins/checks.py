"""Whether each sample plug-in is found and used, with nothing but its own file added.

Run with SHARDWISE_PLUGINS naming the folders of the samples, one per kind; ends with one line of JSON: kind -> nothing,
or what went wrong. One process asks for all of them.
"""

import contextlib
import io
import json
from collections.abc import Callable
from typing import Any

from shardwise.cost.network import network_of
from shardwise.measured.validate.layouts import published_runs
from shardwise.plugins.engines import Setup, engine_of, run
from shardwise.show.cli import main
from shardwise.spec.arch import model_from_config
from shardwise.spec.load import cluster_of, price_of

TINY = {
    "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 1024, "vocab_size": 1000,
}  # fmt: skip
LLAMA = ["llama-3-8b", "--global-batch", "64"]
SHORT = ["llama-3-8b", "--global-batch", "8", "--seq", "1024"]


def told(*words: str) -> dict[str, Any]:
    """What a verb answers as JSON."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main([*words, "--json"])
    assert code in (0, 1), words  # 1: it does not fit, which is an answer
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def gpu() -> bool:
    found = told("estimate", *LLAMA, "--on", "16xsample-gpu", "--dp", "16", "--zero", "3")
    lines = " ".join(found["assumptions"])
    listed = {each["name"] for each in told("catalog", "gpus")["gpus"]}
    said = "fabric: none is stated for sample-gpu" in lines and "kernel rates: none measured on sample-gpu" in lines
    return said and "sample-gpu" in listed and found["step_s"] > 0


def fabric() -> bool:
    listed = {each["name"] for each in told("catalog", "clusters")["clusters"]}
    slow, usual = (
        told("estimate", *LLAMA, "--on", f"{name}:16", "--dp", "16", "--zero", "3")["step_s"]
        for name in ("sample-fabric", "dgx-h100")
    )
    return "sample-fabric" in listed and slow > usual


def price() -> bool:
    return price_of("tpu-v5p").on_demand == (4.0, 5.0)


def model() -> bool:
    listed = {each["name"] for each in told("catalog", "models")["models"]}
    found = told("estimate", "sample-model", "--on", "8xh100", "--dp", "8", "--global-batch", "8")
    return "sample-model" in listed and found["step_s"] > 0


def stack() -> bool:
    named = "sample-stack"
    return bool(told("estimate", *LLAMA, "--on", "8xh100", "--dp", "8", "--stack", named)["stack"] == named)


def layout() -> bool:
    return [run.name for run in published_runs("sample-layout")] == ["sample-layout/sample"]


def family() -> bool:
    found = model_from_config({**TINY, "model_type": "sample_type"}, "mine")
    # without a file of its own it is read by its fields, with notes
    return found.family == "llama" and not found.notes


def schedule() -> bool:
    split = ["--on", "8xh100", "--pp", "2", "--dp", "4"]
    rows = {row["schedule"]: row for row in told("simulate", *SHORT, *split)["schedules"]}
    priced = told("estimate", *SHORT, *split, "--schedule", "sample_schedule")
    planned = told("plan", *SHORT, "--on", "8xh100", "--fix", "schedule=sample_schedule", "--fix", "pp=2")
    chosen = planned["best"][0]["policy"]["schedule"]
    ran = rows["sample_schedule"]["step_s"] > 0 and priced["step_s"] > 0
    return ran and chosen == "sample_schedule" and rows["sample_schedule"]["why_not"] == ""


def collective() -> bool:
    network = network_of(cluster_of("dgx-h100:64"))
    names = ("sample_collective", "pairwise")
    seconds = [float(network.seconds("all_to_all", 1e9, 64, algorithm=name)) for name in names]
    return seconds[0] == seconds[1] > 0


def cost(*settings: str) -> float:
    words = [word for setting in settings[1:] for word in ("--set", setting)]
    found = told("sync", "cost", settings[0], *words, "--parameters", "10M", "--bandwidth", "10 Gbps", "--workers", "8")
    return float(found["sent_bytes"])


def compressor() -> bool:
    listed = {each["name"] for each in told("sync", "list")["compressors"]}
    mine, dense = cost("mem_sgd", "compressor=sample_compressor"), cost("psgd")
    return "sample_compressor" in listed and 0 < mine < dense


def topology() -> bool:
    listed = {each["name"] for each in told("sync", "list")["topologies"]}
    mine, ring = cost("dsgd", "topology=sample_topology"), cost("dsgd", "topology=ring")
    return "sample_topology" in listed and mine == 2 * ring


def strategy() -> bool:
    listed = {each["name"] for each in told("sync", "list")["strategies"]}
    return "sample_strategy" in listed and cost("sample_strategy") == cost("local_sgd", "every=2")


def optimizer() -> bool:
    split = ["--on", "8xh100", "--dp", "8", "--zero", "1", "--optimizer"]
    mine, plain = (told("estimate", *LLAMA, *split, name) for name in ("sample-optimizer", "sgd"))
    kept, none = (found["stages"][0]["kinds_bytes"]["optimizer"] for found in (mine, plain))
    sent, less = (found["traffic_bytes"]["dp"]["node"] for found in (mine, plain))
    matrices = 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)
    return kept - none == matrices * 2 * 4 / 8 and sent - less == matrices * 2 * 7 / 8


def engine() -> bool:
    return run(engine_of("sample_engine"), bytes.upper, [b"a", b"b"], Setup()) == [b"A", b"B"]


def method() -> bool:
    asked = ["--on", "8xh100", "--pp", "4", "--dp", "2", "--method", "sample_method", "--budget", "50"]
    return "sample_method" in json.dumps(told("search", *LLAMA, *asked))


def format() -> bool:
    found = told("export", *LLAMA, "--on", "8xh100", "--tp", "2", "--dp", "4", "--to", "sample_format")
    return bool("sample.dp=4 sample.tp=2" in found["files"]["train.sh"])


def subject() -> bool:
    (row,) = told("preflight", "--only", "sample")["items"]
    return (row["item"], row["verdict"], row["cure"]) == ("sample-released", "fail", "ask the site")


CHECKS: dict[str, Callable[[], bool]] = {
    check.__name__: check
    for check in (
        gpu, fabric, price, model, stack, layout, family, schedule, collective, compressor, topology, strategy,
        optimizer, engine, method, format, subject,
    )
}  # fmt: skip


def seen() -> dict[str, str]:
    """Kind -> nothing, or what went wrong."""
    found = {}
    for kind, check in CHECKS.items():
        try:
            found[kind] = "" if check() else "found, but not used"
        except (AssertionError, ValueError, LookupError, TypeError) as error:
            found[kind] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    print(json.dumps(seen()))
