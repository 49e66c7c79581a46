"""Our figures on the rows other tools were held against, pasted between the markers of benchmarks/peers.md."""

import re
import time

import numpy as np

from _accuracy_data import ROOT, Floats, measured_rows, time_errors
from _accuracy_folds import read_folds
from _accuracy_tables import markdown, percent
from estimate import BATCH, policies_per_s
from shardwise.measured.validate.predict import Prediction, predict
from shardwise.measured.validate.score import metrics
from shardwise.measured.validate.table import MeasuredRow
from shardwise.plan import scan
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.software import stack_of
from shardwise.work.case import case_of

PEERS = ROOT / "benchmarks" / "peers.md"
MARKS = ("<!-- figures -->\n", "<!-- /figures -->\n")

SCRIPT_MICRO = (16, 16, 16, 8, 4, 2, 2, 1, 1, 1)
SCRIPT_VPP = (1, 1, 1, 1, 1, 3, 2, 2, 3, 1)
"""micro-batch and chunks of NVIDIA's script for the table of arXiv:2104.04473, by row"""

KORTHIKANTI = (
    ("megatron-22b", 8, 1, 1, 4, 4, 1.42, 1.10),
    ("megatron-175b", 64, 8, 3, 1, 64, 18.13, 13.75),
    ("megatron-529.6b", 280, 35, 3, 1, 280, 49.05, 37.83),
    ("megatron-1008b", 512, 64, 1, 1, 512, 94.42, 71.49),
)
"""arXiv:2205.05198 Tables 3 and 5: model, GPUs, pp, vpp, micro-batch, batch, seconds full, seconds selective + sp"""

SEARCHES = (("megatron-1008b", 3072, 3072), ("megatron-175b", 4096, 4096))


def narayanan(scripted: bool) -> list[Prediction]:
    rows = [row for row in measured_rows() if row.word("source") == "Narayanan2021-T1"]
    if scripted:
        rows = [
            MeasuredRow(row=row.row, text={**row.text, "micro_batch": str(micro), "vpp": str(vpp)})
            for row, micro, vpp in zip(rows, SCRIPT_MICRO, SCRIPT_VPP, strict=True)
        ]
    return predict(rows)


def korthikanti() -> list[Prediction]:
    rows: list[MeasuredRow] = []
    for model, gpus, pp, vpp, micro, batch, *seconds in KORTHIKANTI:
        shape = model_of(model)
        common = {
            "source": "Korthikanti2022-T5", "model": model, "layers": shape.layers, "hidden": shape.hidden,
            "gpu": "A100-80GB-SXM", "gpus": gpus, "gpus_per_node": 8, "internode_gbps_per_gpu": 200, "seq": 2048,
            "dtype": "fp16", "tp": 8, "pp": pp, "vpp": vpp, "cp": 1, "dp": 1, "zero_stage_or_fsdp": 0,
            "micro_batch": micro, "global_batch": batch, "flash_attention": 0, "software": "Megatron-LM 2022",
        }  # fmt: skip
        for (sp, again), step in zip(((0, "full"), (1, "selective")), seconds, strict=True):
            cells = {**common, "sp": sp, "recompute": again, "step_seconds": step}
            rows.append(MeasuredRow(row=len(rows), text={key: str(value) for key, value in cells.items()}))
    return predict(rows)


def _of_speed(found: list[Prediction]) -> Floats:
    """Errors of throughput (TFLOP/s) where the peers' were counted so."""
    return np.asarray(1 / (1 + time_errors(found)) - 1)


def _mean(errors: Floats) -> str:
    return percent(float(np.abs(errors).mean()))


def table_a() -> str:
    scripted, best = narayanan(scripted=True), narayanan(scripted=False)
    lines = [
        [p.measured.word("model"), percent(e, signed=True), percent(b, signed=True)]
        for p, e, b in zip(scripted, _of_speed(scripted), _of_speed(best), strict=True)
    ]
    lines.append(["**mean, TFLOP/s (step time)**", f"**{_mean(_of_speed(scripted))}** ({_mean(time_errors(scripted))})",
                  f"{_mean(_of_speed(best))} ({_mean(time_errors(best))})"])  # fmt: skip
    head = ("model", "micro-batch and chunks of NVIDIA's script", "best predicted micro-batch and chunks")
    return markdown(head, lines) + _held_out_line("megatron-core@2021")


