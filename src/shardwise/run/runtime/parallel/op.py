"""An operation with its own backward pass: torch's Function, whose `apply` torch leaves without types."""

from typing import TYPE_CHECKING, Any

from torch.autograd import Function


class AutogradOp(Function):
    if TYPE_CHECKING:

        @classmethod
        def apply(cls, *args: Any, **kwargs: Any) -> Any: ...
