"""What of the model is trained, as flags, and verbs that train all of it."""

from shardwise.spec.tuning import Tuning


def tuning_words(tuning: Tuning | None) -> list[str]:
    """As flags, for a command line the user can run."""
    if tuning is None:
        return []
    stated = (("--tune", tuning.tune_text), ("--freeze", tuning.freeze_text))
    return [word for flag, text in stated if text for word in (flag, text)]


def refuse_tuning(verb: str, why: str, *stated: object) -> None:
    if any(stated):
        raise ValueError(f"tune: {verb} {why}; leave --tune and --freeze out")
