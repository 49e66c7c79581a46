"""What of a case's model is trained, as the facts that are shown."""

from shardwise.report.report import TuningFacts
from shardwise.spec.arch.tensors import parameters
from shardwise.spec.arch.tuned import trained_parameters
from shardwise.work.case import Training


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
