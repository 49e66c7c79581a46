"""What of a case's model is trained, as the facts that are shown."""

from shardwise.arch.tensors import parameters
from shardwise.arch.tuned import trained_parameters
from shardwise.case import Training
from shardwise.report.report import TuningFacts


def tuning_facts(training: Training) -> TuningFacts | None:
    """None where all of it is."""
    tuning = training.job.tuning
    if tuning is None:
        return None
    trained = trained_parameters(training.model)
    added = trained if tuning.adapters is not None else 0
    return TuningFacts(
        tune=tuning.tune_text, freeze=tuning.freeze_text, parameters=parameters(training.model) + added,
        trained_parameters=trained,
    )  # fmt: skip
