"""Adapters and frozen parts: every layout trains them as one process does, sends and keeps what is predicted, and PEFT
computes the same with what is exported."""

import json
from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace

pytestmark = pytest.mark.xdist_group("adapters")  # they share what a fixture of theirs computes

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from training import MODELS, RATE, Trained, assembled, batch_for, task_of, train  # noqa: E402

from shardwise.run.runtime.checkpoints.save import save  # noqa: E402
from shardwise.run.runtime.parallel.comm import RankComm, RankGroup  # noqa: E402
from shardwise.run.runtime.parallel.nf4 import in_four_bits, scale_levels  # noqa: E402
from shardwise.run.runtime.parallel.products import Adapter, Cut, LinearWeights, entering, leaving  # noqa: E402
from shardwise.run.runtime.train.engine import TrainingEngine  # noqa: E402
from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.runtime.train.loop import Trainer  # noqa: E402
from shardwise.run.runtime.train.optimizer import OptimizerSettings  # noqa: E402
from shardwise.run.runtime.train.task import Task, TrainingOrder, TrainingSettings, checked  # noqa: E402
from shardwise.run.runtime.verify import recorded_step, verified  # noqa: E402
from shardwise.run.runtime.weights.export import check_export, export  # noqa: E402
from shardwise.run.runtime.weights.safetensors import SafeFile  # noqa: E402
from shardwise.spec.job import PRECISIONS, optimizer_of  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402
from shardwise.spec.tuning import tuning_of  # noqa: E402

STEPS = 3
LORA, SOME = ("lora,rank=4", None), ("lora,rank=2,targets=q_proj,down_proj", None)
QLORA, SINGLE = ("qlora,rank=4", None), ("lora,rank=4,base=nf4-single", None)
CASES = {
    2: [
        ("llama", LORA, Policy(dp=2, zero=0)),
        ("llama", LORA, Policy(dp=2, zero=2)),
        ("llama", LORA, Policy(dp=2, zero=3)),
        ("llama", LORA, Policy(tp=2)),
        ("llama", LORA, Policy(tp=2, sp=False)),
        ("llama", LORA, Policy(pp=2)),
        ("llama", LORA, Policy(pp=2, schedule="zero_bubble_h1")),
        ("llama", LORA, Policy(cp=2)),
        ("llama", LORA, Policy(tp=2, recompute="full")),
        ("mqa", LORA, Policy(tp=2)),
        ("llama", SOME, Policy(dp=2, zero=3)),
        ("llama", SOME, Policy(tp=2)),
        ("llama", (None, "embeddings"), Policy(pp=2)),
        ("llama", (None, "first=2"), Policy(dp=2, zero=3)),
        ("llama", (None, "first=2,embeddings"), Policy(dp=2, zero=3)),
        ("gpt", (None, "first=1"), Policy(tp=2)),
        ("gpt", (None, "embeddings"), Policy(pp=2)),
        ("wide", QLORA, Policy(dp=2, zero=2)),
        ("wide", QLORA, Policy(pp=2, recompute="full")),
        ("wide", QLORA, Policy(cp=2)),
        ("wide", SINGLE, Policy(tp=2)),
    ],
    4: [
        ("llama", LORA, Policy(dp=2, tp=2, zero=1)),
        ("llama", LORA, Policy(dp=2, tp=2, zero=3)),
        ("llama", LORA, Policy(dp=4, zero=3, shard_group=2)),
        ("llama", LORA, Policy(pp=2, tp=2, recompute="full")),
        ("llama", LORA, Policy(pp=2, tp=2, schedule="zero_bubble_h1")),
        ("wide", SINGLE, Policy(dp=2, tp=2, zero=1)),
    ],
}


def tuned_task(name: str, tuning: tuple[str | None, str | None], policy: Policy, precision: str = "fp32") -> Task:
    task = task_of(MODELS[name], policy, precision)
    return replace(task, job=replace(task.job, tuning=tuning_of(*tuning)))


def engine_of(task: Task) -> TrainingEngine:
    return TrainingEngine(task, torch.device("cpu"), OptimizerSettings())


@cache
def alone(name: str, tuning: tuple[str | None, str | None]) -> Trained:
    return train(tuned_task(name, tuning, Policy(zero=0)), STEPS)


def priced(task: Task) -> Task:
    """Four bits are priced beside 16 alone; they train in fp32 too, which layouts are compared in."""
    four_bits = bool(task.job.tuning.base)
    return replace(task, job=replace(task.job, precision=PRECISIONS["bf16"])) if four_bits else task


def trained_and_recorded(task: Task) -> tuple[Trained, tuple]:
    order = TrainingOrder(task=priced(task), settings=TrainingSettings(steps=1))
    return train(task, STEPS), recorded_step(order, torch.device("cpu"))


@pytest.fixture(scope="module", params=CASES)
def everywhere(request):
    tasks = [tuned_task(*case) for case in CASES[request.param]]
    by_rank = forked(request.param, lambda _: [trained_and_recorded(task) for task in tasks])
    return list(zip(CASES[request.param], tasks, zip(*by_rank, strict=True), strict=True))


