"""What a proof refused is not planned again for the same program."""

import pytest
import torch
from small_models import NormedBlock, Tiny, batch
from torch.nn import functional as F

from shardwise.run.auto import answer
from shardwise.run.auto.plan import degrees_of
from shardwise.run.auto.program import program_of
from shardwise.run.auto.refusals import RefusedSplit, keep_refusal, kept_refusals, parts_of, program_key
from shardwise.run.auto.source import ProgramSource
from shardwise.spec.load import cluster_of


def build():
    model = Tiny(NormedBlock, tied=False)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def comparing(model, optimizer, tokens):
    """Samples are compared with each other: the loss is no mean over them, so they cannot be shared out."""
    logits = model(tokens)
    (F.cross_entropy(logits.flatten(0, 1), tokens.flatten()) + logits.mean((1, 2)).var()).backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.fixture
def cached(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(answer, "PROOF_STEPS", 3)


def answered(text="a script"):
    proofs = []
    source = ProgramSource(
        lambda steps, dtype: program_of(build, batch, comparing, steps, dtype), lambda: None, text=text
    )
    found = answer.answered(source, cluster_of("2xh100"), ["pp=1"], 0, proofs.append)
    return found, [words for words in proofs if words.startswith("proving")]


@pytest.mark.usefixtures("cached")
def test_the_next_plan_avoids_what_the_proof_refused():
    found, proofs = answered()
    assert found.proof.equal, found.proof.why
    assert found.choice.plan.degrees.dp == 1
    assert found.choice.plan.degrees.ranks == 2
    assert len(proofs) > 1
    assert any("its proof did not hold" in each for each in found.choice.prediction.passed_over)
    again, proofs = answered()
    assert again.choice.plan == found.choice.plan
    assert len(proofs) == 1
    assert len(answered("another script")[1]) > 1


@pytest.mark.usefixtures("cached")
def test_refusals_are_those_of_a_program_and_its_model(tmp_path):
    model = build()[0]
    key = program_key("text", model)
    assert key != program_key("text", Tiny(NormedBlock, blocks=3))
    refusal = RefusedSplit(parts_of(degrees_of("fsdp=2,tp=2,sp")), "why")
    assert refusal.parts == ("dp", "tp", "sp")
    keep_refusal(key, refusal)
    assert kept_refusals(key) == [refusal]
    assert kept_refusals("another") == []
    next(tmp_path.rglob("proofs.json")).write_text("{")
    assert kept_refusals(key) == []
