"""The server as a browser meets it: the same values as the command line, errors with their field, strangers refused."""

import json
import shlex
import sys
from base64 import b64encode, urlsafe_b64encode
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the page needs starlette: pip install 'shardwise[page]'")
from starlette.testclient import TestClient

from schema_check import faults
from shardwise.show.cli import _progress, main
from shardwise.show.cli._page_server import names_of
from shardwise.show.cli._progress import heard_by
from shardwise.show.cli.schema import published_schema
from shardwise.show.cli.serve import worker_command
from shardwise.show.page.app import page_app
from shardwise.show.page.files import PARTS
from shardwise.show.page.guard import MOST_BYTES
from shardwise.show.page.views import asked_by

FAKE = [sys.executable, str(Path(__file__).with_name("fake_worker.py"))]
CONFIG = (Path(__file__).resolve().parents[2] / "docs" / "tiny-llama.json").read_text()
SMALL = {"model": "llama-3-8b", "on": "8xh100"}
ASKED = {
    "plan": {**SMALL, "fix": "tp=8"}, "estimate": {**SMALL, "zero": "3"},
    "simulate": {**SMALL, "pp": "4", "global-batch": "32"},
    "export": {**SMALL, "tp": "8", "to": "megatron"}, "operate": {**SMALL, "tokens": "1B", "step": "1 s", "runs": "10"},
    "fabric": {"model": "gpt2", "on": "8xh100"}, "sync-cost": {"model": "gpt2", "strategy": "dsgd"},
    "sync-simulate": {"steps": "50", "workers": "8"}, "card": {"card": "pipeline-bubble"}, "clusters": {},
    "posttrain": {"model": "qwen3-0.6b", "on": "8xh100", "prompts": "16", "program": "verl", "layout": "colocated"},
}  # fmt: skip
"""small states, one for each question of the views"""


@pytest.fixture(scope="module")
def client():
    with TestClient(page_app(worker_command(), ["testserver"], seconds=120)) as made:
        yield made


def sent(question):
    return {
        "verb": question.verb, "first": list(question.first), "options": dict(question.options),
        "files": dict(question.files),
    }  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_values_are_those_of_the_command_line(name, client, capsys):
    question = asked_by(name, ASKED[name])
    got = client.post("/api/ask", json=sent(question))
    assert got.status_code == 200, got.text
    words = shlex.split(got.json()["command"])
    assert words[0] == "shardwise"
    assert main([*words[1:], "--json"]) == got.json()["code"]
    assert got.json()["answer"] == json.loads(capsys.readouterr().out)


def test_a_policy_that_cannot_run_is_an_answer(client):
    got = client.post("/api/ask", json=sent(asked_by("estimate", {**SMALL, "tp": "3"}))).json()
    assert got["code"] == 1
    assert got["answer"]["legal"] is False
    assert got["answer"]["cure"].startswith("shardwise estimate")


def test_what_is_wrong_is_told_with_its_field(client):
    got = client.post("/api/ask", json=sent(asked_by("estimate", {**SMALL, "tp": "0"})))
    assert got.status_code == 422
    assert got.json() == {
        "errors": [{"field": "tp", "value": "0", "message": "tp: 0 is out of range; write a whole number of 1 or more"}]
    }


def test_a_dropped_configuration_is_read_like_a_file(client, capsys, tmp_path, monkeypatch):
    question = {
        "verb": "estimate",
        "first": ["mine.json"],
        "options": {"on": "8xh100", "seq": "64"},
        "files": {"mine.json": CONFIG},
    }
    got = client.post("/api/ask", json=question).json()
    (tmp_path / "mine.json").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    assert main([*shlex.split(got["command"])[1:], "--json"]) == got["code"]
    assert got["answer"] == json.loads(capsys.readouterr().out)
    gone = client.post("/api/ask", json={**question, "files": {}})
    assert gone.json()["errors"][0]["field"] == "model", "it is forgotten with the question"
    wrong = client.post("/api/ask", json={**question, "files": {"mine.json": "[1]"}})
    assert "not an object" in wrong.json()["errors"][0]["message"]