def table_b() -> str:
    found = korthikanti()
    lines = []
    for (model, *_, full, selective), first in zip(KORTHIKANTI, range(0, 8, 2), strict=True):
        a, b = found[first], found[first + 1]
        lines.append([model, f"{full:.2f} / {selective:.2f}", f"{a.step_s:.2f} / {b.step_s:.2f}",
                      f"{percent(a.error, signed=True)} / {percent(b.error, signed=True)}"])  # fmt: skip
    errors = time_errors(found)
    lines.append(["**mean** (largest)", "", "", f"**{_mean(errors)}** ({percent(float(np.abs(errors).max()))})"])
    return markdown(("model", "measured, s: full / selective + sp", "predicted, s", "error"), lines) + (
        "\nNo constant was fitted on these eight.\n"
    )


def table_cd() -> str:
    lines = []
    for source in ("vTrain-multi", "vTrain-single"):
        found = predict([row for row in measured_rows() if row.word("source") == source])
        if not found:
            lines.append([source, "not at hand", *["-"] * 5])
            continue
        score = metrics(found)
        within = [p for p in found if p.policy and p.policy.tp <= 8]
        lines.append([source, f"{score['n']:,}", percent(score["mape"]), percent(score["median_ape"]),
                      percent(score["bias"], signed=True), _mean(time_errors(within)),
                      percent(1 - float(score["regret"] or 0))])  # fmt: skip
    head = ("rows", "n", "mean error", "median", "bias", "mean error, tp <= 8", "speed lost by following it")
    return markdown(head, lines) + _held_out_line("deepspeed@megatron")


def _held_out_line(stack: str) -> str:
    record = read_folds().get(stack)
    if record is None:
        return "\nNot cross-validated yet.\n"
    out = record["held_out"]
    return (
        f"\nConstants of `{stack}` were fitted on rows of this kind. Cross-validated by groups (rows below 5 % of peak "
        f"left out): {percent(out['mape'])} mean, {percent(out['median'])} median, step time, {out['rows']:,} rows.\n"
    )


def table_search() -> str:
    stack, lines = stack_of("megatron-core"), []
    for name, gpus, batch in SEARCHES:
        model, cluster, job = model_of(name), cluster_of(f"dgx-a100:{gpus}"), Job(seq=2048, global_batch=batch)
        begun = time.process_time()
        found = scan(case_of(model, cluster, job, stack))
        seconds = time.process_time() - begun
        lines.append([f"{name}, {gpus:,} A100, batch {batch:,}", f"{found.points:,}", f"{found.evaluated:,}",
                      f"{seconds:.2f} s", f"{found.points / seconds:,.0f}"])  # fmt: skip
    rate = policies_per_s(BATCH)
    head = ("search, one core", "legal policies", "estimated", "processor time", "policies/s")
    alone = f"\nThe closed form alone, in batches of {BATCH:,}: {rate:,.0f} policies/s on one core.\n"
    return markdown(head, lines) + alone


def figures() -> str:
    parts = (
        ("A. Narayanan et al. 2021, ten rows: error of TFLOP/s", table_a),
        ("B. Korthikanti et al. 2022, eight step times", table_b),
        ("C, D. vTrain's runs, every row at hand", table_cd),
        ("E. Search", table_search),
    )
    return "\n".join(f"### {title}\n\n{table()}" for title, table in parts)


def write_peers() -> str:
    """Puts fresh figures between the markers; gives them back."""
    found = figures()
    text = PEERS.read_text(encoding="utf-8")
    pattern = re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1])
    if not re.search(pattern, text, re.DOTALL):
        raise ValueError(f"{PEERS.relative_to(ROOT)}: has no line {MARKS[0].strip()!r}; put the markers back")
    PEERS.write_text(re.sub(pattern, lambda _: MARKS[0] + found + MARKS[1], text, flags=re.DOTALL), encoding="utf-8")
    return found
