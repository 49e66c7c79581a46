"""size, max, compare, sweep and plan's further questions as a user meets them."""

import csv
import json
from xml.etree import ElementTree

import pytest

from shardwise.answers._budget import Budget
from shardwise.answers._sizes import SizeQuestion
from shardwise.question import open_question_of
from shardwise.question.job import batches_near
from shardwise.show.cli._smallest import BETTER_BETWEEN
from shardwise.spec.sizes import sizes_of
from terminal import narrow_terminal, refused, shown  # noqa: F401

SIZE = ["size", "llama-3-8b", "--tokens", "1T", "--on", "dgx-h100:128"]
COMPARE = ["compare", "llama-3-8b", "--on", "dgx-h100:16", "--seq", "8192", "--global-batch", "128"]
NETWORK = ["sweep", "llama-3-8b", "--on", "dgx-h100:32", "--over", "network=10Gbps:800Gbps"]
PLAN = ["plan", "llama-3-70b", "--on", "dgx-h100:64"]
GOOD = [
    [*SIZE, "--within", "30 d", "--budget", "500k USD"],
    ["size", "gpt2", "--on", "4xv100"],
    [*SIZE, "--mfu", "0.4", "--within", "60 d"],
    ["size", "mixtral-8x7b", "--on", "h100", "--max-gpus", "64", "--rent", "2.5", "--seq", "4096"],
    ["size", "--chinchilla", "--flops", "5.76e23", "--on", "dgx-h100:1024"],
    ["size", "--chinchilla", "--budget", "1M USD", "--on", "h100"],
    ["size", "--chinchilla", "--within", "30 d", "--on", "dgx-h100:1024", "--mfu", "0.5"],
    ["size", "--max", "sequence", "llama-3-8b", "--on", "8xh100"],
    ["size", "--max", "batch", "llama-3-8b", "--on", "8xh100", "--fix", "tp=1,recompute=none"],
    ["size", "--max", "model", "llama-3-8b", "--on", "8xh100"],
    ["size", "--max", "sequence", "gpt2", "--on", "8xv100"],
    [*COMPARE, "--policy", "tp=8", "--policy", "hsdp", "--policy", "3d", "--policy", "ddp"],
    [*COMPARE, "--on", "dgx-b200:16", "--precision", "bf16", "--precision", "fp8"],
    ["sweep", "llama-3-8b", "--on", "dgx-h100:16", "--over", "network=100Gbps,800Gbps"],
    ["sweep", "llama-3-8b", "--on", "dgx-h100", "--over", "gpus=16:128", "--weak", "--policy", "tp=2"],
    ["sweep", "llama-3-8b", "--on", "8xh100", "--over", "seq=2048:32768"],
    ["sweep", "llama-3-8b", "--on", "8xh100", "--over", "micro=1:16", "--policy", "tp=2,recompute=full"],
    ["sweep", "llama-3-8b", "--on", "8xh100", "--over", "batch=64,512", "--policy", "fsdp"],
    [*PLAN, "--why", "--pareto", "--tokens", "1T", "--fix", "tp=8", "--bound", "pp<=4"],
    [*PLAN, "--why-not", "tp=8,pp=1,zero=3", "--why-not", "fsdp", "--why-not", "tp=3", "--why-not", "best,cp=1"],
    [*PLAN, "--budget", "5M USD", "--budget", "1000 d", "--budget", "32 GPUs", "--tokens", "1T"],
]  # fmt: skip
FAILED = [
    [*SIZE, "--within", "1 d"],
    [*SIZE, "--budget", "1k USD"],
    ["size", "llama-3.1-405b", "--on", "8xh100"],
    ["size", "--max", "sequence", "llama-3.1-405b", "--on", "8xh100"],
    ["compare", "llama-3.1-405b", "--on", "8xh100"],
    [*COMPARE, "--policy", "tp=3"],
    ["sweep", "llama-3.1-405b", "--on", "8xh100", "--over", "micro=1:2"],
    [*PLAN, "--budget", "8 GPUs", "--fix", "offload=none"],
    [*PLAN, "--fix", "tp=3"],
    ["plan", "llama-3.1-405b", "--on", "8xh100", "--why", "--pareto", "--why-not", "fsdp"],
]
BAD = [
    (["size"], "--chinchilla"),
    (["size", "llama-3-8b", "--chinchilla", "--flops", "1e24"], "write one of them"),
    (["size", "--chinchilla"], "--flops 1e24"),
    (["size", "--chinchilla", "--flops", "1e24", "--budget", "1M USD"], "one budget"),
    (["size", "--chinchilla", "--flops", "lots"], "flops"),
    (["size", "--chinchilla", "--flops", "0"], "flops"),
    (["size", "--chinchilla", "--within", "30 d", "--on", "h100"], "dgx-h100:1024"),
    (["size", "--chinchilla", "--flops", "1e24", "--mfu", "1.5"], "mfu"),
    ([*SIZE, "--within", "30"], "no unit"),
    ([*SIZE, "--within", "0 d"], "above 0"),
    ([*SIZE, "--budget", "500 coins"], "500k USD"),
    ([*SIZE, "--rent", "0"], "rent"),
    (["size", "llama-3-8b", "--on", "4x8xh100", "--max-gpus", "4"], "8 or more"),
    ([*SIZE, "--mfu", "1.5"], "mfu"),
    ([*SIZE, "--headroom", "2"], "headroom"),
    (["size", "llama-3-8b", "--on", "dgx-h1000"], "did you mean"),
    (["size", "--max", "sequnce", "llama-3-8b", "--on", "8xh100"], "did you mean 'sequence'?"),
    (["size", "--max", "sequence", "llama-3-8b", "--on", "8xh100", "--seq", "4096"], "leave --seq out"),
    (["size", "--max", "batch", "llama-3-8b", "--on", "8xh100", "--fix", "tp"], "tp=8"),
    ([*COMPARE, "--policy", "fdsp"], "did you mean 'fsdp'?"),
    ([*COMPARE, "--policy", "tp<8"], "best,tp<8"),
    ([*COMPARE, "--policy", "tp=0"], "1 or more"),
    ([*COMPARE, "--precision", "bf17"], "did you mean"),
    (["compare", "llama-3-8b"], "--on"),
    (["sweep", "llama-3-8b", "--on", "8xh100"], "--over"),
    (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "gpu=8:16"], "did you mean 'gpus'?"),
    (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "micro"], "micro=1:16"),
    (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "micro=8:1"], "smaller end first"),
    (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "micro=0:1"], "more than 0"),
    (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "micro=3"], "powers of two"),
    (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "micro=1,,2"], "micro=1:16"),
    (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "network=10Gbps:80Gbps"], "several nodes"),
    (["sweep", "llama-3-8b", "--on", "dgx-h100:16", "--over", "network=10:80"], "Gbps"),
    (["sweep", "llama-3-8b", "--on", "dgx-h100", "--over", "micro=1:2"], "dgx-h100:256"),
    (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "micro=1:2", "--weak"], "--over gpus"),
    (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "micro=1", "--figure", "out.png"], "out.svg"),
    (["sweep", "--on", "8xh100", "--over", "micro=1"], "none is named"),
    (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "micro=1", "--engine", "dusk"], "did you mean 'dask'?"),
    (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "micro=1", "--jobs", "0"], "jobs"),
    (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "micro=1", "--address", "x:1"], "--engine ray"),
    (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "micro=1", "--engine", "ray", "--jobs", "2"], "leave it out"),
    (["sweep", "llama-3-8b", "--on", "8xh100", "--over", "micro=1", "--csv", "/no/such/out.csv"], "/no/such"),
    ([*PLAN, "--fix", "tpp=8"], "did you mean 'tp'?"),
    ([*PLAN, "--why-not", "fspd"], "did you mean 'fsdp'?"),
    ([*PLAN, "--budget", "500k USD"], "--tokens 1T"),
    ([*PLAN, "--budget", "500"], "500k USD"),
    ([*PLAN, "--budget", "8 GPUs", "--budget", "9 GPUs"], "one of each"),
]


