"""Errors, rank and regret of predictions, by source and over all."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from shardwise.measured.validate.predict import Prediction

LOW_MFU = 0.05
"""runs below this share of peak are broken or misplaced, not slow: they are predicted but not scored"""


def scored(prediction: Prediction) -> bool:
    """A row counts when its source is consistent with itself and the run was not broken."""
    mfu = prediction.measured_mfu
    return "CHECK-FAIL" not in prediction.measured.word("notes") and (mfu is None or mfu >= LOW_MFU)


def summary(predictions: list[Prediction]) -> dict[str, dict[str, float | int | None]]:
    """`all` and each source over the scored rows, and `unfiltered` over every row."""
    kept = [p for p in predictions if scored(p)]
    by_source: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in kept:
        by_source[prediction.measured.word("source")].append(prediction)
    sources = {source: metrics(group) for source, group in by_source.items()}
    out = {"all": metrics(kept) | {f"{key}_sources": _mean(sources.values(), key) for key in ("coverage", "mape")}}
    out |= sources
    out["unfiltered"] = metrics(predictions)
    return out


def metrics(group: list[Prediction]) -> dict[str, float | int | None]:
    errors = np.array([p.error for p in group if p.error is not None])
    absolute = np.abs(errors)
    some = len(errors) > 0
    supported = sum(p.step_s is not None for p in group)
    return {
        "n": len(group),
        "supported": supported,
        "mape": float(absolute.mean()) if some else None,
        "median_ape": float(np.median(absolute)) if some else None,
        "bias": float(errors.mean()) if some else None,
        "within_10": float((absolute <= 0.1).mean()) if some else None,
        "within_20": float((absolute <= 0.2).mean()) if some else None,
        "spearman": _spearman(group),
        "memory_mape": _memory_mape(group),
        "regret": _regret(group),
        "coverage": _share([p.inside for p in group if p.inside is not None]),
        "band_width": _share([(1 + p.band.high) / (1 + p.band.low) for p in group if p.band is not None]),
    }


def _share(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _mean(found: Iterable[dict[str, float | int | None]], key: str) -> float | None:
    return _share([value for scores in found if (value := scores[key]) is not None])


def _pairs(group: Iterable[Prediction]) -> list[tuple[float, float]]:
    return [
        (p.tokens_per_s_per_gpu, p.measured.tokens_per_s_per_gpu)
        for p in group
        if p.tokens_per_s_per_gpu and p.measured.tokens_per_s_per_gpu
    ]


def _spearman(group: list[Prediction]) -> float | None:
    pairs = np.array(_pairs(group))
    if len(pairs) < 3:
        return None
    ranks = [_ranks(pairs[:, i]) for i in (0, 1)]
    if ranks[0].std() == 0 or ranks[1].std() == 0:
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks with ties averaged."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse])


def _memory_mape(group: list[Prediction]) -> float | None:
    errors = []
    for prediction in group:
        truth = prediction.measured.number("peak_mem_gb")
        if truth and prediction.peak_bytes:
            errors.append(abs(prediction.peak_bytes / 2**30 / truth - 1))
    return float(np.mean(errors)) if errors else None


def _regret(group: list[Prediction]) -> float | None:
    """Measured throughput of the row predicted best over the best measured, averaged over comparable groups."""
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    for prediction in group:
        key = tuple(prediction.measured.word(c) for c in ("source", "model", "gpu", "gpus", "seq", "global_batch"))
        groups[key] += _pairs([prediction])
    shares = [max(pairs)[1] / max(m for _, m in pairs) for pairs in groups.values() if len(pairs) >= 4]
    return float(np.mean(shares)) if shares else None
