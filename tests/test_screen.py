"""Words of a stranger's file on a screen: secrets by name, shape and looks; control characters; length."""

import base64
import io
import json
import random
import string

import pytest

from shardwise.fields import short
from shardwise.screen import HIDDEN, LONGEST, ScreenStream, from_file, on_screen, printable, without_secrets

DRAW = random.Random(49)
LETTERS = string.ascii_letters + string.digits


def drawn(length: int, among: str = LETTERS) -> str:
    return "".join(DRAW.choice(among) for _ in range(length))


def packed(size: int) -> str:
    return base64.b64encode(DRAW.randbytes(size)).decode()


HEX = drawn(40, "0123456789abcdef")
WORD = drawn(10, string.ascii_lowercase)
NAMED = {
    "--wandb-key {}": WORD, "--wandb_key={}": HEX, "--comet-key {}": drawn(25), "--key {}": WORD, "--pw {}": WORD,
    '--passphrase "{}"': f"two words {WORD}", '--auth "{}"': f"Bearer {drawn(24)}", "--hub_token {}": WORD,
    "export WANDB_API_KEY={}": HEX, "wandb: {{key: {}, project: x}}": WORD, "wandb:\n  key: {}": WORD,
    "    password: {}": WORD, "mlflow.tracking_password={}": WORD, "+trainer.logger.wandb.api_key={}": HEX,
    "NEPTUNE_API_TOKEN={}": packed(90), "export AWS_SECRET_ACCESS_KEY={}": packed(30), '{{"auth_token": "{}"}}': WORD,
    "sshpass -p {} ssh host": WORD, "docker run --env WANDB_API_KEY={}": WORD,
    'command: "python train.py --wandb-key {} --tp 2"': WORD, "docker login -u me -p {} registry": WORD,
    "X-Api-Key: {}": drawn(32), "PGPASSWORD={} psql": WORD, "--password {}": "73191234", "--accesskey {}": WORD,
    "Cookie: session={}": WORD, "--signing-phrase '{}'": f"open {WORD}", "smtp_pass: {}": WORD, "api_keys: {}": WORD,
    "{{'name': 'HF_TOKEN', 'value': '{}'}}": WORD, "- name: WANDB_API_KEY\n  value: {}": WORD, "--creds me:{}": WORD,
    "curl -u me:{} https://x": WORD, "mysql -u me -p{} db": WORD, "Server=x;Password={};": WORD,
}  # fmt: skip
SHAPED = {
    "curl -H 'Authorization: Bearer {}'": drawn(32), 'curl -H "Authorization: Basic {}"': packed(15),
    "curl https://hooks.slack.com/services/{}": f"T{drawn(8)}/B{drawn(8)}/{drawn(24)}",
    "hook 'https://hooks.slack.com/triggers/{}'": f"T{drawn(8)}/{drawn(11, string.digits)}/{HEX[:32]}",
    "https://discord.com/api/webhooks/{}": f"{drawn(19, string.digits)}/{drawn(68)}",
    "https://acme.webhook.office.com/webhookb2/{}": f"{HEX[:8]}@{HEX[8:]}", "git clone https://{}@x.org/a": drawn(12),
    "mysql://root:{}@db/optuna": WORD, "https://x/c?sv=2&sig={}": drawn(43), "wandb login {}": HEX,
    "clone ghp_{}": drawn(36), "see github_pat_{}": drawn(60), "glpat-{}": drawn(20), "hf_{}": drawn(34),
    "is sk-proj-{}": drawn(47) + "7", "AKIA{}": drawn(16, string.ascii_uppercase), "AIza{}": drawn(35),
    "xoxb-{}": drawn(40), "wandb_v1_{}": drawn(70), "eyJ{}": f"{drawn(30)}.{drawn(50)}.{drawn(40)}",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END": packed(200), "it says {} here": drawn(44) + "aB3dE5",
}  # fmt: skip


