"""Fields of a policy that change what memory holds, and the dtype of gradients."""

import numpy as np
import pytest

from shardwise.spec.job import PRECISIONS, precision_of, with_grad_dtype
from shardwise.spec.policy import Policies, Policy


def test_columns_give_back_what_they_were_made_of() -> None:
    policies = [
        Policy(),
        Policy(recompute="selective", recompute_modules=("layernorm", "mlp"), loss="chunked"),
        Policy(offload="optimizer", offload_share=0.375, loss="fused"),
    ]
    columns = Policies.of(policies)
    assert [columns[i] for i in range(3)] == policies
    assert not Policies.columns(2, dp=np.ones(2, dtype=np.int64)).recompute_modules.any()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"loss": "chunkd"}, "loss is 'chunkd'; did you mean 'chunked'"),
        ({"recompute": "selective", "recompute_modules": ("moe_act", "norms")}, "recompute_modules has 'norms'"),
        ({"recompute_modules": ("mlp",)}, "write recompute selective"),
        ({"recompute": "selective", "recompute_modules": ("mlp",), "recompute_layers": 3}, "write -1"),
        ({"offload": "optimizer", "offload_share": 0.0}, "offload_share is 0; write a share from 0.001 to 1"),
        ({"offload": "optimizer", "offload_share": 1.5}, "offload_share is 1.5"),
    ],
)
def test_bad_values_are_named(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Policy(**fields)  # type: ignore[arg-type]


def test_gradients_in_another_dtype() -> None:
    assert with_grad_dtype(PRECISIONS["bf16"], "bf16") == PRECISIONS["bf16-grad16"]
    assert with_grad_dtype(PRECISIONS["bf16"], "fp32") is PRECISIONS["bf16"]
    wide = with_grad_dtype(PRECISIONS["fp8-grad16"], "fp32")
    assert (wide.name, wide.grad_bytes, wide.grad_comm_bytes) == ("fp8-grad32", 4.0, 4.0)
    assert precision_of("fp8-grad32") == wide
    # FSDP keeps fp32 gradients of fp32 weights: only what is reduced is narrower
    assert with_grad_dtype(PRECISIONS["fsdp-mixed-reduce32"], "bf16") == PRECISIONS["fsdp-mixed"]
    with pytest.raises(ValueError, match="grad-dtype: 'fp8' is unknown; write bf16 or fp32"):
        with_grad_dtype(PRECISIONS["bf16"], "fp8")
    with pytest.raises(ValueError, match="'bf17-grad16' is unknown"):
        precision_of("bf17-grad16")