pytestmark = pytest.mark.usefixtures("narrow_terminal")


def data_of(capsys, arguments, code=0):
    return json.loads(shown(capsys, [*arguments, "--json"], code))


def words(value):
    return " ".join(value) if isinstance(value, list) else ""


@pytest.mark.parametrize(("arguments", "code"), [(a, 0) for a in GOOD] + [(a, 1) for a in FAILED], ids=words)
def test_pages_fit_and_json_is_json(arguments, code, capsys):
    text = shown(capsys, arguments, code)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert data_of(capsys, arguments, code)["notes"] is not None


@pytest.mark.parametrize(("arguments", "cure"), BAD, ids=words)
def test_bad_input_is_one_line_and_exit_2(arguments, cure, capsys):
    refused(capsys, arguments, cure)


def test_size_names_the_smallest_and_the_cheapest(capsys):
    found = data_of(capsys, [*SIZE, "--within", "60 d", "--budget", "1M USD", "--rent", "2"])
    rows = {row["gpus"]: row for row in found["sizes"]}
    assert {1, 2, 4, 8, 16, 32, 64, 128} <= set(rows)
    inside = [gpus for gpus, row in rows.items() if row["fits"] and row["seconds"] <= 60 * 86400]
    assert found["smallest_in_time"] == min(inside) > 8
    fitting = [gpus for gpus in rows if rows[gpus]["fits"]]
    assert found["cheapest_in_budget"] == min(fitting, key=lambda g: rows[g]["usd"][1])
    row = rows[128]
    assert row["usd"][0] == row["usd"][1] == pytest.approx(2 * 128 * row["seconds"] / 3600)
    assert row["electricity_usd"] == pytest.approx(0.10 * 1.2 * row["energy_j"] / 3.6e6)
    assert row["energy_j"] == pytest.approx(0.76 * 16 * 10.2e3 * row["seconds"])
    planned = data_of(capsys, ["plan", "llama-3-8b", "--on", "dgx-h100:128", "--tokens", "1T"])["recommended"]
    assert row["step_s"] == pytest.approx(planned["step_s"])
    assert row["seconds"] == pytest.approx(planned["run"]["seconds"])


