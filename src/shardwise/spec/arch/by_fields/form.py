"""What a configuration does not say about its family, and how to tell it for one that nobody described.

A fact of forms.toml is a value, or the name of the field that states it (`"use_bias"`, `"use_bias=true"` with what
holds where the field is missing).
"""

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import Matrix

GATED = ("silu", "swish", "swiglu", "geglu", "silu_and_mul")
PLAIN = ("relu", "relu2", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "gelu_python")


@cache
def forms() -> dict[str, dict[str, Any]]:
    """The facts of every family; one that is `like` another has its facts besides its own."""
    found: dict[str, dict[str, Any]] = tomllib.loads(
        resources.files(__package__).joinpath("forms.toml").read_text(encoding="utf-8")
    )

    def whole(name: str) -> dict[str, Any]:
        own = found[name]
        return {**(whole(own["like"]) if "like" in own else {}), **own}

    return {name: whole(name) for name in found}


FORM = "_shardwise_form"
"""field of a configuration with facts of its own about a family that nobody described"""


def _told(fields: ConfigFields) -> dict[str, Any]:
    if not fields.has(FORM):
        return {}
    told = fields.section(FORM)
    found: dict[str, Any] = {
        n: told.flag(n) for n in ("qkv_bias", "out_bias", "mlp_bias", "glu", "tied") if told.has(n)
    }
    if told.has("norm"):
        found["norm"] = told.text("norm", choices=("rms", "layer", "none"))
    if told.has("qk_norm"):
        found["qk_norm"] = told.text("qk_norm", choices=("none", "head", "full"))
    if told.has("norms"):
        found["norms"] = told.whole("norms", least=0, most=8)
    told.done()
    return found


@cache
def not_read() -> dict[str, str]:
    """Why a family is not read, by its model_type."""
    reasons: dict[str, list[str]] = tomllib.loads(
        resources.files(__package__).joinpath("not_read.toml").read_text(encoding="utf-8")
    )
    return {model_type: why for why, types in reasons.items() for model_type in types}


class Form:
    """The facts of one family, as they hold for one configuration."""

    def __init__(self, fields: ConfigFields, model_type: str) -> None:
        self.fields = fields
        self.model_type = model_type
        self.known = model_type in forms()
        self._facts = forms().get(model_type) or _told(fields)
        self.notes: list[str] = []

    def at(self, fields: ConfigFields) -> "Form":
        """The same family with the fields of one of its parts."""
        return Form(fields, self.model_type)

    def flag(self, key: str, otherwise: bool = False) -> bool:
        fact = self._facts.get(key, otherwise)
        if isinstance(fact, bool):
            return fact
        name, _, usual = str(fact).partition("=")
        return self.fields.flag(name, usual == "true")

    def whole(self, key: str, otherwise: int) -> int:
        fact = self._facts.get(key, otherwise)
        return fact if isinstance(fact, int) else self.fields.whole(str(fact), default=otherwise, least=0)

    def text(self, key: str, otherwise: str = "") -> str:
        return str(self._facts.get(key, otherwise))

    @property
    def norm(self) -> str:
        """rms, layer or none."""
        if "norm" in self._facts:
            return self.text("norm")
        plain = ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "layernorm_epsilon")
        layer = not self.fields.has("rms_norm_eps") and any(self.fields.has(name) for name in plain)
        return "layer" if layer else "rms"

    @property
    def biased(self) -> tuple[bool, bool, bool]:
        """Biases of queries, keys and values; of attention's output; of the feed-forward."""
        everywhere = any(self.fields.flag(n) for n in ("use_bias", "bias", "add_bias_linear") if self._is_flag(n))
        attention = everywhere or (self._is_flag("attention_bias") and self.fields.flag("attention_bias"))
        qkv = attention or any(
            self.fields.flag(n) for n in ("qkv_bias", "use_qkv_bias", "add_qkv_bias") if self._is_flag(n)
        )
        mlp = everywhere or (self._is_flag("mlp_bias") and self.fields.flag("mlp_bias"))
        return self.flag("qkv_bias", qkv), self.flag("out_bias", attention), self.flag("mlp_bias", mlp)

    def _is_flag(self, name: str) -> bool:
        return self.fields.has(name) and isinstance(self.fields.value(name, "true or false"), bool)

    @property
    def gated_feed_forward(self) -> bool:
        if "glu" in self._facts:
            return self.flag("glu")
        act = next(
            (self.fields.text(n, default="") for n in ("hidden_act", "hidden_activation", "activation_function")
             if self.fields.has(n)), "",
        )  # fmt: skip
        if act in GATED or not act:
            return True
        return self.norm == "rms" and act not in ("relu", "relu2")

    @property
    def qk_norm(self) -> str:
        """none, head or full."""
        kind = self.text("qk_norm")
        if kind:
            condition = self.text("qk_norm_if")
            return kind if not condition or self.fields.flag(*_named(condition)) else "none"
        asked = any(self.fields.flag(n) for n in ("use_qk_norm", "qk_norm", "qk_layernorm") if self._is_flag(n))
        return "head" if asked else "none"

    def size(self, key: str) -> int:
        """What the field that a fact names holds; 0 where there is none."""
        return size_at(self.text(key), self.fields) if self.text(key) else 0

    def matrices(self, key: str) -> tuple[Matrix, ...]:
        """Matrices listed as 'name: outputs x inputs', each side a number, a field or a product of them; 'looked up'
        behind it says that no token is multiplied with it. One without extent is left out."""
        found = []
        condition = self.text(f"{key}_if")
        if condition and not self.fields.flag(*_named(condition)):
            return ()
        for line in self._facts.get(key, ()):
            name, _, rest = line.partition(":")
            shape, _, how = rest.partition(",")
            outputs, inputs = (_number(side, self.fields) for side in shape.split(" x "))
            if outputs and inputs:
                found.append(Matrix(name=name.strip(), outputs=outputs, inputs=inputs, product="looked up" not in how))
        return tuple(found)

    def assumed(self) -> list[str]:
        """One line on what a family that nobody described is taken to be."""
        if self.known:
            return []
        whence = "its weights' names" if self._facts else "its fields"
        qkv, out, mlp = self.biased
        biases = [w for w, on in (("query, key, value", qkv), ("attention output", out), ("feed-forward", mlp)) if on]
        norm = {"rms": "RMSNorm", "layer": "LayerNorm", "none": "no norms"}[self.norm]
        gate = "gated" if self.gated_feed_forward else "plain"
        norms = {"none": "no norm on heads", "head": "a norm on each head", "full": "a norm over all heads"}
        return [
            f"no file describes this family: by {whence} taken as {norm}, {gate} feed-forward, {norms[self.qk_norm]}, "
            f"biases on {' and '.join(biases) or 'nothing'}; compare the parameters with the published number"
        ]


def _number(text: str, fields: ConfigFields) -> int:
    total = 1
    for part in text.split("*"):
        word = part.strip()
        total *= int(word) if word.isdecimal() else size_at(word, fields)
    return total


def size_at(name: str, fields: ConfigFields) -> int:
    """A field, or one of a section: text_config.hidden_size."""
    section, _, inside = name.partition(".")
    if inside:
        return size_at(inside, fields.section(section))
    return fields.whole(name, default=0, least=0)


def _named(fact: str) -> tuple[str, bool]:
    name, _, usual = fact.partition("=")
    return name, usual == "true"
