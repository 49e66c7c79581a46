"""The loss that keeps experts evenly used, against the formula of Switch (arXiv:2101.03961, equation 4) for top-k."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from shardwise.run.runtime.net.experts import _balanced  # noqa: E402
from shardwise.spec.arch import model_of  # noqa: E402


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_the_gradient_is_that_of_the_published_loss(top_k: int) -> None:
    """experts x the sum over experts of (share of the visits) x (mean probability), for each sequence."""
    from msgspec.structs import replace

    tokens, batch, count, weight = 16, 2, 8, 0.01
    kind = next(k for k in model_of("mixtral-8x7b").kinds if k.experts)
    experts = replace(kind.experts, count=count, top_k=top_k)
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(tokens, batch, 4, generator=generator)
    logits = torch.randn(tokens * batch, count, generator=generator, requires_grad=True)
    chosen = logits.detach().topk(top_k, dim=-1).indices
    alone = SimpleNamespace(comm=SimpleNamespace(all_reduce=lambda *_: None), loss_tokens=tokens * batch,
                            tp=None, cp=SimpleNamespace(size=1))  # fmt: skip
    context = SimpleNamespace(world=alone, cut=SimpleNamespace(sp=False), seq=tokens, balance=weight)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("shardwise.run.runtime.net.experts.replace", lambda group, **_: group)
        _balanced(context, experts, x.requires_grad_(), logits, chosen).sum().backward()
    ours = logits.grad.clone()

    logits.grad = None
    probability = torch.softmax(logits, dim=-1).view(tokens, batch, count)
    visits = torch.zeros(batch, count)
    for place, row in enumerate(chosen):
        visits[place % batch] += torch.bincount(row, minlength=count)
    published = sum(
        count * (visits[s] / (tokens * top_k) * probability[:, s].mean(0)).sum() * tokens for s in range(batch)
    )
    (weight * published / (tokens * batch)).backward()
    assert torch.allclose(ours, logits.grad, rtol=1e-5, atol=1e-9)
    assert logits.grad.abs().max() > 0
