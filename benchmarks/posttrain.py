"""Is a step of post-training predicted well, on runs whose source was left out of the fit?

`python benchmarks/posttrain.py --json`: published steps (evidence/posttrain/steps.csv) against predictions
whose fitted constants never saw the row's source; phases, weight transfers, colocated or split in published pairs, and
the 80 % band. `--fit` prints the constants fitted on all rows, for catalog/posttrain.toml;
`--rows` prints every row. By source: a release of NeMo-RL is a source, as its pull requests are; the stricter
`mape_left_out_models` leaves out a model and `mape_left_out_gpus` a GPU, wherever it was run. `bytes_equal`: of small
runs on gloo ranks, whether each phase sent the bytes that were predicted; `--published` runs nothing.
"""

import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from scipy.optimize import least_squares

from _posttrain_decode import decode_errors
from _posttrain_memory import memory_verdicts
from _posttrain_transfers import every_row, sent_rows
from _posttrain_transfers import left_out as sent_left_out
from shardwise.arrays import Floats
from shardwise.question.job import DEFAULT_STACK
from shardwise.spec.arch import model_of
from shardwise.spec.job import optimizer_of
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import known_stack
from shardwise.step.posttrain.engine import shard_bytes
from shardwise.step.posttrain.facts import ProgramFacts, facts
from shardwise.step.posttrain.job import PosttrainJob
from shardwise.step.posttrain.phases import COLOCATED, PosttrainPhases, RolloutPrice, Sides, phases_of, rollout_price
from shardwise.step.posttrain.rollout import capped_lengths
from shardwise.step.posttrain.trainer import TrainerPrice, case_with, packed_micro, priced
from shardwise.work.case import driven_network

ROOT = Path(__file__).resolve().parents[1] / "evidence" / "posttrain"
CLUSTERS = {
    "h100": "dgx-h100:{}",
    "h800": "{}x8xh800",
    "h20": "{}x8xh20",
    "gb200": "gb200-nvl72:{}",
    "a800": "{}x8xa800",
}
"""of eight to a node where a number of nodes stands in it"""
SHRUNK = 0.1
"""how far a constant is drawn to where the fit begins, in e-folds: with few sources some constants are hardly seen"""
START = {"rollout": 1.2, "update": 1.2, "fixed_s": 4.0, "sequence_s": 0.002, "together_s": 2.0, "together_rate": 2e10,
         "apart_rate": 8e10}  # fmt: skip
LOW, HIGH = 0.1, 0.9
Row = dict[str, str]


@dataclass(frozen=True)
class Measured:
    """One published step with what the laws say before any constant of a program."""

    row: Row
    job: PosttrainJob
    rollout: RolloutPrice
    trainer: TrainerPrice
    model_bytes: float

    @property
    def step_s(self) -> float:
        return float(self.row["step_s"])