def test_the_smallest_size_is_a_whole_number_of_nodes_and_the_one_before_is_late(capsys):
    asked = ["size", "llama-3-8b", "--tokens", "1T", "--within", "14 d", "--on", "dgx-h100"]
    found = data_of(capsys, [*asked, "--max-gpus", "128"])
    smallest = found["smallest_in_time"]
    assert 64 < smallest < 128
    assert smallest % 8 == 0
    row = next(row for row in found["sizes"] if row["gpus"] == smallest)
    assert row["seconds"] <= 14 * 86400
    assert abs(row["global_sequences"] / found["global_sequences"] - 1) <= 0.05
    before = data_of(capsys, [*asked, "--max-gpus", str(smallest - 8)], 1)
    assert before["smallest_in_time"] is None
    assert max(row["gpus"] for row in before["sizes"]) == smallest - 8


def test_no_size_between_powers_of_two_does_much_better_than_they_do():
    """What the search for the smallest size sets out from."""
    case = open_question_of("llama-3-8b", "dgx-h100:256")
    asked = SizeQuestion(case, sizes_of("dgx-h100"), 1e12, Budget(), None, 128)
    rates = {gpus: asked.at(gpus).report.tokens_per_s_per_gpu for gpus in (64, 72, 80, 88, 96, 112, 120, 128)}
    assert max(rates.values()) <= (1 + BETTER_BETWEEN) * max(rates[64], rates[128])


