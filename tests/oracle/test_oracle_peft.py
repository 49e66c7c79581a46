"""peft as judge: what its adapters train, and what they keep beyond the model, is what our lists say.

Runs where peft and transformers are installed; the project itself needs neither.
"""

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft", reason="peft is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import work_sums as ours  # noqa: E402
from reference_saved import keeping  # noqa: E402

from shardwise.spec.arch import model_of  # noqa: E402
from shardwise.spec.arch.tensors import parameters  # noqa: E402
from shardwise.spec.arch.tuned import trained_parameters, tuned  # noqa: E402
from shardwise.spec.job import PRECISIONS, Job  # noqa: E402
from shardwise.spec.model import Model  # noqa: E402
from shardwise.spec.policy import Policies, Policy  # noqa: E402
from shardwise.spec.tuning import tuning_of  # noqa: E402
from shardwise.work import work_of  # noqa: E402
from shardwise.work.case import training_of  # noqa: E402

RANK, BATCH, SEQ = 4, 2, 16
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(
        hidden_size=64, intermediate_size=176, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=4,
        vocab_size=128, use_cache=False,
    ),
    "qwen3": lambda: transformers.Qwen3Config(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, vocab_size=96, use_cache=False, tie_word_embeddings=True,
    ),
    "gpt2": lambda: transformers.GPT2Config(
        n_embd=64, n_layer=2, n_head=4, vocab_size=128, n_positions=64, use_cache=False
    ),
}  # fmt: skip
CASES = [
    ("llama", "all", "all-linear"), ("llama", "q_proj,v_proj", ["q_proj", "v_proj"]),
    ("llama", "mlp", ["gate_proj", "up_proj", "down_proj"]),
    ("llama", "attention", ["q_proj", "k_proj", "v_proj", "o_proj"]), ("qwen3", "all", "all-linear"),
    ("gpt2", "all", "all-linear"), ("gpt2", "c_attn", ["c_attn"]),
]  # fmt: skip


def theirs(name: str, targets: object, *, dora: bool = False) -> torch.nn.Module:
    torch.manual_seed(0)
    base = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](), attn_implementation="sdpa")
    wanted = peft.LoraConfig(
        r=RANK, target_modules=targets, use_dora=dora, lora_dropout=0.0, task_type="CAUSAL_LM",
        fan_in_fan_out=name == "gpt2",
    )  # fmt: skip
    return peft.get_peft_model(base, wanted)


def shape_of(name: str, folder) -> Model:
    path = folder / "config.json"
    config = CONFIGS[name]()
    config.architectures = [type(transformers.AutoModelForCausalLM.from_config(config)).__name__]
    path.write_text(config.to_json_string(use_diff=False))
    return model_of(str(path))


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize(("name", "targets", "modules"), CASES)
def test_trained_parameters(name: str, targets: str, modules: object, dora: bool, tmp_path) -> None:
    found = theirs(name, modules, dora=dora)
    method = "dora" if dora else "lora"
    model = tuned(shape_of(name, tmp_path), tuning_of(f"{method},rank={RANK},targets={targets}", None))
    trained, everything = found.get_nb_trainable_parameters()
    assert trained_parameters(model) == trained
    assert parameters(model) + trained_parameters(model) == everything


def kept(module: torch.nn.Module) -> int:
    module.train()
    tokens = torch.zeros(BATCH, SEQ, dtype=torch.int64)
    with keeping(module) as ledger:
        module(input_ids=tokens, labels=tokens)
    return sum(size for _, size in ledger.kept.values())


def saved_by_ours(model: Model, tune: str) -> float:
    job = Job(seq=SEQ, global_batch=BATCH, precision=PRECISIONS["fp32"], tuning=tuning_of(tune, None))
    one = Policies.of([Policy(micro_batch=BATCH, zero=0)])
    work = work_of(training_of(model, job, ours.PLAIN_STACK), one, every_stage=True)
    return sum(sum(ours.saved(work.kinds[kind]).values()) for kind in work.model.pattern)


def test_what_more_adapters_keep(tmp_path) -> None:
    """Beside what transformers keeps of the model, whatever is adapted: inputs of the matrices, and middles."""
    model = shape_of("llama", tmp_path)
    few, many = "q_proj,v_proj", "all"
    more = kept(theirs("llama", "all-linear")) - kept(theirs("llama", ["q_proj", "v_proj"]))
    ours_more = saved_by_ours(model, f"lora,rank={RANK},targets={many}") - saved_by_ours(
        model, f"lora,rank={RANK},targets={few}"
    )
    assert more == ours_more


def test_what_magnitudes_keep(tmp_path) -> None:
    """Besides, peft keeps a few numbers for every output of a matrix, which are none of a token's. It makes BA from an
    identity matrix through A and B, which autograd sees and lets go of."""
    model = shape_of("llama", tmp_path)
    with_magnitudes = theirs("llama", "all-linear", dora=True)
    found = kept(with_magnitudes) - kept(theirs("llama", "all-linear"))
    tune = f"rank={RANK},targets=all"
    mine = saved_by_ours(model, f"dora,{tune}") - saved_by_ours(model, f"lora,{tune}")
    parameters_of = dict(with_magnitudes.named_parameters())
    outputs = sum(p.numel() for name, p in parameters_of.items() if "magnitude" in name)
    inputs = [p.shape[1] for name, p in parameters_of.items() if "lora_A" in name]
    let_go = 4 * sum(width * width + width * RANK for width in inputs)
    assert 0 <= found - let_go - mine <= 4 * 4 * outputs
