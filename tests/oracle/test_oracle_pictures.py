"""torch as judge of models of pictures: products, attention and kept tensors of transformers' ViT and DeiT."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: no ViT to compare with")
import work_sums as ours  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from shardwise.spec.arch import model_from_config  # noqa: E402
from shardwise.spec.arch.tensors import parameters  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

SMALL = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 160, "image_size": 32,
    "patch_size": 8, "num_labels": 10,
}  # fmt: skip
SHAPES = {
    "small": SMALL,
    "one channel": {**SMALL, "num_channels": 1, "image_size": 40},
    "a patch that does not divide": {**SMALL, "image_size": 37},
    "no biases of queries": {**SMALL, "qkv_bias": False},
}
SAMPLES = 3


def built(family: str, fields: dict[str, object]):
    config = getattr(transformers, f"{family}Config")(**fields)
    config._attn_implementation = "eager"  # its products are counted forward and backward
    module = getattr(transformers, f"{family}ForImageClassification")(config)
    return module, model_from_config(config.to_dict(), family.lower())


def pictures(module):
    config = module.config
    side = config.image_size
    return torch.randn(SAMPLES, config.num_channels, side, side)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", ["ViT", "DeiT"])
def test_flops_of_a_step(family: str, shape: str) -> None:
    module, model = built(family, SHAPES[shape])
    assert parameters(model) == sum(p.numel() for p in module.parameters())
    with FlopCounterMode(display=False) as counter:
        out = module(pictures(module), labels=torch.zeros(SAMPLES, dtype=torch.long))
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        out.loss.backward()
    backward = counter.get_total_flops()
    work = ours.work(model, Policy(micro_batch=SAMPLES), model.sample_tokens)
    products, squares = ours.model_flops(work)
    assert forward == products + squares
    # no gradient of the picture is asked for
    assert backward == 2 * (products + squares) - ours.product_flops(work.embedding)


def test_the_head_is_computed_once_a_sample() -> None:
    _, model = built("ViT", SMALL)
    work = ours.work(model, Policy(micro_batch=SAMPLES), model.sample_tokens)
    (head,) = work.head.gemms
    assert (ours.number(head.m), ours.number(head.n), ours.number(head.k)) == (SAMPLES, 10, 64)
    kept = ours.saved(work.head)
    assert kept["logits and loss"] < 16 * SAMPLES * 10
    (patches,) = work.embedding.gemms
    assert ours.number(patches.m) == SAMPLES * 16
    assert not patches.input_grad


def test_what_the_ends_keep_is_what_torch_saves() -> None:
    """The picture for the weight's gradient, what enters the final norm and, whole, what the norm made: the class
    token's row is a view of it."""
    module, model = built("ViT", SMALL)
    module = module.to(torch.bfloat16)
    pixels, inside, saved = pictures(module).to(torch.bfloat16), [], {}

    def pack(tensor):
        if not inside and tensor.dim() > 1 and not isinstance(tensor, torch.nn.Parameter):
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    for layer in module.vit.layers:
        layer.register_forward_pre_hook(lambda *_: inside.append(1))
        layer.register_forward_hook(lambda *_: inside.clear())
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = module(pixels)
    work = ours.work(model, Policy(micro_batch=SAMPLES), model.sample_tokens)
    stream = SAMPLES * model.sample_tokens * model.hidden * 2
    assert ours.saved(work.embedding) == {"picture": pixels.nbytes}
    assert saved[pixels.untyped_storage().data_ptr()] == pixels.nbytes
    own.add(pixels.untyped_storage().data_ptr())
    big = [size for place, size in saved.items() if place not in own and size >= stream]
    assert big == [stream, stream] == [ours.saved(work.head)["final norm"] / 2] * 2
    assert out.logits.shape == (SAMPLES, 10)