def test_batches_move_by_little_and_divide():
    assert batches_near(512, 64) == (512,)
    assert batches_near(2048, 9216) == (2048, 2016)
    for gpus in range(8, 1024, 8):
        for batch in batches_near(2048, gpus)[1:]:
            assert abs(batch / 2048 - 1) <= 0.05
            assert batch % (gpus // (gpus & -gpus)) == 0


def test_an_assumed_utilization_takes_the_place_of_a_search(capsys):
    found = data_of(capsys, [*SIZE, "--mfu", "0.4", "--within", "60 d", "--failures", "off"])
    smallest = found["smallest_that_meets_all"]
    seconds = {row["gpus"]: row["seconds"] for row in found["sizes"]}
    assert seconds[smallest] <= 60 * 86400 < seconds[smallest] * smallest / (smallest - 8)
    assert seconds[64] == pytest.approx(2 * seconds[128])


def test_chinchilla_money_becomes_work(capsys):
    found = data_of(capsys, ["size", "--chinchilla", "--budget", "3600 USD", "--rent", "1", "--on", "8xh100"])
    assert found["flops"] == pytest.approx(3600 * 3600 * 0.4 * found["peak_flops_per_s"])
    for law in found["optima"]:
        assert law["seconds_8tp"] == pytest.approx(law["seconds_6tp"] * 8 / 6)
        assert law["seconds_6tp"] == pytest.approx(3600 * 3600 / 8)


def test_the_largest_sequence_fits_and_the_next_does_not(capsys):
    found = data_of(capsys, ["size", "--max", "sequence", "llama-3-8b", "--on", "8xh100"])
    plan = ["plan", "llama-3-8b", "--on", "8xh100"]
    for size, code in ((found["largest"], 0), (found["next"]["size"], 1)):
        assert data_of(capsys, [*plan, "--seq", str(size)], code)["tokens"] is None
    assert found["next"]["size"] < 2 * found["largest"]
    assert found["next"]["over_bytes"] > 0
    assert max(found["next"]["kinds_bytes"], key=found["next"]["kinds_bytes"].get) in found["next"]["why"]


def test_the_largest_batch_and_model(capsys):
    batch = data_of(capsys, ["size", "--max", "batch", "llama-3-8b", "--on", "8xh100", "--fix", "tp=1,recompute=none"])
    assert batch["policy"]["micro_batch"] == batch["largest"]
    assert batch["policy"]["recompute"] == "none"
    assert batch["next"]["size"] == 2 * batch["largest"]
    model = data_of(capsys, ["size", "--max", "model", "llama-3-8b", "--on", "8xh100"])
    per_layer = 4096 * (4096 * 2 + 1024 * 2 + 3 * 14336 + 2)
    assert model["parameters"] == 2 * 128256 * 4096 + 4096 + model["largest"] * per_layer
    assert model["largest"] > 32
    assert model["next"]["size"] - model["largest"] <= model["largest"] / 32


def test_compare_agrees_with_estimate(capsys):
    found = data_of(capsys, [*COMPARE, "--policy", "tp=4,micro=2", "--policy", "tp=3", "--policy", "fsdp"])["cases"]
    job = ["--seq", "8192", "--global-batch", "128"]
    alone = data_of(capsys, ["estimate", "llama-3-8b", "--on", "dgx-h100:16", "--tp", "4", "--micro", "2", *job], 0)
    for key in ("step_s", "peak_bytes", "policy", "traffic_bytes", "verdict"):
        assert found[0][key] == alone[key]
    assert found[1]["legal"] is False
    assert found[1]["against_first"] is None
    assert found[2]["against_first"]["step_s"] == pytest.approx(found[2]["step_s"] / found[0]["step_s"] - 1)
    assert found[2]["policy"]["zero"] == 3


def test_hsdp_shards_over_a_node(capsys):
    found = data_of(capsys, [*COMPARE, "--policy", "hsdp,micro=2"], 1)["cases"][0]["policy"]
    assert (found["zero"], found["shard_group"], found["micro_batch"], found["dp"]) == (3, 8, 2, 16)


def test_the_knee_of_the_network_is_where_the_step_is_near_its_limit(capsys):
    fixed = [*NETWORK, "--policy", "zero=1,recompute=full"]
    found = data_of(capsys, fixed)
    steps = [point["step_s"] for point in found["points"]]
    assert steps == sorted(steps, reverse=True)
    knee = found["knee"]
    assert found["points"][0]["step_s"] > 1.05 * knee["limit"]
    for factor, near in ((1.01, True), (0.97, False)):
        rate = f"network={knee['value'] * factor * 8 / 1e9}Gbps"
        step = data_of(capsys, [*fixed[:4], "--over", rate, *fixed[6:]])["points"][0]["step_s"]
        assert (step <= 1.05 * knee["limit"]) is near


def test_a_sweep_over_gpus_equals_plans_of_each_size(capsys):
    job = ["llama-3-8b", "--global-batch", "512"]
    found = data_of(capsys, ["sweep", *job, "--on", "h100", "--over", "gpus=8,24"])["points"]
    for point in found:
        planned = data_of(capsys, ["plan", *job, "--on", f"{point['gpus']}xh100"], 0 if point["fits"] else 1)
        taken = planned["recommended"]
        assert (taken and taken["step_s"]) == (pytest.approx(point["step_s"]) if point["fits"] else None)


def test_weak_scaling_grows_the_batch(capsys):
    found = data_of(
        capsys, ["sweep", "llama-3-8b", "--on", "h100", "--over", "gpus=8:32", "--weak", "--policy", "fsdp"]
    )
    assert [point["global_sequences"] for point in found["points"]] == [64, 128, 256]


def test_sweep_writes_a_table_and_a_figure(tmp_path, capsys):
    table, figure = tmp_path / "out.csv", tmp_path / "out.svg"
    found = data_of(capsys, [*NETWORK, "--csv", str(table), "--figure", str(figure)])
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["network_bytes_per_s"]) for row in rows] == [p["network_bytes_per_s"] for p in found["points"]]
    assert [float(row["step_s"]) for row in rows] == [p["step_s"] for p in found["points"]]
    assert len(ElementTree.parse(figure).findall(".//{http://www.w3.org/2000/svg}circle")) == 2 * len(rows)


