"""A plain multi-layer perceptron on features: `layer_sizes` from input to output."""

from collections.abc import Mapping

from shardwise.spec.arch._family import Family, assemble
from shardwise.spec.arch._fields import ConfigFields
from shardwise.spec.model import FeedForward, Layer, Model

_BLOCK = "layers.{i}."


def read(config: Mapping[str, object], name: str) -> Model:
    fields = ConfigFields.of(config, name)
    sizes = fields.wholes("layer_sizes", least=1, most=10**6)
    hidden = sizes[1:-1]
    # a layer maps the model width to some width and back, so every second size is the model width
    if len(hidden) % 2 == 0 or len(set(hidden[::2])) != 1:
        raise fields.refuse("layer_sizes", "[inputs, h, outputs] or [inputs, h, w, h, ..., outputs] with one h")
    bias = fields.flag("bias", True)
    layers = [
        Layer(attention=None, feed_forward=FeedForward(width=width, glu=False, bias=bias), norms=0)
        for width in hidden[1::2]
    ]
    return assemble(
        fields,
        name,
        "mlp",
        layers,
        hidden=hidden[0],
        vocab=sizes[-1],
        tied=False,
        norm="none",
        rotary=False,
        final_norm=False,
        head_bias=bias,
        inputs="features",
        input_width=sizes[0],
        input_bias=bias,
    )


FAMILY = Family(
    name="mlp",
    model_types=("mlp",),
    read=read,
    names={"input": "input", "up": _BLOCK + "up", "down": _BLOCK + "down", "head": "output"},
)
