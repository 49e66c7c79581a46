"""A quadratic of a matrix whose two sides are stretched unlike: what an optimizer gains that sees it as a matrix."""

from typing import TYPE_CHECKING

from evidence.papers._contract import Check, Reproduction, Result, ResultSeries, Tell

if TYPE_CHECKING:
    from torch import Tensor

SIDES, STRETCH, NOISE = (48, 32), 30.0, 0.01
RATES = (0.03, 0.1, 0.3)
OPTIMIZERS = ("adamw", "muon", "soap", "shampoo")


def _curve(name: str, rate: float, steps: int) -> list[float]:
    """Half the square of A (W - W*) B before each step, over that of the first; rates fall along a line to 0."""
    import torch

    from shardwise.plugins.optimizers import update_rule
    from shardwise.plugins.optimizers._steps import adams
    from shardwise.run.runtime.train.optimizer import OptimizerSettings

    drawn = torch.Generator().manual_seed(0)
    left, right = (_stretched(side, drawn) for side in SIDES)
    away = torch.randn(SIDES, generator=drawn, dtype=torch.float64)
    settings, rule = OptimizerSettings(name=name, nesterov=name == "muon"), update_rule(name)
    shapes = rule.stored(*SIDES) if rule.by_tensor else dict.fromkeys(rule.kept, SIDES)
    state = {
        kind: torch.eye(*shape, dtype=torch.float64) if kind.endswith("basis") else torch.zeros(shape).double()
        for kind, shape in shapes.items()
    }
    moment, found = torch.zeros_like(away), []
    for step in range(1, steps + 1):
        error = left @ away @ right
        found.append(float(error.square().sum()))
        grad = left.T @ error @ right.T + NOISE * torch.randn(SIDES, generator=drawn, dtype=torch.float64)
        if rule.by_tensor:
            way = rule.direction(rule.sent(grad, moment, settings), state, step, settings)
        else:
            way = adams(grad, state, step, settings.betas, settings.epsilon)
        away -= rate * (1.0 - (step - 1) / steps) * rule.stretch(*SIDES) * way
    return [value / found[0] for value in found]


def _stretched(side: int, drawn: "Tensor | object") -> "Tensor":
    """In a random basis, from 1 down to 1 / STRETCH."""
    import torch

    assert isinstance(drawn, torch.Generator)
    basis = torch.linalg.qr(torch.randn(side, side, generator=drawn, dtype=torch.float64)).Q
    return basis * torch.logspace(0.0, -1.0, side, base=STRETCH, dtype=torch.float64) @ basis.T


def run(quick: bool, tell: Tell) -> Result:
    steps = 150 if quick else 400
    best: dict[str, tuple[float, list[float]]] = {}
    for done, name in enumerate(OPTIMIZERS):
        tell(done, len(OPTIMIZERS))
        best[name] = min(((rate, _curve(name, rate, steps)) for rate in RATES), key=lambda found: found[1][-1])
    ends = {name: curve[-1] for name, (_, curve) in best.items()}
    return Result(
        title=f"a quadratic of {SIDES[0]} x {SIDES[1]}, sides stretched {STRETCH:g} times, {steps} steps",
        heads=("optimizer", "best rate", "loss at the end, of the first"),
        rows=tuple((name, f"{rate:g}", f"{curve[-1]:.2g}") for name, (rate, curve) in best.items()),
        checks=(
            Check("each takes 98 % of the loss away, or more", max(ends.values()) < 0.02),
            Check(
                "none ends more than a fifth below AdamW: what they save of tokens is not seen on a quadratic",
                min(ends.values()) > 0.8 * ends["adamw"],
            ),
        ),
        series=tuple(
            ResultSeries(name, tuple((float(t), value) for t, value in enumerate(curve)))
            for name, (_, curve) in best.items()
        ),
        x_title="steps", y_title="loss", log_x=False, log_y=True,
        notes=(f"noise {NOISE:g} in each number of the gradient; rates {', '.join(map(str, RATES))}, falling to 0",),
    )  # fmt: skip


REPRODUCTION = Reproduction(
    name="matrix_quadratic",
    question="What does an optimizer gain that sees a matrix as one?",
    source="Gupta et al. 2018, arXiv:1802.09568; Vyas et al. 2024, arXiv:2409.11321; Jordan 2024, "
    "kellerjordan.github.io/posts/muon",
    run=run,
)
