"""The loss as an axis: what is alive of the logits, and how the head is cut."""

import weakref
from typing import Any

import numpy as np
import pytest

from shardwise import Job, Policy, case_of, cluster_of, model_of, stack_of
from shardwise.spec.policy import LOSS, Policies
from shardwise.step.estimate.closed_form import estimate
from shardwise.work import Work, work_of
from shardwise.work.case import Case

SEQ, VOCAB, HIDDEN = 8192, 128_256, 4096


def _case(stack: str = "megatron-core") -> Case:
    return case_of(model_of("llama-3-8b"), cluster_of("8xh100"), Job(seq=SEQ, global_batch=8), stack_of(stack))


def _work(loss: str, stack: str = "megatron-core") -> Work:
    return work_of(_case(stack), Policies.of([Policy(dp=8, loss=loss)]), every_stage=True)


def _logits(loss: str, stack: str = "megatron-core") -> float:
    found = next(t.bytes for t in _work(loss, stack).head.saved if t.name == "logits and loss")
    return float(np.asarray(found).reshape(-1)[0])


def test_the_default_is_the_programs_own() -> None:
    own = {"megatron-core": "plain", "torchtitan": "plain", "llm-foundry": "fused", "hugging-face@trl": "chunked"}
    for stack, kind in own.items():
        assert stack_of(stack).loss.loss_kind == kind
        assert _logits("", stack) == _logits(kind, stack)


def test_fused_is_in_place_of_the_logits() -> None:
    assert _logits("fused") == 2.0 * SEQ * VOCAB + 4.0 * SEQ
    assert _logits("plain") == 10.0 * SEQ * VOCAB


def test_a_plain_loss_holds_what_torch_holds_at_once() -> None:
    """16 bits, their copy in fp32 and one more tensor like it, for programs whose own loss is another too."""
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    alive: dict[int, Any] = {}
    most = [0]

    class Holding(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            for each in out if isinstance(out, tuple | list) else (out,):
                if isinstance(each, torch.Tensor):
                    storage = each.untyped_storage()
                    size = storage.nbytes()
                    if storage._cdata not in alive:
                        alive[storage._cdata] = weakref.finalize(each, alive.pop, storage._cdata, None), size
            most[0] = max(most[0], sum(size for _, size in alive.values()))
            return out

    tokens, words = 64, 512
    logits = torch.zeros(tokens, words, dtype=torch.bfloat16)
    with Holding():
        torch.log_softmax(logits.float(), dim=-1)
    per_logit = (most[0] + logits.untyped_storage().nbytes()) / (tokens * words)
    assert per_logit == 10.0
    for stack in ("llm-foundry", "hugging-face@trl"):
        assert _logits("plain", stack) == per_logit * SEQ * VOCAB


@pytest.mark.parametrize(("stack", "rows"), [("megatron-core", 256), ("torchtitan", 1024), ("hugging-face@trl", 256)])
def test_chunks_are_as_large_as_each_program_makes_them(stack: str, rows: int) -> None:
    """Liger: 8,192 tokens over ceil(128,256 / 4,096) = 32 parts, a power of two; torchtitan: an eighth; TRL: 256."""
    work = _work("chunked", stack)
    head = next(g for g in work.head.gemms if g.name == "head")
    assert float(np.asarray(head.m).reshape(-1)[0]) == rows
    assert float(np.asarray(head.m * head.batch).reshape(-1)[0]) == SEQ
    own = stack_of(stack).loss
    assert _logits("chunked", stack) == own.chunk_logit_bytes * rows * VOCAB + own.chunk_grad_bytes * SEQ * HIDDEN


def test_only_a_checkpointed_chunk_runs_the_head_again() -> None:
    for stack, again in (("torchtitan", False), ("hugging-face@trl", True)):
        found = estimate(_case(stack), Policies.of([Policy(dp=8, zero=3, loss="chunked")]))
        assert (found.times.parts["recompute"][0] > 0) == again


def test_a_batch_of_losses_is_each_of_them_alone() -> None:
    policies = [Policy(dp=8, loss=loss) for loss in LOSS]
    together = estimate(_case(), Policies.of(policies))
    for i, policy in enumerate(policies):
        alone = estimate(_case(), Policies.of([policy]))
        assert together.times.step_s[i] == pytest.approx(alone.times.step_s[0], rel=1e-12)
        assert together.memory.peak[i] == alone.memory.peak[0]


def test_a_small_chunk_costs_time_and_a_fused_loss_none() -> None:
    policies = [Policy(dp=8, loss=loss) for loss in ("plain", "fused", "chunked")]
    plain, fused, chunked = estimate(_case(), Policies.of(policies)).times.step_s
    assert fused < plain < chunked
