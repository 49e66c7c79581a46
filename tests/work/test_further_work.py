"""Layers with a width, tokens, a second attention or matrices of their own: the work is that of their parameters."""

import json
from pathlib import Path

import numpy as np
import pytest

from shardwise.spec.arch import model_from_config
from shardwise.spec.arch.tensors import matmul_parameters
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.mfu import attention_flops_per_token
from shardwise.work import Work, work_of
from shardwise.work.case import training_of

RECORDED = Path(__file__).parents[1] / "arch" / "registry.jsonl"
CONFIGS = {(row := json.loads(line))["model_type"]: row["config"] for line in RECORDED.read_text().splitlines()}
SEQ = 1024


def _work(model: Model, policy: Policy) -> Work:
    training = training_of(model, Job(seq=SEQ, global_batch=8), stack_of("megatron-core"))
    return work_of(training, Policies.of([policy]), every_stage=True)


def _flops(work: Work) -> float:
    """Forward, of all products of a micro-batch on one rank."""
    parts = [(kind, work.model.pattern.count(i)) for i, kind in enumerate(work.kinds)]
    parts += [(work.embedding, 1), (work.head, 1)]
    products = sum(
        times * 2.0 * np.asarray(g.m * g.n * g.k * g.batch).item() for part, times in parts for g in part.gemms
    )
    attended = sum(
        times * np.asarray(a.square_flops()).item()
        for part, times in parts
        for a in (part.attention, part.cross)
        if a is not None
    )
    return products + attended


@pytest.mark.parametrize("name", ["llava", "qwen2_audio", "t5", "bart", "rwkv", "jamba", "gemma3n_text", "kimi_linear"])
def test_products_are_those_of_the_parameters(name: str) -> None:
    model = model_from_config(CONFIGS[name], name)
    expected = SEQ * (
        2.0 * matmul_parameters(model, seq=SEQ) + attention_flops_per_token(model, SEQ, causal_half=False)
    )
    assert _flops(_work(model, Policy())) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("name", ["llava", "t5", "rwkv", "jamba"])
def test_tensor_parallelism_divides_them(name: str) -> None:
    model = model_from_config(CONFIGS[name], name)
    whole, half = (_flops(_work(model, Policy(tp=tp, sp=tp > 1))) for tp in (1, 2))
    assert half == pytest.approx(whole / 2, rel=0.05)


def test_messages_of_a_second_attention_are_those_of_the_first() -> None:
    work = _work(model_from_config(CONFIGS["t5"], "t5"), Policy(tp=2, sp=True))
    decoder = work.kinds[work.model.pattern[-1]]
    names = [c.name for c in decoder.collectives if np.asarray(c.count).item() > 0]
    assert names.count("cross all-gather") == names.count("attention all-gather") > 0
