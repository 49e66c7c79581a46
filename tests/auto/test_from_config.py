"""A config.json in place of a script: built by transformers, without weights where it is large."""

import json
import sys
from types import SimpleNamespace

import pytest
from small_models import NormedBlock, Tiny

from shardwise.run.auto.from_config import config_source
from shardwise.show.cli import main

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 48, "auto_map": {"AutoConfig": "evil.Config"},
}  # fmt: skip


class Named(Tiny):
    def forward(self, input_ids):
        return SimpleNamespace(logits=super().forward(input_ids))


class Stub:
    """Stands for transformers where that is not installed: what is asked of it is kept."""

    __version__ = "0"

    def __init__(self):
        self.asked = {}
        self.CONFIG_MAPPING = {"llama": SimpleNamespace(from_dict=dict)}
        self.AutoModelForCausalLM = SimpleNamespace(from_config=self.from_config)

    def from_config(self, config, **flags):
        self.asked = {**config, **flags}
        return Named(NormedBlock, tied=False, blocks=config["num_hidden_layers"])


@pytest.fixture
def stub(monkeypatch):
    library = Stub()
    monkeypatch.setitem(sys.modules, "transformers", library)
    return library


@pytest.fixture
def config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return str(tmp_path / "config.json")


def test_a_configuration_is_split_like_a_script(stub, config, capsys):
    assert (
        main(["auto", config, "--on", "2xh100", "--fix", "tp=2", "--seq", "16", "--global-batch", "4", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["holds"]
    assert found["split"]["tp"] == 2
    assert stub.asked["trust_remote_code"] is False
    assert stub.asked["use_cache"] is False
    assert "auto_map" not in stub.asked


def test_sizes_of_the_batch_and_of_a_narrow_copy(stub):
    source = config_source({**CONFIG, "hidden_size": 4096}, "it", 4, 512)
    assert source.outline().batches[0].shape == (4, 512)
    assert all(p.is_meta for p in source.outline().model.parameters())
    with source.narrow(16) as narrow:
        assert narrow.make(1, "float64").batches[0].shape == (4, 32)
        assert (stub.asked["hidden_size"], stub.asked["num_attention_heads"]) == (256, 8)


def test_without_transformers_it_is_one_line(monkeypatch, config, capsys):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["auto", config, "--on", "2xh100"]) == 2
    err = capsys.readouterr().err.strip()
    assert "transformers, which builds it, is not installed" in err
    assert "\n" not in err


@pytest.mark.usefixtures("stub")
def test_what_is_refused(config, tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text("def build(): ...\n")
    for words, told in (
        ([str(script), "--seq", "16"], "leave --seq out"),
        (["no-such-model"], "is unknown"),
        ([config, "--seq", "no"], "seq"),
    ):
        assert main(["auto", *words, "--on", "2xh100"]) == 2
        assert told in capsys.readouterr().err
    with pytest.raises(ValueError, match="knows no model_type 'gpt9'"):
        config_source({"model_type": "gpt9"}, "it", 1, 1)


def test_transformers_itself(config, capsys):
    pytest.importorskip("transformers", reason="transformers is not installed")
    assert (
        main(["auto", config, "--on", "2xh100", "--fix", "tp=2", "--seq", "16", "--global-batch", "4", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["holds"]
    assert found["cuts"][0]["share"] > 0.99