def test_a_long_answer_is_streamed(client):
    question = sent(asked_by("plan", ASKED["plan"] | {"seq": "4096"}))
    streamed = client.post("/api/ask", json=question, headers={"accept": "text/event-stream"})
    events = [event.split("\n", 1) for event in streamed.text.strip().split("\n\n")]
    assert events[0][0] == "event: progress"
    assert {"what", "done", "of"} == set(json.loads(events[0][1].removeprefix("data: ")))
    assert events[-1][0] == "event: answer"
    plain = client.post("/api/ask", json=question)
    assert json.loads(events[-1][1].removeprefix("data: ")) == plain.json()
    bad = client.post("/api/ask", json={**question, "first": ["llama-9"]}, headers={"accept": "text/event-stream"})
    assert json.loads(bad.text.split("data: ")[-1])["errors"][0]["field"] == "model"


def test_what_is_sent_keeps_to_the_published_schema(client):
    whole = published_schema("serve")

    def wrong(kind, data):
        return list(faults(data, whole["$defs"][kind], whole))

    question = sent(asked_by("plan", ASKED["plan"] | {"seq": "2048"}))
    assert wrong("SentForm", question) == []
    assert wrong("Reply", client.post("/api/ask", json={"verb": "catalog"}).json()) == []
    assert wrong("WrongRequest", client.post("/api/ask", json={"verb": "none"}).json()) == []
    events = {"progress": "Progress", "answer": "Reply", "trouble": "StreamedProblem"}
    seen = set()
    for each in (question, {**question, "first": ["llama-9"]}):
        streamed = client.post("/api/ask", json=each, headers={"accept": "text/event-stream"})
        for event in streamed.text.strip().split("\n\n"):
            name, data = (line.partition(": ")[2] for line in event.split("\n", 1))
            if name in events:
                assert wrong(events[name], json.loads(data)) == [], name
                seen.add(name)
    assert seen == set(events)
    assert wrong("Reply", {"command": "x", "code": "0"}), "the check can fail"


def test_what_is_found_so_far_is_streamed_before_the_answer():
    with TestClient(page_app(FAKE, ["testserver"], seconds=30)) as client:
        got = client.post("/api/ask", json={"verb": "plan", "first": ["gpt2"]}, headers={"accept": "text/event-stream"})
    events = [event.split("\n", 1) for event in got.text.strip().split("\n\n")]
    assert [name for name, _ in events] == ["event: progress", "event: found", "event: answer"]
    assert json.loads(events[1][1].removeprefix("data: ")) == [{"step_s": 1.5}]


def test_a_search_shows_the_best_it_has(monkeypatch):
    monkeypatch.setattr(_progress, "OFTEN_S", 0.0)
    shown = []
    with heard_by(lambda *_: None, shown.append):
        assert main(["plan", "llama-3-8b", "--on", "8xh100", "--fix", "tp=8", "--json"]) == 0
    steps = [[policy.step_s for policy in each["best"]] for each in shown if each["best"]]
    assert steps
    assert all(each == sorted(each) for each in steps)
    assert all(later[0] <= earlier[0] for earlier, later in pairwise(steps))


LAUNCH = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 8 --micro-batch-size 1 \\
  --global-batch-size 64 --seq-length 4096 --bf16