def test_plans_say_why(capsys):
    found = data_of(capsys, [*PLAN, "--why", "--top", "3"])
    first, second = found["best"][:2]
    assert first["why"].startswith("the fastest that fits")
    assert second["why"].startswith(("step +", "as fast"))
    assert sum(item["seconds"] for item in found["waterfall"]) == pytest.approx(second["step_s"] - first["step_s"])
    for plan in found["best"]:
        assert plan["peak_bytes"] <= found["limit_bytes"]
        assert {
            "policy",
            "step_s",
            "mfu_causal_half",
            "peak_bytes",
            "free_bytes",
            "tokens_per_s_per_gpu",
            "usd",
            "bottleneck",
        } <= set(plan)


def test_why_not(capsys):
    asked = ["tp=3", "tp=8,pp=1,micro=16", "tp=8,pp=8,recompute=full", "best", "best,tp=7"]
    arguments = [word for text in asked for word in ("--why-not", text)]
    found = data_of(capsys, [*PLAN, *arguments])
    verdicts = [item["verdict"] for item in found["why_not"]]
    assert verdicts == ["illegal", "out of memory", "slower", "it wins", "illegal"]
    illegal, over, slower = found["why_not"][:3]
    assert illegal["why"].startswith("world: ")
    assert illegal["nearest"]["tp"] in (2, 4)
    assert over["over_bytes"] == pytest.approx(over["peak_bytes"] - found["limit_bytes"])
    assert over["why"].startswith(f"out of memory by {over['over_bytes'] / 2**30:.1f} GiB on stage 0: ")
    assert slower["slower"] == pytest.approx(slower["step_s"] / found["recommended"]["step_s"] - 1)


