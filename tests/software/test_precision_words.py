"""A dtype means the same in a table of runs, on the command line and in a file: what the program makes of it."""

import json

import pytest

from shardwise.measured.validate.interpret import measured_case
from shardwise.measured.validate.table import MeasuredRow
from shardwise.show.cli import main
from shardwise.spec.job import precision_of
from shardwise.spec.software import stack_names, stack_of
from shardwise.spec.software.stack import DTYPE_WORDS

ROW = {
    "model": "Llama3-8B", "gpu": "H100-80GB-SXM", "gpus": "8", "gpus_per_node": "8", "seq": "4096",
    "global_batch": "16", "micro_batch": "1", "tp": "1", "pp": "1", "cp": "1", "zero_stage_or_fsdp": "fsdp",
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPE_WORDS)
def test_every_stack_s_recipe_is_found_again_by_its_name(dtype: str) -> None:
    for stack in map(stack_of, stack_names()):
        recipe = stack.precision(dtype)
        assert precision_of(recipe.name) == recipe, (stack.name, dtype)


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "mxfp8"])
@pytest.mark.parametrize("stack", ["torchtitan", "megatron-core", "deepspeed", "nanotron", "generic"])
def test_estimate_takes_a_dtype_as_validate_does(stack: str, dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    row = measured_case(MeasuredRow(row=0, text=ROW | {"dtype": dtype}), stack)
    flags = ["--zero", "3", "--seq", "4096", "--global-batch", "16", "--precision", dtype, "--json"]
    main(["estimate", "llama-3-8b", "--on", "8xh100", "--stack", stack, *flags])
    assert json.loads(capsys.readouterr().out)["precision"] == row.job.precision.name


def test_what_is_not_stated_is_the_program_s_own(capsys: pytest.CaptureFixture[str]) -> None:
    main(["estimate", "llama-3-8b", "--on", "8xh100", "--stack", "torchtitan", "--zero", "3", "--json"])
    assert json.loads(capsys.readouterr().out)["precision"] == "fsdp-mixed-reduce32"
    main(["estimate", "llama-3-8b", "--on", "8xh100", "--zero", "3", "--json"])
    assert json.loads(capsys.readouterr().out)["precision"] == "bf16"


def test_blocks_run_at_kernel_rates_of_their_own() -> None:
    blocks, whole = (stack_of("megatron-core").precision(name) for name in ("fp8-blockwise", "fp8"))
    assert (blocks.kernels, whole.kernels) == ("fp8-block", "fp8")
    assert stack_of("megatron-core@hai-llm").precision("fp8") == stack_of("megatron-core@hai-llm").precision(
        "fp8-blockwise"
    )
