"""A table of measured runs -> the validation document: every row predicted, errors by source and over all."""

from pathlib import Path
from typing import Any

from shardwise.cost.calibrate.profile import Profile
from shardwise.measured.validate.failed import failed_predictions, fit_balanced_accuracy
from shardwise.measured.validate.few_runs import learned_predictions, learned_summary
from shardwise.measured.validate.one_gpu import is_one_gpu, one_gpu_predictions
from shardwise.measured.validate.predict import Prediction, predict
from shardwise.measured.validate.score import summary
from shardwise.measured.validate.table import header, read_table


def validate(
    data: Path, *, failed: Path | None = None, stack: str = "auto", profile: Profile | None = None,
    learn: int | None = None, seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """`{"rows": [...], "summary": {"all": {...}, "<source>": {...}}}`: the fixed contract of the verb. `learn`: so many
    other runs of a row's group, drawn by the seed, correct its prediction."""
    one = is_one_gpu(header(data))
    predictions = one_gpu_predictions(data, stack, profile) if one else predict(read_table(data), stack, profile)
    if not predictions:
        raise ValueError(f"{data}: has a first line but no rows; write one line per measured run")
    if learn is not None:
        predictions = learned_predictions(predictions, learn, seed)
        rows = [_row(p) | {"learned_from": p.learned_from} for p in predictions]
        return {"rows": rows, "summary": learned_summary(predictions, learn)}
    scores: dict[str, dict[str, Any]] = dict(summary(predictions))
    if failed is not None:
        scores["all"]["fit_balanced_accuracy"] = fit_balanced_accuracy(predictions, failed_predictions(failed, stack))
    return {"rows": [_row(p) for p in predictions], "summary": scores}


def _row(prediction: Prediction) -> dict[str, Any]:
    measured, band = prediction.measured, prediction.band
    low, high = (None, None) if band is None or prediction.step_s is None else band.around(prediction.step_s)
    return {
        "row": measured.row,
        "source": measured.word("source"),
        "verdict": prediction.verdict,
        "why": prediction.why,
        "step_s": prediction.step_s,
        "tokens_per_s_per_gpu": prediction.tokens_per_s_per_gpu,
        "peak_bytes": prediction.peak_bytes,
        "step_low_s": low,
        "step_high_s": high,
        "evidence": None if band is None else band.evidence,
        "stacks_s": prediction.stacks_s,
        "measured_tokens_per_s_per_gpu": measured.tokens_per_s_per_gpu,
        "error": prediction.error,
    }