def test_rules_of_thumb_are_held_against_the_winner(capsys):
    found = data_of(capsys, [*PLAN, "--why-not", "rules"])["why_not"]
    assert len(found) == 6
    data_parallel, pipeline = found[:2]
    assert data_parallel["verdict"] == "out of memory"
    assert "on stage 0" in data_parallel["why"]
    assert pipeline["policy"]["pp"] > 1
    moe = ["plan", "mixtral-8x7b", "--on", "dgx-h100:64", "--seq", "4096", "--why-not", "rules"]
    assert data_of(capsys, moe)["why_not"][-1]["verdict"] == "it wins"


def test_constraints_hold_in_every_plan(capsys):
    found = data_of(capsys, [*PLAN, "--fix", "tp=8", "--bound", "pp<=2,recompute=full"])
    assert found["constraints"] == "tp=8, pp<=2, recompute=full"
    for plan in found["best"]:
        policy = plan["policy"]
        assert (policy["tp"], policy["recompute"]) == (8, "full")
        assert policy["pp"] <= 2


def test_a_budget_takes_the_fastest_size_inside_it(capsys):
    base = ["plan", "llama-3-70b", "--on", "dgx-h100:256", "--tokens", "1T"]
    assert data_of(capsys, [*base, "--budget", "100 GPUs"])["gpus"] == 64
    assert data_of(capsys, [*base, "--budget", "100 kW"])["gpus"] == 64
    assert data_of(capsys, [*base, "--budget", "130 kW"])["gpus"] == 128
    assert data_of(capsys, [*base, "--budget", "100 d"])["gpus"] == 256
    over = data_of(capsys, [*base, "--budget", "10 d"], 1)
    assert over["best"] == []
    assert over["over_budget"][-1]["misses"] == ["time"]


def test_the_frontier_over_sizes_has_no_loser(capsys):
    found = data_of(capsys, [*PLAN, "--pareto", "--fix", "offload=none"])["pareto"]
    assert {row["gpus"] for row in found} == {32, 64}
    rows = [(r["step_s"], r["peak_bytes"], r["step_s"] * r["gpus"], r["gpus"]) for r in found]
    for one in rows:
        assert not any(all(a <= b for a, b in zip(other, one, strict=True)) and other != one for other in rows)


SEVERAL = [
    "sweep",
    "llama-3-8b",
    "gpt2-large",
    "--on",
    "8xh100",
    "--over",
    "batch=64,128",
    "--seq",
    "1024",
    "--policy",
    "fsdp",
]


def test_a_sweep_of_several_studies_is_the_single_ones_side_by_side(tmp_path, capsys):
    table, figure = tmp_path / "out.csv", tmp_path / "out.svg"
    words = [*SEVERAL, "--policy", "tp=2", "--csv", str(table), "--figure", str(figure)]
    found = data_of(capsys, words)
    assert [(s["model"], s["asked"]) for s in found["studies"]] == [
        ("llama-3-8b", "fsdp"), ("llama-3-8b", "tp=2"), ("gpt2-large", "fsdp"), ("gpt2-large", "tp=2"),
    ]  # fmt: skip
    alone = data_of(capsys, ["sweep", "gpt2-large", *SEVERAL[3:-1], "tp=2"])
    assert alone["points"] == found["studies"][3]["points"]
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["asked"], float(row["step_s"])) for row in rows] == [
        (s["model"], s["asked"], p["step_s"]) for s in found["studies"] for p in s["points"]
    ]
    root = ElementTree.parse(figure).getroot()
    assert len(root.findall(".//{http://www.w3.org/2000/svg}polyline")) == 2 * 4
    texts = [text.text for text in root.findall(".//{http://www.w3.org/2000/svg}text")]
    assert "gpt2-large on 8xh100, tp=2" in texts
    assert "gpt2-large on 8xh100, fsdp" in shown(capsys, SEVERAL)