def read(name: str) -> list[Row]:
    with (ROOT / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def cluster_name(gpu: str, gpus: int) -> str:
    text = CLUSTERS[gpu]
    return text.format(gpus) if ":" in text else text.format(gpus // 8) if gpus >= 16 else f"{gpus}x{gpu}"


def outside(row: Row) -> bool:
    """Whether its note names what is not ours to predict: the table was written before any prediction."""
    return any(word in row["note"] for word in ("tools", "pictures"))


def usable(row: Row) -> str:
    """Why a step cannot be predicted; empty: it can."""
    if not row["step_s"]:
        return "no step time published"
    if not row["mean_len"] or not row["prompts"] or not row["group"]:
        return "length of answers or batch not published"
    if row["algorithm"] != "grpo" or outside(row):
        return "filtered prompts, tools or pictures"
    if row["stack"] != "nemo-rl" or not row["train_tp"]:
        return "layout not published"
    return ""


def neutral() -> ProgramFacts:
    return replace(facts().programs["nemo-rl"], rollout=1.0, update=1.0, fixed_s=0.0, sequence_s=0.0)


def measured_of(row: Row) -> Measured:
    model, gpus = model_of(row["model"]), int(row["gpus"])
    cluster, stack = cluster_of(cluster_name(row["gpu"], gpus)), known_stack(DEFAULT_STACK)
    prompt, sequences = int(row["prompt_len"] or 110), int(row["prompts"]) * int(row["group"])
    cap = int(row["cap"]) - prompt
    job = PosttrainJob(
        algorithm="grpo", prompts=int(row["prompts"]), group=int(row["group"]), prompt_tokens=prompt,
        lengths=capped_lengths(min(float(row["mean_len"]), cap), cap), cap=cap,
        updates=sequences // int(row["train_batch"]), reference=row["reference"] == "1",
    )  # fmt: skip
    sides = Sides(
        mode=row["mode"], rollout_gpus=int(row["rollout_gpus"]), train_gpus=int(row["train_gpus"]),
        tp=int(row["rollout_tp"]), share=float(row["engine_share"]), lag=int(row["off_policy"]),
        precision=row["rollout_precision"],
    )  # fmt: skip
    rollout = rollout_price(model, cluster, driven_network(cluster, stack), job, neutral(), sides)
    degrees = {axis: int(row[f"train_{axis}"]) for axis in ("tp", "cp", "ep", "pp")}
    dp = sides.train_gpus // (degrees["tp"] * degrees["cp"] * degrees["pp"])
    micro = packed_micro(job)
    policy = Policy(**degrees, dp=dp, zero=1, micro_batch=micro, recompute=row["recompute"])
    trains = cluster_of(cluster_name(row["gpu"], sides.train_gpus))
    # The published 8-bit runs change the layout too, and what they train in 8 bits is not said: the trainer is in 16.
    case = case_with(model, trains, job, stack, stack.precision("bf16"), optimizer_of("adamw"), dp * micro)
    return Measured(row, job, rollout, priced(case, job, policy), shard_bytes(model))


def program_of(constants: dict[str, float]) -> ProgramFacts:
    return replace(neutral(), **{name: constants[name] for name in ("rollout", "update", "fixed_s", "sequence_s")})


def predicted(found: Measured, constants: dict[str, float]) -> PosttrainPhases:
    """With the constants of a fit: the transfer's rate by whether GPUs are shared."""
    together = found.rollout.sides.mode == COLOCATED
    rate = constants["together_rate" if together else "apart_rate"]
    factor = constants["rollout"]
    rollout = RolloutPrice(**{
        **{name: getattr(found.rollout, name) for name in RolloutPrice.__dataclass_fields__},
        "seconds": factor * found.rollout.seconds, "alone_s": factor * found.rollout.alone_s,
        "sync_s": (constants["together_s"] if together else 1.0) + found.model_bytes / rate,
    })  # fmt: skip
    return phases_of(found.job, program_of(constants), rollout, found.trainer)


PUBLISHED = {"gen_s": "rollout_s", "logprob_s": "log_probs_s", "update_s": "update_s"}
"""phases of a table's columns"""


def phase_ratios(found: Measured, phases: PosttrainPhases, *more: str) -> dict[str, float]:
    """Predicted over measured of phases that a source publishes beside the step."""
    if "exposed" in found.row["note"]:
        return {}
    columns = PUBLISHED | {column: column for column in more}
    return {
        column: getattr(phases, name) / float(found.row[column])
        for column, name in columns.items() if found.row[column] and float(found.row[column])
    }  # fmt: skip


def fitted(rows: list[Measured]) -> dict[str, float]:
    begin = np.log(list(START.values()))

    def off(values: Floats) -> Floats:
        constants = dict(zip(START, np.exp(values).tolist(), strict=True))
        errors: list[float] = []
        for each in rows:
            phases = predicted(each, constants)
            errors += [phases.step_s / each.step_s, *phase_ratios(each, phases, "sync_s").values()]
        return np.asarray([*np.log(errors), *(SHRUNK * (values - begin))])

    found = least_squares(off, begin, loss="soft_l1", f_scale=0.2)
    return dict(zip(START, np.exp(found.x).tolist(), strict=True))


def left_out(rows: list[Measured], by: str) -> list[PosttrainPhases]:
    """Each row by constants that saw no row with the same value of this column."""
    found: dict[int, PosttrainPhases] = {}
    for value in sorted({each.row[by] for each in rows}):
        constants = fitted([each for each in rows if each.row[by] != value])
        found |= {place: predicted(each, constants) for place, each in enumerate(rows) if each.row[by] == value}
    return [found[place] for place in range(len(rows))]


def step_ratios(rows: list[Measured], said: list[PosttrainPhases]) -> Floats:
    """Predicted over measured."""
    return np.array([phases.step_s / each.step_s for each, phases in zip(rows, said, strict=True)])


def mape(ratios: Floats) -> float:
    return float(np.abs(ratios - 1.0).mean())


def covered(rows: list[Measured], ratios: Floats) -> float:
    """Share of measured steps inside the band that the other sources' errors make."""
    inside = []
    for place, each in enumerate(rows):
        others = [
            1.0 / ratio for ratio, other in zip(ratios, rows, strict=True) if other.row["source"] != each.row["source"]
        ]
        low, high = np.quantile(others, [LOW, HIGH])
        inside.append(low <= 1.0 / ratios[place] <= high)
    return float(np.mean(inside))


def choices(rows: list[Measured], ratios: Floats) -> tuple[int, int]:
    """Pairs of the same job on equal GPUs: colocated against split, judged by predictions with the source left out."""
    right = pairs = 0
    by_pair: dict[str, list[tuple[Measured, float]]] = {}
    for each, ratio in zip(rows, ratios, strict=True):
        if each.row["pair"]:
            by_pair.setdefault(each.row["pair"] + each.row["train_precision"], []).append((each, float(ratio)))
    for members in by_pair.values():
        if len({each.rollout.sides.mode for each, _ in members}) == 2:
            pairs += 1
            best = min(members, key=lambda each: each[0].step_s)
            picked = min(members, key=lambda each: each[0].step_s * each[1])
            right += best is picked
    return right, pairs


def pass_errors(every: list[Row]) -> list[float]:
    """A pass for log-probabilities from the measured update of the same step: where lengths are not published the two
    still have the same. Our law says one pass of the update's four, times what other sources' passes take; the policy's
    own pass also has the entropy of every token (verl's actor: calculate_entropy), a frozen model's has not."""
    errors = []
    for column, name in (("logprob_s", "log_prob"), ("ref_s", "frozen")):
        known = [
            (row["source"], float(row[column]) / float(row["update_s"]))
            for row in every
            if row[column] and row["update_s"] and float(row[column]) and row["stack"] == "verl" and not outside(row)
        ]
        for source, share in known:
            others = [other for whose, other in known if whose != source]
            errors.append(abs(float(np.median(others)) / share - 1.0))
        if "--fit" in sys.argv:
            print(f"{name} of verl = {4.0 * np.median([share for _, share in known]):.3g}")
    return errors


RUNS = {
    "apart, lag 1": ("1xh100", "--rollout-ranks", "2", "--engine-tp", "2", "--lag", "1"),
    "tp 2 together": ("2xh100", "--tp", "2"),
    "pp 2 to 2": ("2xh100", "--pp", "2", "--rollout-ranks", "2"),
    "zero 3 together": ("2xh100", "--dp", "2", "--zero", "3", "--engine-tp", "2"),
}
"""small ones on gloo ranks: how many trainers, and who rolls out"""
RUN = ("--algorithm", "grpo", "--seq", "16", "--micro", "8", "--global-batch", "32", "--steps", "16", "--rate", "5e-3",
       "--warmup", "0", "--progress", "none")  # fmt: skip


def ran() -> dict[str, object]:
    """Whether the bytes of every phase of real runs are those predicted, and by how much the reward rises."""
    if "--published" in sys.argv or find_spec("torch") is None:
        return {"bytes_equal": None, "why_bytes_equal": "nothing was run: --published, or torch is not installed"}
    equal, rise = True, []
    for on, *layout in RUNS.values():
        words = ["run", "docs/tiny-llama.json", "--on", on, *layout, *RUN]
        told = subprocess.run(
            [sys.executable, "-m", "shardwise", *words, "--json"], cwd=ROOT.parents[1], capture_output=True, check=True
        ).stdout
        answer = json.loads(told)
        equal = equal and all(row["sent_bytes"] == row["expected_bytes"] for row in answer["phases"])
        rewards = [line["rollout"]["reward"] for line in answer["steps"]]
        rise.append(rewards[-1] - rewards[0])
    return {"bytes_equal": equal, "runs": len(RUNS), "reward_rise": min(rise)}


def main() -> int:
    every = read("steps.csv")
    reasons = [usable(row) for row in every]
    rows = [measured_of(row) for row, why in zip(every, reasons, strict=True) if not why]
    constants = fitted(rows)
    if "--fit" in sys.argv:
        for name, value in constants.items():
            print(f"{name} = {value:.4g}")
    without = left_out(rows, "source")
    ratios = step_ratios(rows, without)
    if "--rows" in sys.argv:
        for each, phases, ratio in zip(rows, without, ratios, strict=True):
            row = each.row
            words = (row[name] for name in ("source", "model", "gpu", "gpus", "mode", "off_policy"))
            every_phase = " ".join(
                f"{name} {off - 1:+.0%}" for name, off in phase_ratios(each, phases, "sync_s").items()
            )
            print(*words, f"{each.step_s:.0f} s", f"{ratio - 1:+.0%}", every_phase)
    right, pairs = choices(rows, ratios)
    of_phases = [
        abs(ratio - 1.0)
        for each, said in zip(rows, without, strict=True)
        for ratio in phase_ratios(each, said).values()
    ]
    phases = of_phases + pass_errors(every)
    elsewhere = 1.0 / step_ratios(rows, left_out(rows, "model"))
    together = [
        said.sync_s / float(each.row["sync_s"]) - 1.0
        for each, said in zip(rows, without, strict=True) if each.row["sync_s"]
    ]  # fmt: skip
    sync_rows = every_row()
    sent = sent_rows(sync_rows)
    sync = [*sent_left_out(sent), *together]
    seen = [each.error(facts().transfers[each.path]) for each in sent]
    low, high = np.quantile(1.0 / ratios, [LOW, HIGH])
    result = {
        "rows": len(every) + len(sync_rows) + len(read("trainer.csv")) + len(read("memory.csv")),
        "sources": len({row["source"] for row in every}), "steps": len(every), "predicted": len(rows),
        "not_predicted": {why: reasons.count(why) for why in dict.fromkeys(filter(None, reasons))},
        "mape_left_out": mape(ratios), "mape_left_out_models": mape(1.0 / elsewhere),
        "mape_left_out_gpus": mape(step_ratios(rows, left_out(rows, "gpu"))), "mape_fitted": mape(
            np.array([predicted(each, constants).step_s / each.step_s for each in rows])),
        "phases": len(phases), "phases_mape": float(np.mean(phases)) if phases else None,
        "phases_of_known_lengths": len(of_phases), "phases_of_known_lengths_mape": float(np.mean(of_phases)),
        "sync": len(sync), "sync_mape": float(np.mean(np.abs(sync))), "sync_median": float(np.median(np.abs(sync))),
        "sync_left_out": "source and model", "sync_mape_seen": float(np.mean(np.abs(seen))),
        "choice_right": right / pairs if pairs else None, "pairs": pairs, "coverage": covered(rows, ratios),
        "band": [float(low), float(high)],
        "band_models": [float(edge) for edge in np.quantile(elsewhere, [LOW, HIGH])],
**decode_errors(), **memory_verdicts(), **ran(),
    }  # fmt: skip
    if "--json" in sys.argv:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:22} {value:.3g}" if isinstance(value, float) else f"{name:22} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
