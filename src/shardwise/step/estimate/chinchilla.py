"""How large a model and how many tokens a compute budget should buy (Hoffmann et al., arXiv:2203.15556)."""

from msgspec import Struct

TOKENS_PER_PARAMETER = 20.0
FLOOR, A, ALPHA, B, BETA = 1.69, 406.4, 0.34, 410.7, 0.28
"""L(N, D) = 1.69 + 406.4 / N^0.34 + 410.7 / D^0.28: the paper's parametric fit (its approach 3)"""


class Optimum(Struct, frozen=True, kw_only=True):
    law: str
    what: str
    parameters: float
    tokens: float
    loss: float
    """by the parametric fit, whichever law chose the sizes"""


def loss_of(parameters: float, tokens: float) -> float:
    return float(FLOOR + A / parameters**ALPHA + B / tokens**BETA)


def optima(flops: float) -> tuple[Optimum, Optimum]:
    """Both ways to spend `flops` = 6 x parameters x tokens."""
    if not 0 < flops < 1e40:
        raise ValueError(f"flops: {flops:g} is out of range; write an amount of work such as 1e24")
    fixed = (flops / (6.0 * TOKENS_PER_PARAMETER)) ** 0.5
    fitted = (ALPHA * A / (BETA * B)) ** (1.0 / (ALPHA + BETA)) * (flops / 6.0) ** (BETA / (ALPHA + BETA))
    return (
        _optimum("20 per parameter", "tokens = 20 x parameters", fixed, flops),
        _optimum("parametric fit", "least L(N, D) with 6ND = C", fitted, flops),
    )


def _optimum(law: str, what: str, parameters: float, flops: float) -> Optimum:
    tokens = flops / (6.0 * parameters)
    return Optimum(law=law, what=what, parameters=parameters, tokens=tokens, loss=loss_of(parameters, tokens))
