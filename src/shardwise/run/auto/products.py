"""Products of a model that can be cut: linear modules, and those of transformers that keep their weight turned."""

from torch import Tensor, nn


def is_product(module: nn.Module) -> bool:
    """A subclass that does something else is found out when a cut of it is tried."""
    return isinstance(module, nn.Linear) or _turned(module)


def _turned(module: nn.Module) -> bool:
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf") and hasattr(module, "weight")


def output_axis(module: nn.Module) -> int:
    """Of its weight."""
    return 1 if _turned(module) else 0


def widths(module: nn.Module) -> tuple[int, int]:
    """(inputs, outputs) as the weight is now."""
    weight: Tensor = module.weight  # type: ignore[assignment]
    return weight.shape[1 - output_axis(module)], weight.shape[output_axis(module)]


def set_widths(module: nn.Module) -> None:
    """What the module says of itself follows its weight."""
    inputs, outputs = widths(module)
    names = ("nx", "nf") if _turned(module) else ("in_features", "out_features")
    for name, value in zip(names, (inputs, outputs), strict=True):
        if hasattr(module, name):
            setattr(module, name, value)


def multiplied(module: nn.Module, x: Tensor) -> Tensor:
    """Without the bias."""
    weight: Tensor = module.weight  # type: ignore[assignment]
    return x @ (weight if _turned(module) else weight.t())
