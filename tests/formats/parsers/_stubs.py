"""Stands in for packages that need a GPU and that parsing does not."""

import sys
import types
import typing
from importlib.machinery import ModuleSpec


class Anything:
    """Called, subscripted, used as a decorator or asked for an attribute, it is there."""

    def __call__(self, *given, **_named):
        return given[0] if given and callable(given[0]) else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _key):
        return self

    def __or__(self, _other):
        return self

    __ror__ = __or__


def stand_in(*names: str) -> None:
    """Modules under these names, each an attribute of the one above it."""
    if not hasattr(typing, "override"):
        typing.override = lambda function: function
    for name in names:
        module = types.ModuleType(name)
        module.__getattr__ = Anything().__getattr__
        module.__path__, module.__version__, module.__spec__ = [], "3.0.0", ModuleSpec(name, None)
        sys.modules[name] = module
        above, _, own = name.rpartition(".")
        if above:
            setattr(sys.modules[above], own, module)