def test_every_layout_trains_as_one_process(everywhere) -> None:
    for (name, tuning, policy), _, ranks in everywhere:
        reference, trained = alone(name, tuning), [rank for rank, _ in ranks]
        for rank in trained:
            assert rank.losses == pytest.approx(reference.losses, abs=1e-5), (tuning, policy)
            assert rank.norms == pytest.approx(reference.norms, rel=1e-4), (tuning, policy)
        whole, expected = assembled(trained, "last"), assembled([reference], "last")
        assert whole.keys() == expected.keys()
        for key, gradient in expected.items():
            assert np.abs(whole[key] - gradient).max() <= 1e-5, (policy, key)
            assert np.abs(gradient).max() > 0, key


def test_messages_and_memory_are_predicted(everywhere) -> None:
    for _, task, ranks in everywhere:
        result = verified(priced(task), *ranks[0][1])
        assert [row for row in result.messages if not row.equal] == [], (task.job.tuning, task.policy)
        assert all(abs(row.error) <= 0.02 for row in result.memory), (task.job.tuning, task.policy)


def test_only_adapters_have_gradients_or_moments() -> None:
    reference = alone("llama", LORA)
    assert {p[0].rpartition(".")[2] for p in reference.pieces} == {"lora_a", "lora_b"}
    engine = engine_of(tuned_task("llama", LORA, Policy(zero=0)))
    before = {f.spans[0].held.piece.name: f.tensor.clone() for f in engine.frozen()}
    for step in range(2):
        engine.accumulate(batch_for(engine, step))
        engine.update(RATE)
    assert all(torch.equal(before[f.spans[0].held.piece.name], f.tensor) for f in engine.frozen())
    assert len(before) == 4 * 9 + 3


def test_products_with_adapters_are_those_of_whole_matrices() -> None:
    """Against W + scale * B A by plain autograd, in float64."""
    torch.manual_seed(0)
    one = RankGroup("tp", (0,), 0)
    cut = Cut(RankComm(), one, sp=False)
    x = torch.randn(3, 2, 8, dtype=torch.float64, requires_grad=True)
    a, b = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 8), (6, 2)))
    frozen, other = torch.randn(6, 8, dtype=torch.float64), torch.randn(5, 8, dtype=torch.float64)
    back = torch.randn(8, 6, dtype=torch.float64)
    c, d = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 6), (8, 2)))

    def ours() -> torch.Tensor:
        y, z = entering(x, cut, LinearWeights(frozen, None, Adapter(a, b, 2.0)), LinearWeights(other, None))
        return leaving(y.sin(), cut, LinearWeights(back, None, Adapter(c, d, 0.5))).square().sum() + z.cos().sum()

    def plain() -> torch.Tensor:
        y, z = F.linear(x, frozen + 2.0 * b @ a), F.linear(x, other)
        return F.linear(y.sin(), back + 0.5 * d @ c).square().sum() + z.cos().sum()

    parts = (x, a, b, c, d)
    for mine, theirs in zip(torch.autograd.grad(ours(), parts), torch.autograd.grad(plain(), parts), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "tuning", "policy", "words"),
    [
        ("wide", QLORA, Policy(dp=2, zero=3), "zero: 3"),
        ("wide", QLORA, Policy(tp=2), "nf4-single"),
        ("llama", SINGLE, Policy(tp=2), "rows of"),
        ("llama", ("dora", None), Policy(), "dora"),
        ("moe", LORA, Policy(), "experts"),
        ("mla", LORA, Policy(), "latent"),
        ("llama", (None, "first=2,embeddings"), Policy(pp=2), "freeze"),
        ("llama", LORA, Policy(dp=2, zero=1, offload="optimizer"), "offload"),
    ],
)
def test_others_are_refused(name, tuning, policy, words) -> None:
    with pytest.raises(ValueError, match=words):
        checked(tuned_task(name, tuning, policy))


def test_optimizers_of_whole_matrices_are_refused() -> None:
    task = tuned_task("llama", LORA, Policy())
    with pytest.raises(ValueError, match="muon"):
        checked(replace(task, job=replace(task.job, optimizer=optimizer_of("muon"))))


