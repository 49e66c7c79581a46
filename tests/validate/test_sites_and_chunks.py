"""Where a run ran and how its stages were cut, as far as its row tells."""

import pytest

from shardwise.measured.validate.facts import chunks_of_a_stage
from shardwise.measured.validate.interpret import measured_case
from shardwise.measured.validate.predict import predict_cases
from shardwise.measured.validate.table import MeasuredRow
from shardwise.spec.load import cluster_of, gpu_of
from shardwise.spec.software import stack_of
from shardwise.work.case import case_of

RUN = {
    "source": "test", "model": "llama-2-7b", "gpu": "A100-80GB-SXM", "gpus": "64", "gpus_per_node": "8",
    "internode_gbps_per_gpu": "50", "dtype": "bf16", "tp": "2", "pp": "2", "seq": "4096", "global_batch": "512",
    "micro_batch": "2", "software": "Megatron-DeepSpeed",
}  # fmt: skip


def _row(**text: str) -> MeasuredRow:
    return MeasuredRow(row=0, text=RUN | text)


@pytest.mark.parametrize(("stack", "text", "chunks"), [
    ("megatron-core@lm", {}, [1]),
    ("megatron-core@lm", {"vpp": "4"}, [4]),
    ("megatron-core@lm", {"notes": "pipeline with interleaving"}, [1, 2, 4, 8]),
    ("megatron-core@lm", {"software": "Megatron-LM (interleaved 1F1B)"}, [1, 2, 4, 8]),
    ("megatron-core@lm", {"notes": "not interleaved"}, [1]),
    ("megatron-bridge@recipes", {}, [1]),
    ("megatron-core", {}, [1, 2, 4, 8]),
    ("megatron-core", {"pp": "1"}, [1]),
    ("deepspeed@megatron", {"notes": "interleaved"}, [1]),
    ("generic", {}, [1]),
    ("torchtitan", {}, [1]),
    ("torchtitan", {"notes": "Interleaved1F1B"}, [1, 2, 4, 8]),
])  # fmt: skip
def test_a_stage_is_whole_unless_something_cuts_it(stack: str, text: dict[str, str], chunks: list[int]) -> None:
    assert chunks_of_a_stage(_row(**text), stack_of(stack), 16) == chunks


def test_omni_path_reaches_one_adapter_of_a_node() -> None:
    seconds = {}
    for notes in ("4 x 100 Gb/s Omni-Path per node", "4 x 100 Gb/s InfiniBand per node"):
        case = measured_case(_row(notes=notes))
        network = case_of(case.model, case.cluster, case.job, case.stack).network
        seconds[case.cluster.link_layer == "omni-path"] = float(network.seconds("all_reduce", 4e9, 64))
    assert seconds[True] == pytest.approx(4 * seconds[False], rel=0.05)


def test_a_programs_own_factor_holds_what_its_clusters_lose() -> None:
    cluster, model = cluster_of("jean-zay-a100:64"), measured_case(_row())
    found = [
        case_of(model.model, cluster, model.job, stack_of(name)).network.efficiency[1]
        for name in ("deepspeed@megatron", "deepspeed@bigscience")
    ]
    assert found == [0.25, 0.25]


def test_machines_with_gpus_of_their_own() -> None:
    for name, chip in (("A100-64GB-SXM", "a100-64"), ("NVIDIA A100-SXM-64GB", "a100-64"), ("H100-64GB-SXM", "h100-64")):
        assert measured_case(_row(gpu=name)).cluster.gpu.name == chip
    assert gpu_of("a100-64").peak("bf16") > gpu_of("a100-80").peak("bf16")
    assert cluster_of("leonardo:64").node_size == cluster_of("marenostrum-5:64").node_size == 4


def test_an_all_to_all_on_efa_reaches_less_than_other_messages():
    run = {"model": "qwen3-30b-a3b", "gpu": "H100", "internode_gbps_per_gpu": "400", "tp": "1", "pp": "1", "ep": "32",
           "dispatcher": "alltoall", "micro_batch": "1", "global_batch": "64"}  # fmt: skip
    cases = [measured_case(_row(**run, notes=said)) for said in ("EFA", "InfiniBand")]
    assert [case.cluster.exchanged for case in cases] == [0.4, 1.0]
    steps = [predict_cases([case])[0].step_s or 0.0 for case in cases]
    assert steps[0] > 1.2 * steps[1]
