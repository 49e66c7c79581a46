"""What the views ask, from the table the browser reads too: the state of a link becomes the same question here."""

from base64 import urlsafe_b64decode
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from shardwise.plugins.optimizers import optimizer_names
from shardwise.show.page.questions import STATIC, PageRequest, Refused, SentForm, Value, checked


@cache
def table() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode((STATIC / "questions.json").read_bytes())
    found["fields"]["optimizer"]["choices"] = list(optimizer_names())
    return found


def asked_by(name: str, state: Mapping[str, str]) -> PageRequest:
    """The question NAME of the table for a state; fields that are empty, or as usual, are left out."""
    ask, fields, usual = table()["asks"][name], table()["fields"], table()["defaults"]
    whole = usual | dict(state)
    first = [_filled(word, whole) for word in ask["first"]]
    options: dict[str, Value] = {}
    for entry in ask["state"]:
        name, _, other = entry.partition("=")
        field = other or name
        value = str(whole.get(field, ""))
        if not value or (value == usual.get(field) and field not in table()["always"]):
            continue
        options[name] = True if fields.get(field, {}).get("kind") == "switch" else value
    files = {whole["model"]: _unpacked(whole["config"])} if whole.get("config") and _is_file(whole["model"]) else {}
    if whole.get("launch-text") and "{launch}" in ask["first"]:
        files[whole.get("launch", "")] = _unpacked(whole["launch-text"])
    if whole.get("packed") and "{trace}" in ask["first"]:
        files[whole.get("trace", "")] = whole["packed"]
    return checked(SentForm(verb=ask["verb"], first=first, options=options | ask["with"], files=files))


def _is_file(model: str) -> bool:
    return model.endswith(".json")


def _unpacked(text: str) -> str:
    """A configuration as a link holds it: base64 for links, without its padding."""
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        raise Refused(
            "config", text[:80], "it is not a configuration packed by the page; drop the file again"
        ) from None


def policy_state(policy: Mapping[str, Any], gpus: int) -> dict[str, str]:
    """The fields of a form that state a policy, as `policyState` of the browser gives them."""
    usual = "interleaved" if policy["vpp"] > 1 else "1f1b"
    stated = {
        "tp": policy["tp"], "pp": policy["pp"], "cp": policy["cp"], "ep": policy["ep"], "vpp": policy["vpp"],
        "etp": policy["etp"], "micro": policy["micro_batch"], "zero": policy["zero"],
        "shard-group": policy["shard_group"], "recompute": policy["recompute"],
        "recompute-layers": policy["recompute_layers"],
        "schedule": "" if policy["schedule"] == usual else policy["schedule"], "offload": policy["offload"],
        "offload-share": f"{policy['offload_share']:g}", "loss": policy["loss"], "order": policy["order"],
        "matrix-layout": policy["matrix_layout"],
        "no-sp": "1" if not policy["sp"] and policy["tp"] > 1 else "",
        "dp": "" if policy["dp"] * policy["tp"] * policy["pp"] * policy["cp"] == gpus else policy["dp"],
    }  # fmt: skip
    return {name: str(value) for name, value in stated.items()}


def _filled(word: str, state: Mapping[str, str]) -> str:
    return str(state.get(word[1:-1], "")) if word.startswith("{") else word


def state_of(link: str) -> tuple[str, dict[str, str]]:
    """View and state of a link of the page, or of the part behind its '#'."""
    view, _, query = link.partition("#")[2].removeprefix("/").partition("?") if "#" in link else _plain(link)
    if view not in table()["views"]:
        raise Refused(
            "case", link[:80], f"it names no view; copy a link of the page, such as #/{next(iter(table()['views']))}"
        )
    return view, dict(parse_qsl(query))


def _plain(link: str) -> tuple[str, str, str]:
    return link.removeprefix("/").partition("?")


def opening_questions() -> list[PageRequest]:
    """What a browser asks first when it opens the page."""
    return [asked_by(name, {}) for name in ("plan", "models", "clusters")]
