"""Values that follow from the script alone are known to it; a compiled region is told that it is one."""

import pytest

torch = pytest.importorskip("torch")

from shardwise.run.trace.capture import traced  # noqa: E402
from shardwise.run.trace.events import Product  # noqa: E402

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"


def captured(tmp_path, build, step):
    path = tmp_path / "own.py"
    functions = (("build()", build), ("step(*parts)", step))
    bodies = ["\n".join([f"def {name}:", *(f"    {line}" for line in body.splitlines())]) for name, body in functions]
    path.write_text("\n".join([HEAD, *bodies]))
    return traced(path, 1)


@pytest.mark.parametrize(
    ("width", "value"),
    [
        ("torch.linspace(0, 6, 4)[2].item()", 4),
        ("len(torch.unique(torch.tensor([3, 5, 3, 7])))", 3),
        ("torch.tensor([2, 9, 4]).tolist()[1]", 9),
        ("torch.nonzero(torch.arange(6) % 2).shape[0]", 3),
        ("torch.ones(2, 3).cumsum(0).max().item()", 2),
    ],
)
def test_a_size_computed_from_constants_is_theirs(width, value, tmp_path) -> None:
    step = "x = torch.ones(4, 4, device='cuda') @ torch.ones(4, parts[0], device='cuda')"
    found = captured(tmp_path, f"return int({width})", step)
    (product,) = (event.work for event in found.events if isinstance(event.work, Product))
    assert product.n == value
    assert found.numbers_read == 0


def test_what_something_unknown_was_written_into_is_no_longer_known(tmp_path) -> None:
    found = captured(
        tmp_path,
        "return 1",
        "x = torch.zeros(4)\nview = x[:2]\nx.add_(torch.randn(4))\nassert view.sum().item() == 1.0",
    )
    assert found.numbers_read == 1


def test_a_mask_of_known_values_picks_as_many_as_it_has(tmp_path) -> None:
    """SpecAugment: the mask is made on the host, and its gradient picks what it has replaced."""
    found = captured(
        tmp_path,
        "return torch.tensor([[True, False, True, True]])",
        "x = torch.randn(1, 4, 8, requires_grad=True)\nassert (x * 2)[parts[0]].shape == (3, 8)",
    )
    waited = [event.name for event in found.events if event.read_by_host]
    assert waited == ["nonzero"]


def test_no_number_is_lost_and_a_router_counts_evenly(tmp_path) -> None:
    captured(
        tmp_path,
        "return 1",
        "x = torch.randn(64, 16)\nassert x.isnan().sum() == 0\n"
        "chosen = torch.topk(x, 2, dim=1)[1]\n"
        "sizes = torch.zeros(64, 16).scatter(1, chosen, 1).long().sum(0).tolist()\nassert sizes == [8] * 16",
    )


def test_an_unknown_size_is_still_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="has no values"):
        captured(tmp_path, "return 1", "x = torch.randn(8)\nx[x > 0].sum()")


def test_only_a_compiled_function_hears_that_it_is_compiled(tmp_path) -> None:
    found = captured(
        tmp_path,
        "return torch.compile(lambda x: x @ x if torch.compiler.is_compiling() else x)",
        "x = torch.ones(4, 4)\nassert not torch.compiler.is_compiling()\nparts[0](x)",
    )
    assert [event.name for event in found.events if isinstance(event.work, Product)] == ["mm"]


def test_what_a_compiled_function_returns_is_remembered(tmp_path) -> None:
    found = captured(
        tmp_path,
        "w = torch.ones(8, 8, requires_grad=True)\n"
        "return w, torch.compile(lambda x: (lambda y: (y, y.square().sum()))(x @ w))",
        "w, call = parts\n_, loss = call(torch.ones(4, 8))\nloss.backward()\nw.grad = None",
    )
    sizes = [change for held, change in found.changes if held.returned and change > 0]
    assert sorted(sizes) == [4, 4 * 8 * 4]  # the sum, and what nobody reads


def test_a_gradient_scaler_never_skips_a_step(tmp_path) -> None:
    found = captured(
        tmp_path,
        "m = nn.Linear(8, 8)\nreturn m, torch.optim.AdamW(m.parameters()), torch.amp.GradScaler('cuda')",
        "m, o, s = parts\nwith torch.autocast('cuda', torch.float16):\n    loss = m(torch.ones(2, 8)).sum()\n"
        "s.scale(loss).backward()\ns.step(o)\ns.update()\no.zero_grad()",
    )
    names = [event.name for event in found.events]
    assert "_amp_foreach_non_finite_check_and_unscale_" in names
    assert "_foreach_addcdiv_" in names


def test_modules_with_numbers_and_copied_modules_can_be_moved(tmp_path) -> None:
    captured(
        tmp_path,
        "layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)\n"
        "m = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)\nm.scale = nn.Parameter(torch.tensor(2.5))\n"
        "return m.to('cuda')",
        "(parts[0](torch.ones(2, 4, 16)) * parts[0].scale).sum().backward()",
    )
