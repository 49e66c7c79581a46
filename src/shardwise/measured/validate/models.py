"""The catalog's model that a measured row names, and the same with other layers."""

import re
from functools import lru_cache

import msgspec

from shardwise import catalog
from shardwise.measured.validate.spellings import spellings
from shardwise.spec.arch import model_of
from shardwise.spec.model import Model


@lru_cache(maxsize=512)
def catalog_model(name: str) -> Model | None:
    for spelling in spellings(re.sub(r"(-proxy)?-L\d+$", "", name)):
        try:
            return model_of(catalog.resolve("models", spelling))
        except ValueError:
            continue
    return None


def cut(model: Model, layers: int, name: str) -> Model:
    """The model with fewer (or more) layers and its mix of layer kinds kept in order."""
    order = sorted(set(model.pattern), key=model.pattern.index)
    if len(order) == 1:
        pattern = model.pattern[:1] * layers
    elif model.pattern == tuple(sorted(model.pattern, key=order.index)):
        leading = [max(round(model.pattern.count(kind) * layers / model.layers), 1) for kind in order[:-1]]
        head = tuple(kind for kind, count in zip(order, leading, strict=False) for _ in range(count))[: layers - 1]
        pattern = head + (order[-1],) * (layers - len(head))
    else:
        pattern = tuple(model.pattern[i % model.layers] for i in range(layers))
    return msgspec.structs.replace(model, name=name, pattern=pattern, mtp_layers=0, published_params=0.0)
