"""Verbs that train all of a model refuse a question that trains parts of it."""


def refuse_tuning(verb: str, why: str, *stated: object) -> None:
    if any(stated):
        raise ValueError(f"tune: {verb} {why}; leave --tune and --freeze out")
