"""What a model family exports, and the pieces most families share."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from msgspec import Struct

from shardwise.registry import plugin_in, plugins_of
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import Attention, Experts, Layer, Model


class Family(Struct, frozen=True, kw_only=True):
    name: str
    model_types: tuple[str, ...]
    """values of config.json's model_type this family reads"""
    read: Callable[[Mapping[str, object], str], Model]
    names: Mapping[str, str] = {}
    """tensor names by role where they differ from Llama's (see _names.py)"""


PLUGINS = "shardwise.spec.arch.family"


@cache
def families() -> dict[str, Family]:
    """Every family by its name; one file in family/ is one family."""
    return {family.name: family for family in plugins_of(PLUGINS, "FAMILY", Family).values()}


@lru_cache(maxsize=256)
def family_named(name: str) -> Family | None:
    """Files have the names of their families, so that one is read and not all of them."""
    own = plugin_in(PLUGINS, "FAMILY", Family, name)
    return own if own is not None and own.name == name else families().get(name)


def family_of_type(model_type: str) -> Family | None:
    """The family that reads a model_type. Most types have the name of theirs, and then one file is read."""
    own = plugin_in(PLUGINS, "FAMILY", Family, model_type)
    if own is not None and model_type in own.model_types:
        return own
    return next((family for family in families().values() if model_type in family.model_types), None)


def attention(fields: ConfigFields, **more: Any) -> Attention:
    """Multi-head or grouped-query attention under the field names nearly every family uses."""
    hidden, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    width = fields.whole("head_dim", default=0)
    return Attention(
        heads=heads,
        kv_heads=fields.whole("num_key_value_heads", default=heads),
        head_dim=width or fields.divided("hidden_size", hidden, "num_attention_heads", heads),
        **more,
    )


def experts(fields: ConfigFields, count: str, width: str, **more: Any) -> Experts:
    return Experts(
        # transformers 5 writes its own name for what the files of a family call otherwise
        count=fields.whole(count, "num_local_experts", most=10**5),
        top_k=fields.whole("num_experts_per_tok", most=10**5),
        width=fields.whole(width),
        **more,
    )


def rotation_scaled(fields: ConfigFields, usual: str = "default", usual_factor: float = 1.0) -> bool:
    """Whether YaRN multiplies the rotation: by 0.1 ln(factor) + 1 if the file names no other number. Two scales for
    the logits that are equal undo each other (DeepSeek)."""
    turned = fields.section("rope_scaling" if fields.has("rope_scaling") else "rope_parameters")
    kind = turned.text("rope_type", default=turned.text("type", default=usual))
    if kind != "yarn":
        return False
    if turned.has("attention_factor"):
        return turned.number("attention_factor", 1.0) != 1.0
    if turned.has("mscale") and turned.has("mscale_all_dim"):
        return turned.number("mscale", 1.0) != turned.number("mscale_all_dim", 1.0)
    return turned.number("factor", usual_factor) > 1.0


def assemble(fields: ConfigFields, name: str, family: str, layers: Sequence[Layer], **more: Any) -> Model:
    """A Model from its layers, first to last; equal layers become one kind."""
    kinds = list(dict.fromkeys(layers))
    epsilons = ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps")
    small = 1e-5 if more.get("norm") == "layer" or family == "mixtral" else 1e-6
    turned = fields if fields.has("rope_theta") else fields.section("rope_parameters")
    place = {kind: index for index, kind in enumerate(kinds)}
    given: dict[str, Any] = {
        "hidden": fields.whole("hidden_size") if "hidden" not in more else 0,
        "vocab": fields.whole("vocab_size") if "vocab" not in more else 0,
        "tied": fields.flag("tie_word_embeddings", False) if "tied" not in more else False,
        "norm_epsilon": next((fields.number(name, small) for name in epsilons if fields.has(name)), small),
        "rope_theta": turned.number("rope_theta", 1e6 if family == "mixtral" else 1e4),
        "rotation_scaled": rotation_scaled(fields) if "rotation_scaled" not in more else False,
    }
    return Model(
        name=name,
        family=family,
        kinds=tuple(kinds),
        pattern=tuple(place[layer] for layer in layers),
        **{**given, **more},
    )
