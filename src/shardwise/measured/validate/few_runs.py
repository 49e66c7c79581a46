"""Every run of a table predicted from a few others of the same source, model and GPU: how much a log or two help."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import exp, expm1, log1p

import numpy as np

from shardwise.measured.validate.predict import Prediction
from shardwise.measured.validate.score import metrics, scored
from shardwise.step.estimate.band import ErrorBand
from shardwise.step.estimate.posterior import Posterior, Prior, prior_of

GROUP = ("source", "model", "gpu")
WHO = frozenset({"alike", "unseen", "unknown", "site"})
"""what of a band's MISSING says that constants were not fitted on runs of this source"""
Group = tuple[str, ...]


def group_of(prediction: Prediction) -> Group:
    return tuple(prediction.measured.word(column) for column in GROUP)


def learned_predictions(predictions: Sequence[Prediction], number: int, seed: int) -> list[Prediction]:
    """In their order. The seed puts the runs of each group in an order, and each of them is conditioned on the first
    `number` others, so that all know nearly the same; one in a smaller group keeps `learned_from` None."""
    groups: dict[Group, list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        if prediction.error is not None and scored(prediction):
            groups[group_of(prediction)].append(prediction)
    for place, (name, group) in enumerate(groups.items()):
        groups[name] = [group[i] for i in np.random.default_rng([seed, place]).permutation(len(group))]
    return [_learned(each, groups.get(group_of(each), []), number) for each in predictions]


def seen(prediction: Prediction) -> bool:
    """Whether constants were fitted on runs of its source."""
    return prediction.band is not None and not WHO & set(prediction.band.missing)


def posterior_of(prior: Prior, runs: Iterable[Prediction]) -> Posterior:
    taken = list(runs)
    errors = np.array([-log1p(run.error or 0.0) for run in taken])
    causes = np.array([run.causes for run in taken]).reshape(len(taken), len(prior.site))
    return Posterior(prior, causes, errors, [str(group_of(run)) for run in taken])


def _learned(prediction: Prediction, group: list[Prediction], number: int) -> Prediction:
    others = [other for other in group[: number + 1] if other.measured.row != prediction.measured.row]
    step, rate, band = prediction.step_s, prediction.tokens_per_s_per_gpu, prediction.band
    if len(others) < number or step is None or rate is None or band is None:
        return prediction
    runs = others[:number]
    found = posterior_of(prior_of(seen(prediction)), runs).at(prediction.causes[None, :], str(group_of(prediction)))
    mean, low, high = (float(side[0]) for side in (found.mean, found.low, found.high))
    mean = mean if number else 0.0  # a blind step is the predicted one; its band says where others lay
    words = f"learned from {number} other run{'s' * (number != 1)} of its source, model and GPU"
    return replace(
        prediction,
        step_s=step * exp(mean),
        tokens_per_s_per_gpu=rate / exp(mean),
        band=ErrorBand(expm1(low - mean), expm1(high - mean), band.missing, words if number else band.evidence),
        learned_from=tuple(run.measured.row for run in runs),
    )


def learned_summary(predictions: Sequence[Prediction], number: int) -> dict[str, dict[str, float | int | None]]:
    """`all` and each source, over the scored rows that had others to learn from."""
    kept = [p for p in predictions if p.learned_from is not None and p.error is not None and scored(p)]
    by_source: dict[str, list[Prediction]] = {"all": kept}
    for prediction in kept:
        by_source.setdefault(prediction.measured.word("source"), []).append(prediction)
    return {name: _figures(group, number) for name, group in by_source.items()}


def _figures(group: list[Prediction], number: int) -> dict[str, float | int | None]:
    found = metrics(group)
    return {"k": number, "width": found["band_width"]} | {
        name: found[name] for name in ("n", "mape", "bias", "coverage", "regret")
    }
