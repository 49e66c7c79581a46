"""A run that was measured had room: what its row leaves open is read so that it fits, what it states is not."""

import pytest

from shardwise.measured.validate.milder import WOULD_NOT_FIT, WOULD_RECOMPUTE
from shardwise.measured.validate.predict import Prediction, predict
from shardwise.measured.validate.table import MeasuredRow

RUN = {
    "source": "a paper", "model": "llama-3.1-70b", "gpu": "A100-80GB-SXM", "gpus": "256", "gpus_per_node": "8",
    "seq": "2048", "global_batch": "256", "dtype": "bf16", "recompute": "selective", "micro_batch": "1",
    "flash_attention": "1", "software": "our own trainer",
}  # fmt: skip
CUT = {"tp": "1", "pp": "1", "dp": "256"}


def _read(**changed: str) -> Prediction:
    return predict([MeasuredRow(row=0, text={**RUN, **changed})])[0]


def test_neither_zero_nor_the_cut_is_published() -> None:
    """70 billion parameters in 16 bits fill more than one GPU of 80 GB, so the run was cut or sharded."""
    found = _read()
    assert found.verdict == "ok"
    assert WOULD_NOT_FIT in found.why
    assert "best that fits: zero of 0/1/2/3, tp of 1/2/4/8" in found.why
    assert found.policy is not None
    assert found.policy.tp > 1 or found.policy.zero == 3
    assert found.policy.dp * found.policy.tp == 256


def test_a_cut_that_is_published_stays() -> None:
    found = _read(**CUT)
    assert found.verdict == "ok"
    assert found.policy is not None
    assert (found.policy.tp, found.policy.zero) == (1, 3)
    assert "tp of" not in found.why


def test_a_row_that_states_everything_is_read_as_it_stands() -> None:
    found = _read(**CUT, zero_stage_or_fsdp="0", software="NeMo 24.07")
    assert found.verdict == "oom"
    assert WOULD_NOT_FIT not in found.why


def test_a_run_that_fits_is_not_read_again() -> None:
    found = _read(**CUT, model="llama-3.2-1b")
    assert found.verdict == "ok"
    assert found.policy is not None
    assert found.policy.zero == 0
    assert WOULD_NOT_FIT not in found.why


def test_weights_of_a_program_nobody_knows_may_have_16_bits_alone() -> None:
    """8 billion parameters with fp32 weights and moments fill more than 80 GB; in bf16 they train in less."""
    one = {"model": "llama-3.1-8b", "gpu": "H100-80GB-SXM", "gpus": "1", "global_batch": "4", "recompute": "full"}
    found = _read(**one, tp="1", pp="1", dp="1", zero_stage_or_fsdp="0", software="mine (FSDP2)")
    assert found.verdict == "ok"
    assert "moments in bf16 alone" in found.why
    known = _read(**one, tp="1", pp="1", dp="1", zero_stage_or_fsdp="0", software="torchtitan")
    assert known.verdict == "oom"
    assert "bf16 alone" not in known.why


@pytest.mark.parametrize(("software", "zero"), [("our own trainer", 2), ("NeMo 24.07", 1)])
def test_sharded_gradients_beside_stages(software: str, zero: int) -> None:
    """Of a program that nobody knows, the row is all there is to go by; NeMo has none."""
    found = _read(tp="8", pp="4", dp="8", zero_stage_or_fsdp="fsdp(2)", software=software)
    assert found.policy is not None
    assert found.policy.zero == zero


def test_an_unknown_program_may_fuse_its_kernels() -> None:
    """Norms written out in fp32 and an activation kept beside its gate, which this run had no room for."""
    staged = {"model": "llama-3.1-405b", "gpu": "H100-80GB-SXM", "gpus": "8192", "tp": "8", "pp": "16", "dp": "64",
              "seq": "8192", "global_batch": "2048", "recompute": "none", "zero_stage_or_fsdp": "fsdp(2)"}  # fmt: skip
    found = _read(**staged)
    assert found.verdict == "ok"
    assert "norms, rotation and gated activation taken as fused" in found.why


def test_a_run_shards_before_it_recomputes_every_layer() -> None:
    """70 billion parameters on 64 chips: with whole copies of the optimizer they fit by full recompute alone."""
    run = {"gpu": "GB200", "gpus": "64", "gpus_per_node": "4", "tp": "4", "pp": "2", "seq": "4096", "micro_batch": "2",
           "global_batch": "1024", "software": "Megatron-LM (NeMo container 26.05)", "recompute": ""}  # fmt: skip
    found = _read(**run)
    assert found.policy is not None
    assert found.policy.zero > 0
    assert found.policy.recompute != "full"
    assert WOULD_RECOMPUTE in found.why
    told = _read(**run | {"recompute": "full"})
    assert told.policy is not None
    assert told.policy.zero == 0
    assert WOULD_RECOMPUTE not in told.why
