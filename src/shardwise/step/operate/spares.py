"""How many nodes to keep ready."""

from math import exp, log

ENOUGH = 0.99
MOST = 100_000


def pool(away: float, enough: float = ENOUGH) -> int:
    """The fewest for nodes that are away at random, `away` of them on average (rate of failures times repair)."""
    covered, term = 0.0, -away
    for spare in range(MOST):
        covered += exp(term)
        if covered >= enough:
            return spare
        term += log(away) - log(spare + 1)
    return MOST
