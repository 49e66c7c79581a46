"""How many nodes to keep ready."""

from math import exp, lgamma, log

ENOUGH = 0.99
MOST = 100_000


def standbys(nodes: int, failing: float, enough: float = ENOUGH) -> int:
    """The fewest that cover the nodes failing at one time, each with chance `failing`, in all but one case in 100."""
    covered = 0.0
    for spare in range(nodes + 1):
        covered += exp(_log_choose(nodes, spare) + spare * log(failing) + (nodes - spare) * log(1.0 - failing))
        if covered >= enough:
            return spare
    return nodes


def pool(away: float, enough: float = ENOUGH) -> int:
    """The fewest for nodes that are away at random, `away` of them on average (rate of failures times repair)."""
    covered, term = 0.0, -away
    for spare in range(MOST):
        covered += exp(term)
        if covered >= enough:
            return spare
        term += log(away) - log(spare + 1)
    return MOST


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
