"""A number format that the chip has no units for is told, with what is priced instead."""

import pytest

from shardwise import Job, Policy, case_of, cluster_of, model_of, report_of, stack_of


@pytest.mark.parametrize(("gpu", "precision", "told"), [
    ("a100-80", "fp8", "a100-80 has no fp8: GEMMs are priced in bf16"),
    ("h100", "nvfp4", "h100 has no fp4: GEMMs are priced in fp8"),
    ("h100", "mxfp8", "h100 has no mxfp8: GEMMs are priced as fp8 with one scale a tensor"),
    ("h100", "fp8", ""), ("b200", "mxfp8", ""), ("b200", "nvfp4", ""), ("a100-80", "bf16", ""),
])  # fmt: skip
def test_what_the_chip_lacks_is_an_assumption(gpu: str, precision: str, told: str) -> None:
    stack = stack_of("megatron-core")
    job = Job(seq=4096, global_batch=8, precision=stack.precision(precision))
    report = report_of(case_of(model_of("llama-3-8b"), cluster_of(f"8x{gpu}"), job, stack), Policy(dp=8, zero=3))
    assert [line for line in report.assumptions if " has no " in line] == ([told] if told else [])