@pytest.mark.parametrize("form", [*NAMED, *SHAPED])
def test_secrets_are_not_shown(form):
    secret = (NAMED | SHAPED)[form]
    found = without_secrets(form.format(secret))
    assert secret[-8:] not in found
    assert HIDDEN in found
    assert HIDDEN + " shown)" not in found


@pytest.mark.parametrize("form", SHAPED)
def test_shapes_need_no_name_and_leave_json_whole(form):
    text = form.format(SHAPED[form])
    for around in ("{}", 'say "{}" \\', "{}\"'"):
        found = on_screen(json.dumps({"a": [around.format(text)], "b": 1}, indent=1))
        assert SHAPED[form][-8:] not in found
        assert json.loads(found)["b"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "--tokenizer meta-llama/Llama-3.1-70B-Instruct --tokens 300B --key-value-heads 8 --kv-channels 128",
        "num_query_groups: 8", "pad_token: <|endoftext|>", "prompt_key=question", "special_token: '<eos>'",
        "eos_token_id: 128001", "insert_media_token: left", "use_auth_token: true", "hf_use_auth_token: ${HF_AUTH}",
        "export HF_TOKEN=$HF_TOKEN",
        "--container-mounts=$PWD:/nccl", "password_file: /run/secrets/wandb", "secretName: hf-secret",
        "- key: nvidia.com/gpu",
        "image: nvcr.io/nvidia/nemo@sha256:" + drawn(64, "0123456789abcdef"), f"git checkout {HEX}", f"revision: {HEX}",
        f"commit={HEX}", "fsdp_transformer_layer_cls_to_wrap: Qwen3VLMoeTextDecoderLayer", "AmazonEC2FullAccess",
        "/data/project_465002309/embed_datasets/risk_dataset_1664_2048_v2/part-00017-of-00512.parquet",
        "/code/tr13f-6B3-ml-t0/Megatron-DeepSpeed/data/xp3capmix_train.txt", "max_position: 131072",
        "paxml.tasks.lm.params.lm_cloud.LmCloudSpmd2BLimitSteps", "https://github.com/NVIDIA/NeMo/pull/6181/files",
        "tp8pp4dp16mbs2gbs512seq4096zero1recomputefull", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
        "name: tokens, value: 300B", "train_tokens: 300B", "--pin-memory 1", "forward_pass: compiled",
        "name: llama, value: 8B",
        "Monkey: bananas", "keyboard: us", "author: someone", "basic block of a transformer",
    ],
)  # fmt: skip
def test_innocent_words_stay(text):
    assert without_secrets(text) == text


@pytest.mark.parametrize("code", [*range(9), 11, 12, 13, *range(14, 32), *range(127, 160), 0x202E, 0x2066, 0x200F])
def test_no_terminal_obeys_what_is_printed(code):
    found = printable(f"a{chr(code)}[2Jb\tc\nd")
    assert chr(code) not in found
    assert f"\\u{code:04x}" in found
    assert "b\tc\nd" in found


def test_lines_of_files_are_cut():
    assert len(from_file("x" * 5000)) == LONGEST
    assert HIDDEN in short(f"https://me:{WORD}@host")


def test_streams_let_colours_through_on_terminals_only(monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    for terminal in (True, False):
        file = io.StringIO()
        file.isatty = lambda shown=terminal: shown  # type: ignore[method-assign]
        ScreenStream(file).write("\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J")
        assert ("\x1b[31m" in file.getvalue()) == terminal
        assert "\x1b]" not in file.getvalue()
        assert "\x9b" not in file.getvalue()


@pytest.mark.parametrize(
    "piece",
    ["a", "a/", "sk-", "-----BEGIN PRIVATE KEY-----", "docker login ", "://", "?token", "A1b", "--key ", "eyJ-", 'a="',
     " ", "a:", "key=", "key=${", "--key <", "authorization: ", "{", "<|"],
)  # fmt: skip
def test_long_texts_take_no_longer_than_their_length(piece):
    """A form that is looked for again at every place would take hours."""
    assert without_secrets(piece * (400_000 // len(piece))) is not None