"""


def test_a_dropped_launch_file_is_checked_like_one_on_the_disk(client, capsys, tmp_path, monkeypatch):
    state = SMALL | {"launch": "mine.sh", "launch-text": urlsafe_b64encode(LAUNCH.encode()).decode().rstrip("=")}
    question = asked_by("launch-of", state)
    got = client.post("/api/ask", json=sent(question)).json()
    assert got["answer"]["policy"]["tp"] == 8
    assert got["answer"]["judged"]
    (tmp_path / "mine.sh").write_text(LAUNCH)
    monkeypatch.chdir(tmp_path)
    assert main([*shlex.split(got["command"])[1:], "--json"]) == got["code"]
    assert got["answer"] == json.loads(capsys.readouterr().out)


def test_a_dropped_trace_is_read_like_one_on_the_disk(client, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--on", "8xh100", "--pp", "4", "--global-batch", "32"]
    assert main(["simulate", "llama-3-8b", *words, "--trace", "mine.json.gz", "--json"]) == 0
    step = json.loads(capsys.readouterr().out)["step_s"]
    packed = b64encode((tmp_path / "mine.json.gz").read_bytes()).decode()
    state = SMALL | {"pp": "4", "global-batch": "32", "trace": "mine.json.gz", "packed": packed}
    got = client.post("/api/ask", json=sent(asked_by("trace", state))).json()
    assert got["answer"]["spans"]["step_s"] == pytest.approx(step, rel=1e-3)
    assert main([*shlex.split(got["command"])[1:], "--json"]) == got["code"]
    assert got["answer"] == json.loads(capsys.readouterr().out)
    cut = client.post("/api/ask", json=sent(asked_by("trace", state)) | {"files": {"mine.json.gz": packed[:-1]}})
    assert cut.json()["errors"][0]["field"] == "trace"


@pytest.mark.parametrize("verb", ["check", "why"])
def test_verbs_that_read_files_read_only_what_was_sent(verb, client):
    got = client.post("/api/ask", json={"verb": verb, "first": ["questions.json"]})
    assert got.status_code == 422
    assert "did not come along" in got.json()["errors"][0]["message"]


def test_what_takes_too_long_is_told():
    asleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with TestClient(page_app(asleep, ["testserver"], seconds=0.2)) as client:
        got = client.post("/api/ask", json={"verb": "catalog"})
    assert got.status_code == 504
    assert got.json()["errors"][0]["message"].startswith("catalog: no answer in 0.2 s")


@pytest.mark.parametrize(
    "path", ["/", *(f"/{name}" for name in PARTS if name != "index.html"), "/page.js", "/theme.css", "/lessons.json"]
)
def test_every_file_has_the_headers(path, client):
    got = client.get(path)
    assert got.status_code == 200
    policy = got.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert got.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in got.headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": ""}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-length": str(MOST_BYTES + 1)}, 413),
        ({"content-length": "x"}, 413),
        ({"content-type": "text/plain"}, 422),
        ({"origin": "http://testserver"}, 200),
    ],
)
def test_only_the_page_itself_may_ask(headers, status, client):
    got = client.post(
        "/api/ask", content=b'{"verb": "catalog"}', headers={"content-type": "application/json", **headers}
    )
    assert got.status_code == status
    assert "content-security-policy" in got.headers


def test_a_request_that_is_longer_than_it_says_is_cut_off(client):
    def chunks():
        for _ in range(MOST_BYTES // 2**20 + 2):
            yield b" " * 2**20

    got = client.post("/api/ask", content=chunks(), headers={"content-type": "application/json"})
    assert got.status_code == 413


@pytest.mark.parametrize(
    "path", ["/../pyproject.toml", "/%2e%2e/app.py", "/static/main.js", "/main.js", "/api/ask", "/questions.py"]
)
def test_nothing_else_is_served(path, client):
    assert client.get(path).status_code in (404, 405)


def test_with_a_token_only_who_has_it_may_ask():
    with TestClient(page_app(FAKE, ["testserver"], seconds=5, token="a-long-secret")) as client:
        assert client.get("/").status_code == 401
        assert client.post("/api/ask", json={"verb": "catalog"}).status_code == 401
        assert client.get("/?token=another").status_code == 401
        assert client.get("/", headers={"authorization": "Bearer a-long-secret"}).status_code == 200
        home = client.get("/?token=a-long-secret", follow_redirects=False)
        assert (home.status_code, home.headers["location"]) == (303, "/")
        assert "HttpOnly" in home.headers["set-cookie"]
        assert "SameSite=strict" in home.headers["set-cookie"]
        client.cookies.set("shardwise_token", "a-long-secret")
        assert client.get("/").status_code == 200


def test_a_run_is_watched_only_if_the_server_was_told_so(client):
    got = client.post("/api/ask", json=sent(asked_by("watch", {})))
    assert got.status_code == 422
    assert "serve --watch" in got.json()["errors"][0]["message"]
    with TestClient(page_app(FAKE, ["testserver"], seconds=30, watched="/runs/mine")) as other:
        for _ in range(2):
            found = other.post("/api/ask", json=sent(asked_by("watch", {}))).json()
            assert found["answer"]["words"] == ["watch", "/runs/mine", "--once", "--json"]
            assert "/runs" not in found["command"]


def test_names_of_a_server():
    assert "127.0.0.1:8470" in names_of("127.0.0.1", 8470)
    assert "evil.example:8470" not in names_of("127.0.0.1", 8470)
    assert "[::1]:8470" in names_of("::1", 8470)
