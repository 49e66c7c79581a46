"""What of a model is trained, as people write it."""

import pytest

from shardwise.spec.tuning import BASES, Adapters, Tuning, tuning_of


@pytest.mark.parametrize(
    ("tune", "freeze", "meant"),
    [
        (None, None, None),
        ("full", None, None),
        ("lora", None, Tuning(adapters=Adapters())),
        ("qlora", None, Tuning(adapters=Adapters(), base="nf4")),
        ("dora,rank=8", None, Tuning(adapters=Adapters(rank=8, magnitudes=True))),
        ("dora,base=nf4-single", None, Tuning(adapters=Adapters(magnitudes=True), base="nf4-single")),
        ("lora, targets=q_proj, v_proj, rank=4", None, Tuning(adapters=Adapters(rank=4, targets=("q_proj", "v_proj")))),
        (None, "embeddings,first=8", Tuning(embeddings=True, first=8)),
        ("lora", "vision", Tuning(adapters=Adapters(), vision=True)),
    ],
)
def test_reads(tune: str | None, freeze: str | None, meant: Tuning | None) -> None:
    assert tuning_of(tune, freeze) == meant


@pytest.mark.parametrize(
    "tune",
    ["lora,rank=16,targets=all", "qlora,rank=8,targets=q_proj,v_proj", "dora,rank=4,targets=mlp,base=nf4"],
)
@pytest.mark.parametrize("freeze", ["", "embeddings,vision,first=3"])
def test_what_is_written_reads_the_same(tune: str, freeze: str) -> None:
    found = tuning_of(tune, freeze or None)
    assert found is not None
    assert (found.tune_text, found.freeze_text) == (tune, freeze)


@pytest.mark.parametrize(
    ("tune", "freeze", "told"),
    [
        ("lra", None, "tune: 'lra' is unknown; did you mean 'lora'"),
        ("full,rank=4", None, "tune: full has no rank"),
        ("lora,rank=many", None, "rank='many' is not a whole number; write for example rank=16"),
        ("lora,rank=0", None, "rank=0 is out of range; write a whole number from 1"),
        ("lora,rank=" + "9" * 5000, None, "is not a whole number"),
        ("lora,alpha=8", None, "'alpha' is not a setting; write rank=, targets= or base="),
        ("lora,q_proj", None, "cannot read 'q_proj'"),
        ("lora,rank=4,rank=8", None, "rank is '4' and '8'"),
        ("lora,targets=", None, "targets= has an empty value"),
        ("qlora,base=int3", None, "base='int3' is unknown; write nf4 or nf4-single"),
        (None, "head", "freeze: 'head' is unknown; write embeddings, first=8, vision"),
        (None, "first=all", "freeze: first='all' is not a number of layers; write for example first=8"),
        (None, "first=0", "freeze: first='0' is not a number of layers"),
    ],
)
def test_says_what_to_write(tune: str | None, freeze: str | None, told: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        tuning_of(tune, freeze)
    assert told in str(raised.value)


def test_bits_of_a_quantised_weight() -> None:
    """QLoRA, arXiv:2305.14314, section 3: scales take 0.5 bits of a parameter, quantised themselves 0.127."""
    assert 8 * BASES["nf4-single"] == 4.5
    assert 8 * BASES["nf4"] == pytest.approx(4.127, abs=5e-4)
