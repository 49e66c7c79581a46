"""Weights go out in Hugging Face's layout and come back into any layout, bit for bit; garbled files are refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

pytestmark = pytest.mark.xdist_group("weights")  # they share what a fixture of theirs computes

torch = pytest.importorskip("torch")
from training import GPT, LLAMA, MOE, RATE, assembled, batch_for, task_of  # noqa: E402

from shardwise.run.runtime.checkpoints.save import save  # noqa: E402
from shardwise.run.runtime.train.engine import TrainingEngine  # noqa: E402
from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.runtime.train.optimizer import OptimizerSettings  # noqa: E402
from shardwise.run.runtime.weights.configuration import configuration  # noqa: E402
from shardwise.run.runtime.weights.export import export  # noqa: E402
from shardwise.run.runtime.weights.folder import WeightsFolder  # noqa: E402
from shardwise.run.runtime.weights.load import load_weights, opened  # noqa: E402
from shardwise.run.runtime.weights.safetensors import SafeFile, write  # noqa: E402
from shardwise.run.runtime.weights.stored import FAMILIES  # noqa: E402
from shardwise.spec.arch import model_from_config, model_of  # noqa: E402
from shardwise.spec.model import Model  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

MIXTRAL = replace(MOE, family="mixtral", kinds=tuple(
    replace(kind, experts=replace(kind.experts, shared_width=0)) for kind in MOE.kinds
))  # fmt: skip
TIED = replace(LLAMA, tied=True)
MODELS = {"llama": LLAMA, "tied": TIED, "gpt2": GPT, "mixtral": MIXTRAL}
LAYOUTS = {
    "llama": [Policy(tp=2), Policy(dp=2, zero=1), Policy(dp=2, zero=3), Policy(pp=2)],
    "tied": [Policy(pp=2), Policy(dp=2, zero=3)],
    "gpt2": [Policy(tp=2), Policy(dp=2, zero=2), Policy(dp=2, zero=3)],
    "mixtral": [Policy(dp=2, ep=2), Policy(tp=2), Policy(dp=2, zero=3)],
}


def engine_of(model: Model, policy: Policy, seed: int = 0) -> TrainingEngine:
    return TrainingEngine(task_of(model, policy, seed=seed), torch.device("cpu"), OptimizerSettings())


def trained_and_exported(model: Model, folder: Path, **more) -> tuple[TrainingEngine, Path]:
    engine = engine_of(model, Policy(zero=0))
    engine.accumulate(batch_for(engine, 0))
    engine.update(RATE)
    export(model, save(engine, folder / "checkpoint", 1), folder / "out", 16, **more)
    return engine, folder / "out"


class Pieces:
    """Parameters in the place of gradients, for the helper that puts pieces together."""

    def __init__(self, engine: TrainingEngine) -> None:
        self.pieces = []
        for local in engine.locals():
            for span in local.spans:
                piece = span.held.piece
                values = local.tensor[span.at : span.at + span.length].clone().numpy()
                self.pieces.append((piece.name, piece.shape, piece.offsets, piece.local_shape, span.first, values))


@pytest.fixture(scope="module", params=MODELS)
def exported(request, tmp_path_factory):
    engine, out = trained_and_exported(MODELS[request.param], tmp_path_factory.mktemp(request.param))
    return request.param, assembled([Pieces(engine)]), out


def test_every_layout_reads_its_part(exported) -> None:
    name, expected, out = exported

    def read(_: int):
        found = []
        for policy in LAYOUTS[name]:
            engine = engine_of(MODELS[name], policy, seed=1)
            load_weights(engine, out)
            found.append(Pieces(engine))
        return found

    by_rank = forked(2, read)
    for ranks in zip(*by_rank, strict=True):
        whole = assembled(ranks)
        assert whole.keys() == expected.keys()
        assert all(np.array_equal(whole[key], value) for key, value in expected.items())


def test_config_is_the_model(exported) -> None:
    name, _, out = exported
    read = model_of(str(out))
    assert read.kinds == MODELS[name].kinds
    for field in ("hidden", "vocab", "pattern", "tied", "norm", "positions", "rope_theta", "norm_epsilon"):
        assert getattr(read, field) == getattr(MODELS[name], field), field


def test_names_are_hugging_faces(tmp_path) -> None:
    _, out = trained_and_exported(LLAMA, tmp_path)
    names = SafeFile(out / "model.safetensors").entries
    for role in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "input_layernorm"):
        assert f"model.layers.3.{role}.weight" in names
    assert names["model.layers.0.self_attn.k_proj.weight"].shape == (16, 32)
    assert {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"} <= names.keys()


def test_several_files_with_an_index(tmp_path) -> None:
    engine, out = trained_and_exported(LLAMA, tmp_path, file_bytes=40_000)
    index = json.loads((out / "model.safetensors.index.json").read_text())
    files = set(index["weight_map"].values())
    assert len(files) > 3
    assert index["metadata"]["total_size"] == sum(p.numel() for p in engine.chunks[0].parameters()) * 4
    again = engine_of(LLAMA, Policy(zero=0), seed=1)
    load_weights(again, out)
    assert all(torch.equal(a, b) for a, b in zip(again.chunks[0].parameters(), engine.chunks[0].parameters(),
                                                 strict=True))  # fmt: skip


def test_an_export_is_whole_or_not_there(tmp_path, monkeypatch) -> None:
    engine = engine_of(LLAMA, Policy(zero=0))
    engine.accumulate(batch_for(engine, 0))
    engine.update(RATE)
    saved = save(engine, tmp_path / "checkpoint", 1)
    monkeypatch.setattr("shardwise.run.runtime.weights.export.configuration", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(LLAMA, saved, tmp_path / "out", 16)
    assert not (tmp_path / "out").exists()
    monkeypatch.undo()
    export(LLAMA, saved, tmp_path / "out", 16)
    with pytest.raises(ValueError, match=r"export: .*not empty"):
        export(LLAMA, saved, tmp_path / "out", 16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_blocks(dtype, tmp_path) -> None:
    whole = torch.randn(6, 5, 4).to(dtype)
    write(tmp_path / "x.safetensors", {"a": (torch.uint8, (3,)), "b": (dtype, (6, 5, 4)), "c": (dtype, ())},
          {"a": torch.arange(3, dtype=torch.uint8), "b": whole, "c": whole[0, 0, 0]}.__getitem__)  # fmt: skip
    file = SafeFile(tmp_path / "x.safetensors")
    assert torch.equal(file.block("b", (1, 0, 2), (4, 5, 2)), whole[1:5, :, 2:])
    assert torch.equal(file.block("c", (), ()), whole[0, 0, 0])
    assert file.block("b", (0, 0, 0), (0, 5, 4)).shape == (0, 5, 4)


def test_the_package_reads_what_is_written(tmp_path) -> None:
    theirs = pytest.importorskip("safetensors.torch", reason="the safetensors package is not installed")
    _, out = trained_and_exported(LLAMA, tmp_path)
    found = theirs.load_file(out / "model.safetensors")
    ours = WeightsFolder(out)
    for name, value in found.items():
        assert torch.equal(ours.block(name, [0] * value.ndim, value.shape), value)


def raw(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\1\2", raw(b"{", length=10**12), raw(b"{}", length=100), raw(b"[]"), raw(b"not json"), raw({"a": 3}),
        raw({"a": ONE}), raw({"a": ONE}, bytes(9)), raw({"a": ONE, "b": ONE}, bytes(8)),
        raw({"a": ONE | {"dtype": "F31"}}, bytes(8)), raw({"a": ONE | {"shape": [3]}}, bytes(8)),
        raw({"a": ONE | {"shape": [-1, -2]}}, bytes(8)), raw({"a": ONE | {"data_offsets": [4, 12]}}, bytes(12)),
        raw({"a": ONE | {"shape": [2**62, 4]}}, bytes(8)), raw({"a": ONE | {"data_offsets": [8, 0]}}, bytes(8)),
        raw(b"[" * 100_000),
    ],
)  # fmt: skip
def test_garbled_files_are_refused(content: bytes, tmp_path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"init: .*; write"):
        SafeFile(path)


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", ".."])
def test_an_index_stays_in_its_folder(name: str, tmp_path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ValueError, match="not in its folder"):
        WeightsFolder(tmp_path)


def test_other_models_weights_are_refused(tmp_path) -> None:
    _, out = trained_and_exported(LLAMA, tmp_path)
    wide = replace(LLAMA, vocab=256)
    for model, word in (
        (wide, r"embed_tokens.weight is of shape \[128, 32\]"),
        (replace(LLAMA, pattern=(0,) * 5), "lacks model.layers.4"),
        (replace(LLAMA, rope_theta=5e5), "rope_theta is 10000 there and 500000"),
        (replace(LLAMA, norm_epsilon=1e-6), "epsilon"),
        (model_of("bloom-176b"), "bloom"),
    ):
        with pytest.raises(ValueError, match=word):
            opened(model, out)
    config = json.loads((out / "config.json").read_text())
    for more, word in (({"hidden_act": "relu"}, "relu"), ({"rope_scaling": {"rope_type": "llama3"}}, "llama3")):
        (out / "config.json").write_text(json.dumps(config | more))
        with pytest.raises(ValueError, match=word):
            opened(LLAMA, out)
    for wrong in (tmp_path / "nowhere", tmp_path / "checkpoint"):
        with pytest.raises(ValueError, match="init: "):
            opened(LLAMA, wrong)


def logits_of(engine: TrainingEngine, tokens) -> torch.Tensor:
    """[batch, sequence, vocabulary] of one process."""
    (chunk,), model = engine.chunks, engine.task.model
    from shardwise.run.runtime.net.kernels import norm

    with torch.no_grad():
        x = chunk.embedding(tokens.t())
        for layer in chunk.layers.values():
            x = layer(x)
        x = norm(x, *chunk.head.pair("final_norm"), model)
        table = chunk.embedding.weight("token") if model.tied else chunk.head.weight("head")
        return (x @ table.t()).transpose(0, 1)


SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 128, "head_dim": 16, "max_position_embeddings": 32,
}  # fmt: skip
OTHERS = {name: model_from_config(SMALL | {"model_type": name}, name) for name in ("mistral", "qwen2", "qwen3")}


@pytest.mark.parametrize("name", OTHERS)
def test_configs_of_the_others(name: str) -> None:
    assert model_from_config(configuration(OTHERS[name], 16), name) == OTHERS[name]


def test_every_family_is_tried() -> None:
    assert {model.family for model in (MODELS | OTHERS).values()} == set(FAMILIES)


@pytest.mark.parametrize("name", MODELS | OTHERS)
def test_transformers_computes_the_same(name: str, tmp_path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model = replace((MODELS | OTHERS)[name], rope_theta=500.0, norm_epsilon=1e-3)
    engine, out = trained_and_exported(model, tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager")
    tokens = torch.randint(0, model.vocab, (2, 16), generator=torch.manual_seed(0))
    with torch.no_grad():
        expected = theirs(tokens).logits
    assert expected.abs().max() > 0.1
    assert (logits_of(engine, tokens) - expected).abs().max() <= 1e-5
    theirs.save_pretrained(tmp_path / "again")
    again = engine_of(model, Policy(zero=0), seed=1)
    load_weights(again, tmp_path / "again")
    assert torch.equal(logits_of(again, tokens), logits_of(engine, tokens))
