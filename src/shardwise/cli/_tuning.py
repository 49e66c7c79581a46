"""Verbs that train all of a model refuse what of it is to be trained."""


def refuse_tuning(verb: str, why: str, *stated: object) -> None:
    if any(stated):
        raise ValueError(f"tune: {verb} {why}; leave --tune and --freeze out")
