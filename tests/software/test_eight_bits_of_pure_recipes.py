"""A program that keeps all it trains in 16 bits does so too where its products take 8."""

import pytest

from shardwise.spec.software import stack_of
from shardwise.spec.software.words import with_words

KEPT = ("param_bytes", "grad_bytes", "master_bytes", "moment_bytes", "grad_comm_bytes")


@pytest.mark.parametrize("name", ["torchtune", "litgpt", "automodel", "torch-fsdp2@kempnerforge"])
@pytest.mark.parametrize("dtype", ["fp8", "fp8-rowwise"])
def test_weights_gradients_and_moments_are_those_of_bf16(name: str, dtype: str) -> None:
    stack = stack_of(name)
    wide, narrow = stack.precision_for("bf16"), stack.precision_for(dtype)
    assert narrow.compute == "fp8"
    assert [getattr(narrow, kind) for kind in KEPT] == [getattr(wide, kind) for kind in KEPT]


def test_a_text_that_says_so_is_believed_in_eight_bits() -> None:
    told, _ = with_words(stack_of("hugging-face"), "weights and moments in bf16")
    assert told.precision_for("fp8").name == "fp8-pure"
    assert stack_of("hugging-face").precision_for("fp8").master_bytes == 4