def test_frozen_weights_come_from_init_when_a_run_goes_on(tmp_path) -> None:
    whole = engine_of(task_of(MODELS["llama"], Policy(zero=0), seed=7))
    export(MODELS["llama"], save(whole, tmp_path / "whole", 1), tmp_path / "init", 16)
    task = tuned_task("llama", LORA, Policy(zero=0))

    def trainer(steps: int) -> Trainer:
        text = tmp_path / "text.txt"
        text.write_text("the quick brown fox jumps over the lazy dog " * 50)
        settings = TrainingSettings(
            steps=steps, data=(str(text),), token_cache=str(tmp_path), init=str(tmp_path / "init"),
            checkpoints=str(tmp_path / "kept"), progress="none",
        )  # fmt: skip
        return Trainer(TrainingOrder(task=replace(task, model=replace(task.model)), settings=settings),
                       torch.device("cpu"))  # fmt: skip

    first = trainer(1)
    assert first.resume() == 0
    first.run()
    first.release()
    again = trainer(2)
    assert again.resume() == 1
    again.release()
    for mine, theirs in zip(again.engine.frozen(), first.engine.frozen(), strict=True):
        assert torch.equal(mine.tensor, theirs.tensor)
    read = SafeFile(tmp_path / "init" / "model.safetensors")
    table = next(f for f in again.engine.frozen() if f.spans[0].held.piece.name == "embedding.token.weight")
    stored = read.block("model.embed_tokens.weight", (0, 0), (128, 32))
    assert torch.equal(table.tensor, stored.flatten())


def test_adapters_are_exported_as_peft_names_them(tmp_path) -> None:
    task = tuned_task("llama", SOME, Policy(zero=0))
    engine = engine_of(task)
    engine.accumulate(batch_for(engine, 0))
    engine.update(RATE)
    out = tmp_path / "out"
    export(task.tuned_model, save(engine, tmp_path / "kept", 1), out, 16, base="theirs")
    assert sorted(p.name for p in out.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    config = json.loads((out / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (2, 4, "theirs")
    assert config["target_modules"] == ["down_proj", "q_proj"]
    entries = SafeFile(out / "adapter_model.safetensors").entries
    assert len(entries) == 4 * 2 * 2
    assert "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight" in entries


def test_frozen_layers_alone_are_not_exported(tmp_path) -> None:
    with pytest.raises(ValueError, match="freeze"):
        check_export(tuned_task("llama", (None, "first=2"), Policy()).tuned_model, tmp_path / "out")


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("shape", [(256, 512), (33, 64)])
def test_four_bits_are_those_of_bitsandbytes(shape, double) -> None:
    theirs = pytest.importorskip("bitsandbytes.functional", reason="bitsandbytes is not installed")
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 0.02
    codes, state = theirs.quantize_4bit(weight, quant_type="nf4", compress_statistics=double)
    mine = in_four_bits(weight, double=double)
    assert torch.equal(codes.view(-1), mine.codes)
    assert scale_levels() == pytest.approx(theirs.create_dynamic_map().tolist(), rel=1e-6)
    if not double:
        assert torch.equal(theirs.dequantize_4bit(codes, state), mine.dense(torch.float32))
        return
    # their kernel for the processor rounds a few scales to the neighbour of the nearest
    apart = (state.absmax.view(-1).int() - mine.scales.int()).abs()
    assert apart.max() <= 1
    assert apart.float().mean() < 0.01


@pytest.mark.parametrize("numel", [1, 63, 64, 65, 300])
def test_four_bits_of_any_length(numel) -> None:
    weight = torch.linspace(-1.0, 1.0, numel)
    for double in (False, True):
        made = in_four_bits(weight, double=double)
        assert made.dense(torch.float32).shape == weight.shape
        assert (made.dense(torch.float32) - weight).abs().max() < 0.2
        assert len(made.codes) == -(-numel // 2)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # their own deprecations
@pytest.mark.parametrize("tuning", [LORA, SINGLE, QLORA])
def test_peft_computes_the_same(tuning, tmp_path) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    four = {}
    if tuning != LORA:
        pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
        four = {"quantization_config": transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=tuning == QLORA,
            bnb_4bit_compute_dtype=torch.float32, llm_int8_skip_modules=["lm_head"],
        )}  # fmt: skip
    whole = engine_of(task_of(MODELS["wide"], Policy(zero=0)))
    export(MODELS["wide"], save(whole, tmp_path / "whole", 1), tmp_path / "base", 16)
    task = tuned_task("wide", tuning, Policy(zero=0))
    engine = TrainingEngine(task, torch.device("cpu"), OptimizerSettings(name="sgd", weight_decay=0.0))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32, **four)
    export(task.tuned_model, save(engine, tmp_path / "before", 1), tmp_path / "start", 16)
    # without it bitsandbytes takes its kernel for inference, in 16 bits, for the first layer
    theirs.enable_input_require_grads()
    theirs = peft.PeftModel.from_pretrained(theirs, tmp_path / "start", is_trainable=True)
    sgd = torch.optim.SGD([p for p in theirs.parameters() if p.requires_grad], lr=1.0)
    for step in range(STEPS):
        loss = float(engine.accumulate(batch_for(engine, step)))
        engine.update(1.0)
        parts = [batch_for(engine, step)(i) for i in range(task.micro_batches)]
        x, y = (torch.cat([p[i] for p in parts], dim=1).t() for i in (0, 1))
        logits = theirs(x).logits
        mean = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        assert loss == pytest.approx(float(mean.detach()), abs=1e-5)
        sgd.zero_grad()
        mean.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        sgd.step()
