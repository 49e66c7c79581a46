"""What is written is read by the programs' own parsers, and they read what was meant.

`make parsers` installs those that can be installed; source trees lie in the folder that SHARDWISE_SOURCES names:
Megatron-LM (d98e8a64dd), verl (1dda039b9), nanotron (2411b022a7), Automodel (36044ad3d), maxtext (e591f30cb), Primus
(fd1eeabb), Megatron-Bridge (067f987df), torchtitan-0.2.2, torchtitan-0.3.0 (unpacked wheels). Bridge cannot be imported
without a GPU; the names written for it are held against the classes in its source.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from launches import launch_of
from shardwise import question_of
from shardwise.programs.formats import Launch, expressed, format_of, settled
from shardwise.programs.formats._source import open_document
from shardwise.spec.policy import Policy

HERE = Path(__file__).resolve().parent / "parsers"
INSTALLED = Path(os.environ.get("SHARDWISE_PARSERS", HERE.parents[2] / ".parsers"))
SOURCES = Path(os.environ.get("SHARDWISE_SOURCES", INSTALLED / "sources"))
LONGEST_S = 240


def source(name: str) -> Path:
    if not (SOURCES / name).is_dir():
        pytest.skip(f"{name}: no source tree in SHARDWISE_SOURCES ({SOURCES})")
    return (SOURCES / name).resolve()


def package(name: str) -> None:
    if not (INSTALLED / name).is_dir():
        pytest.skip(f"{name} is not installed in {INSTALLED}: run `make parsers`")


def parsed(program: str, *words, environment=None, folder: Path | None = None) -> dict:
    pytest.importorskip("torch", reason="the parsers import torch")
    ended = subprocess.run(
        [sys.executable, str(HERE / f"parse_{program}.py"), *map(str, words)], capture_output=True, text=True,
        timeout=LONGEST_S, env={**os.environ, "PYTHONPATH": str(INSTALLED), **(environment or {})}, check=False,
        cwd=folder,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


def written(name: str, policy: Policy, folder: Path, version: str = "", model: str = "llama-3-8b"):
    target = format_of(name)
    launch, _ = expressed(target, launch_of(target, policy, model, version))
    found = target.write(launch)
    for file, text in found.files.items():
        (folder / file).write_text(text)
    return launch, found


MEGATRON = [
    (Policy(dp=4, tp=2, pp=4, vpp=2, cp=2, schedule="interleaved", recompute="selective"), "llama-3-8b"),
    (Policy(dp=8, tp=2, zero=3, overlap_tp=False), "llama-3-8b"),
    (Policy(dp=8, tp=2, pp=3, recompute="full", recompute_layers=4), "llama-3-8b"),  # 32 layers on 3 stages
    (Policy(dp=16, tp=2, pp=2, ep=8, shard_group=4), "mixtral-8x7b"),
    (
        Policy(dp=2, tp=4, pp=4, order="tp-pp-cp-dp", overlap_tp=True, offload="optimizer", offload_share=0.5),
        "llama-3-8b",
    ),
]


@pytest.mark.parametrize(("policy", "model"), MEGATRON, ids=range(len(MEGATRON)))
def test_megatron(policy, model, tmp_path):
    tree = source("Megatron-LM")
    launch, files = written("megatron", policy, tmp_path, model=model)
    words = open_document(tmp_path / "train.sh").words
    # fused kernels of a package that is not there
    found = parsed("megatron", tree, policy.gpus, *words, "--no-rope-fusion", environment=files.environment)
    policy = launch.policy
    assert found["data_parallel_size"] == policy.dp
    assert found["tensor_model_parallel_size"] == policy.tp
    assert found["pipeline_model_parallel_size"] == policy.pp
    assert (found["virtual_pipeline_model_parallel_size"] or 1) == policy.vpp
    assert found["context_parallel_size"] == policy.cp
    assert found["expert_model_parallel_size"] == policy.ep
    assert found["sequence_parallel"] == policy.sp
    assert found["use_distributed_optimizer"] == (policy.zero >= 1)
    assert bool(found.get("use_megatron_fsdp")) == (policy.zero >= 2)
    assert (found["recompute_granularity"] or "none") == policy.recompute
    assert found["overlap_grad_reduce"] == policy.overlap_grad
    assert found["use_tp_pp_dp_mapping"] == (policy.order != "tp-cp-dp-pp")
    assert found["micro_batch_size"] == policy.micro_batch
    if policy.ep > 1:
        assert found["expert_tensor_parallel_size"] == 1
    if policy.offload != "none":
        assert found["optimizer_offload_fraction"] == policy.offload_share


def test_megatron_refuses_a_misspelt_argument():
    tree = source("Megatron-LM")
    with pytest.raises(AssertionError, match="tensor-paralel"):
        parsed("megatron", tree, 8, "--tensor-paralel-size", 2)


@pytest.mark.parametrize(
    "policy", [Policy(dp=32, zero=3, offload="optimizer", offload_share=0.5), Policy(dp=16, zero=2, overlap_grad=False)]
)
def test_deepspeed(policy, tmp_path):
    package("deepspeed")
    launch, _ = written("deepspeed", policy, tmp_path)
    found = parsed("deepspeed", tmp_path / "deepspeed.json", policy.gpus)
    assert found["stage"] == policy.zero
    assert found["overlap"] == launch.policy.overlap_grad
    assert found["micro"] * found["steps"] * policy.dp == found["train_batch_size"] == launch.case.job.global_batch
    assert found["device"] == ("cpu" if policy.offload == "optimizer" else "none")
    assert found["ratio"] in (None, policy.offload_share)
    assert found["bf16"]


@pytest.mark.parametrize("policy", [Policy(dp=16, tp=2, zero=3, shard_group=8), Policy(dp=4, cp=2, zero=2)])
def test_accelerate(policy, tmp_path):
    package("accelerate")
    written("accelerate", policy, tmp_path)
    found = parsed("accelerate", tmp_path / "accelerate.yaml")
    assert (found["tp"], found["cp"]) == (policy.tp, policy.cp)
    assert found["dp_replicate"] * found["dp_shard"] == policy.dp
    assert found["dp_shard"] == (policy.shard_group // policy.cp or policy.dp)
    assert found["num_processes"] == policy.gpus
    assert found["fsdp_version"] == 2
    assert found["fsdp_reshard_after_forward"] == (policy.zero == 3)


TUNERS = {"trl": "train.sh", "axolotl": "axolotl.yaml", "llama_factory": "llama_factory.yaml"}


@pytest.mark.parametrize("tune", ["lora", "qlora", "dora,rank=4,targets=mlp", "lora,base=nf4-single"])
@pytest.mark.parametrize("name", TUNERS)
def test_tuners(name, tune, tmp_path):
    package({"llama_factory": "llamafactory"}.get(name, name))
    policy = {"dp": 16} if name == "llama_factory" else {"dp": 4, "cp": 4}
    question = question_of("llama-3-8b", on="2x8xa100-40@100Gbps/node", tune=tune, stack=name.replace("_", "-"),
                           seq=2048, global_batch=64, zero=3, recompute="full", **policy)  # fmt: skip
    launch, _ = expressed(format_of(name), Launch(question.case, settled(question.policy, question.case)))
    for file, text in format_of(name).write(launch).files.items():
        (tmp_path / file).write_text(text)
    found = parsed("tuners", name, tmp_path / TUNERS[name])
    micros = {"micro": 1, "steps": 64 // policy["dp"], "seq": 2048, "packing": "cp" not in policy}
    four = "qlora" in tune or "nf4" in tune
    wanted = micros | {"rank": 4 if "dora" in tune else 16, "dora": "dora" in tune, "four_bits": four}
    assert {key: found[key] for key in wanted} == wanted
    assert found["targets"] == (["down_proj", "gate_proj", "up_proj"] if "mlp" in tune else "all-linear")
    assert not four or found["double"] == ("single" not in tune)
    assert found.get("cp", 4) == found.get("shard", 4) == 4
    assert found.get("reshards", True)
    assert found.get("recomputes", True)


TITAN = [
    Policy(dp=8, tp=2, pp=2, vpp=2, schedule="interleaved", zero=3, recompute="full"),
    Policy(dp=8, cp=2, zero=2, shard_group=4),
    Policy(dp=8, tp=2, zero=3, recompute="selective"),
]


@pytest.mark.parametrize("version", ["0.2.2", "0.3.0"])
@pytest.mark.parametrize("policy", TITAN, ids=range(len(TITAN)))
def test_torchtitan(policy, version, tmp_path):
    package("tyro")
    if version == "0.3.0":
        for name in ("torchdata", "torchao", "grain", "spmd_types"):
            package(name)
    tree = source(f"torchtitan-{version}")
    launch, _ = written("torchtitan", policy, tmp_path, version)
    words = open_document(tmp_path / "train.sh").words
    if version == "0.2.2":
        words = ("--job.config_file", str(tmp_path / "train.toml"))
    else:
        words = ("--module", "llama3", "--config", "llama3_8b", *words[2:])
    found = parsed("torchtitan", tree, *words)
    split, training = found["parallelism"], found["training"]
    assert split["data_parallel_replicate_degree"] * split["data_parallel_shard_degree"] == policy.dp
    assert split["tensor_parallel_degree"] == policy.tp
    assert split["context_parallel_degree"] == policy.cp
    assert split["pipeline_parallel_degree"] == policy.pp
    assert split["fsdp_reshard_after_forward"] == ("always" if policy.zero == 3 else "never")
    assert training["seq_len"] == launch.case.job.seq
    assert training["global_batch_size"] == launch.case.job.global_batch
    if version == "0.2.2":
        assert found["activation_checkpoint"]["mode"] == policy.recompute
    else:
        kept = found["activation_checkpoint"]
        assert {"full": "FullAC", "selective": "SelectiveAC", "none": None}[policy.recompute] == (
            kept and kept["class"].split(".")[0]
        )


@pytest.mark.parametrize(
    "policy", [Policy(dp=4, tp=2, pp=2, vpp=2, schedule="interleaved"), Policy(dp=8, recompute="full", sp=False, tp=2)]
)
def test_verl(policy, tmp_path):
    package("hydra")
    tree = source("verl")
    launch, _ = written("verl", policy, tmp_path)
    words = [word for word in open_document(tmp_path / "train.sh").words if "MODEL_PATH" not in word]
    found = parsed("verl", tree, *[word for word in words if not word.endswith("=")])
    engine = found["engine"]
    assert engine["tensor_model_parallel_size"] == policy.tp
    assert engine["pipeline_model_parallel_size"] == policy.pp
    assert (engine["virtual_pipeline_model_parallel_size"] or 1) == policy.vpp
    assert engine["sequence_parallel"] == launch.policy.sp
    assert engine["override_ddp_config"]["overlap_grad_reduce"] == launch.policy.overlap_grad
    kept = engine["override_transformer_config"]["recompute_granularity"]
    assert (kept or "none") == policy.recompute
    assert found["data"]["train_batch_size"] == launch.case.job.global_batch
    assert found["trainer"]["nnodes"] * found["trainer"]["n_gpus_per_node"] == policy.gpus


NANOTRON = [
    Policy(dp=4, tp=2, pp=2), Policy(dp=8, tp=2, recompute="full", zero=0, sp=False),
    Policy(dp=2, tp=4, cp=2, micro_batch=2), Policy(dp=2, pp=8, schedule="gpipe"),
]  # fmt: skip


@pytest.mark.parametrize("policy", NANOTRON, ids=range(len(NANOTRON)))
def test_nanotron(policy, tmp_path):
    tree = source("nanotron")
    package("dacite")
    package("transformers")
    launch, _ = written("nanotron", policy, tmp_path)
    found, job = parsed("nanotron", tree, tmp_path / "nanotron.yaml"), launch.case.job
    ran = launch.policy
    assert [found[axis] for axis in ("dp", "pp", "tp", "cp")] == [ran.dp, ran.pp, ran.tp, ran.cp]
    assert found["engine"].startswith("AllForwardAllBackward" if ran.schedule == "gpipe" else "OneForwardOneBackward")
    assert (found["tp_mode"] == "REDUCE_SCATTER") == ran.sp
    assert found["overlap_tp"] == (ran.overlap_tp and ran.sp)
    assert found["recompute"] == (ran.recompute == "full")
    assert found["zero"] == ran.zero
    assert found["micro"] * found["accumulation"] * found["dp"] == job.global_batch
    assert (found["seq"], found["layers"]) == (job.seq, launch.case.model.layers)


def test_nanotron_refuses_a_misspelt_key(tmp_path):
    tree = source("nanotron")
    package("dacite")
    package("transformers")
    written("nanotron", Policy(dp=4, tp=2, pp=2), tmp_path)
    file = tmp_path / "nanotron.yaml"
    file.write_text(file.read_text().replace("pp_engine", "pp_enginee"))
    with pytest.raises(AssertionError, match="pp_enginee"):
        parsed("nanotron", tree, file)


AUTOMODEL = [
    Policy(dp=8, zero=3), Policy(dp=8, zero=0), Policy(dp=8, tp=2, zero=3, recompute="full", sp=True),
    Policy(dp=8, cp=2, zero=2, shard_group=8), Policy(dp=2, pp=4, zero=3, micro_batch=2, recompute="selective"),
    Policy(dp=4, tp=2, pp=2, vpp=2, zero=2, schedule="interleaved"),
]  # fmt: skip


@pytest.mark.parametrize("policy", AUTOMODEL, ids=range(len(AUTOMODEL)))
def test_automodel(policy, tmp_path):
    tree = source("Automodel")
    target = format_of("automodel")
    launch, _ = expressed(target, launch_of(target, policy, "llama-3-8b"))
    for file, text in target.write(launch).files.items():
        (tmp_path / file).write_text(text)
    found, ran = parsed("automodel", tree, tmp_path / "automodel.yaml"), launch.policy
    assert [found[f"{axis}_size"] for axis in ("dp", "tp", "cp", "pp", "ep")] == [
        ran.dp,
        ran.tp,
        ran.cp,
        ran.pp,
        ran.ep,
    ]
    assert found["recompute"] == {"none": False, "full": True, "selective": "selective"}[ran.recompute]
    if ran.zero == 0:
        assert found["strategy"] == "DDPConfig"
    else:
        assert found["strategy"] == "FSDP2Config"
        assert (found["sequence_parallel"], found["overlap_tp"]) == (ran.sp, ran.overlap_tp)
        assert found["reshard"] == (ran.zero == 3)
    if ran.pp > 1:
        assert found["layers_per_stage"] * ran.pp * ran.vpp == launch.case.model.layers
        assert found["micro"] == ran.micro_batch


MAXTEXT = [
    Policy(dp=8), Policy(dp=16, zero=0), Policy(dp=8, tp=2, zero=3, recompute="full"),
    Policy(dp=4, tp=2, cp=2, zero=3, micro_batch=2), Policy(dp=16, zero=3, shard_group=8, attention="plain"),
]  # fmt: skip


@pytest.mark.parametrize("policy", MAXTEXT, ids=range(len(MAXTEXT)))
def test_maxtext(policy, tmp_path):
    tree = source("maxtext")
    package("pydantic")
    package("jinja2")
    launch, _ = written("maxtext", policy, tmp_path)
    file, ran, job = tmp_path / "maxtext.yml", launch.policy, launch.case.job
    file.write_text(file.read_text().replace("model_name: llama-3-8b", "model_name: llama3-8b"))
    found = parsed("maxtext", tree, file, ran.gpus, max(ran.gpus // 8, 1))
    assert found["rules"]  # without them no axis is split
    data, fsdp = (found[f"ici_{axis}"] * found[f"dcn_{axis}"] for axis in ("data", "fsdp"))
    assert data * fsdp == ran.dp
    assert (fsdp > 1) == (ran.zero == 3)
    assert found["ici_tensor"] * found["ici_tensor_sequence"] == ran.tp
    assert (found["ici_tensor_sequence"] > 1) == (ran.sp and ran.tp > 1)
    assert found["ici_context"] * found["dcn_context"] == ran.cp
    assert found["optimizer_over_data"] == (ran.zero == 1)
    assert (found["remat"] or "none") == ran.recompute
    assert (found["global_batch"], found["seq"]) == (job.global_batch, job.seq)
    assert found["layers"] == launch.case.model.layers


def test_maxtext_refuses_a_misspelt_value(tmp_path):
    tree = source("maxtext")
    package("jinja2")
    written("maxtext", Policy(dp=8), tmp_path)
    file = tmp_path / "maxtext.yml"
    text = file.read_text().replace("model_name: llama-3-8b", "model_name: llama3-8b")
    file.write_text(text.replace("dtype: bfloat16", "dtype: bfloat17"))
    with pytest.raises(AssertionError, match="bfloat17"):
        parsed("maxtext", tree, file, 8, 1)


PRIMUS = [policy for policy, model in MEGATRON if model == "llama-3-8b"]


@pytest.mark.parametrize("policy", PRIMUS, ids=range(len(PRIMUS)))
def test_primus(policy, tmp_path):
    tree = source("Primus")
    launch, _ = written("primus", policy, tmp_path)
    file = tmp_path / "primus.yaml"
    text = file.read_text().replace("model: llama-3-8b.yaml", "model: llama3_8B.yaml")
    file.write_text(text)
    overrides = yaml.safe_load(text)["modules"]["pre_trainer"]["overrides"]
    found, ran = parsed("primus", tree, file, folder=tmp_path), launch.policy
    assert found["framework"] == "megatron"
    assert {name: found[name] for name in overrides} == overrides
    assert found["tensor_model_parallel_size"] == ran.tp
    assert found["pipeline_model_parallel_size"] == ran.pp
    assert found["context_parallel_size"] == ran.cp
    assert found["num_layers"] == launch.case.model.layers


def fields_of(trees: list[Path]) -> dict[str, set[str]]:
    """Class -> its annotated fields and those of the classes it names as bases, by their last names."""
    own: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for tree in trees:
        for file in tree.rglob("*.py"):
            text = file.read_text(errors="replace")
            if "@dataclass" not in text:
                continue
            module = ast.parse(text)
            renamed = {alias.asname: alias.name for node in ast.walk(module) if isinstance(node, ast.ImportFrom)
                       for alias in node.names if alias.asname}  # fmt: skip
            for node in ast.walk(module):
                if isinstance(node, ast.ClassDef):
                    names = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
                    above = {ast.unparse(each).split("[")[0].rpartition(".")[2] for each in node.bases}
                    own.setdefault(node.name, set()).update(names)
                    bases.setdefault(node.name, set()).update(renamed.get(name, name) for name in above)

    def whole(name: str, seen: frozenset[str]) -> set[str]:
        above = bases.get(name, set()) - seen
        return own.get(name, set()).union(*(whole(each, seen | above) for each in above))

    return {name: whole(name, frozenset({name})) for name in own}


BRIDGE = {
    "model": ("GPTModelProvider",), "ddp": ("DistributedDataParallelConfig",), "comm_overlap": ("CommOverlapConfig",),
    "optimizer": ("OptimizerConfig",), "train": ("TrainingConfig",),
    "dataset": ("GPTDatasetConfig", "GPTSFTDatasetConfig"), "dist": ("DistributedInitConfig",),
    "checkpoint": ("CheckpointConfig",),
}  # fmt: skip


def test_bridge_writes_names_of_its_classes(tmp_path):
    trees = [source("Megatron-Bridge") / "src", source("Megatron-LM") / "megatron"]
    classes = fields_of(trees)
    recipes = {
        node.name for node in ast.parse((trees[0] / "megatron/bridge/training/mixed_precision.py").read_text()).body
        if isinstance(node, ast.FunctionDef)
    }  # fmt: skip
    for policy, model in MEGATRON:
        written("bridge", policy, tmp_path, model=model)
        data = yaml.safe_load((tmp_path / "bridge.yaml").read_text())
        assert data.pop("mixed_precision") in recipes
        for section, values in data.items():
            known = set().union(*(classes[name] for name in BRIDGE[section]))
            assert known
            assert set(values) <= known, section
