"""Makes text from untrusted files safe to print: no secret, no control character, no endless length.

A secret is known by the name in front of it, by its shape (prefixes of well-known issuers, headers, webhooks, logins in
addresses) or by looking random. The first rule needs names, so it is for words of files; the others hold for all that
is printed.
"""

import os
import re
from typing import Any, TextIO

HIDDEN = "(not shown)"
LONGEST = 200
"""characters of one word or line of a file that are shown"""
_STRONG = re.compile(
    r"\w*(?:passw(?:or)?ds?|passphrase|passcode|(?:api|access|auth|secret|private|signing)(?:key|token))|\w*pwd|pw|secrets?"
    r"|creds?|credentials?|auth|authorization|webhook|cookies?"
)
"""parts of a name"""
_OF_DIGITS = re.compile(r"\w*passw(?:or)?d|passphrase|passcode|\w*pwd|otp|pin")
"""last parts of a name that may hold four digits or more and nothing else"""
_HARMLESS = re.compile(r"files?|path|dir|folder|names?|ids?|type|mode|env|ref|len|length|size|dim|url|uri")
"""last parts of a name that says where a secret lies or how it is used, and does not hold it"""
_ISSUER = re.compile(
    r"wandb|comet|neptune|clearml|swanlab|mlflow|openai|anthropic|hf|huggingface|hub|aws|azure|gcp|api|access|account"
    r"|private|ssh|encryption|signing|license|storage|session|shared|client|deploy|service"
    r"|db|smtp|mail|redis|mysql|postgres|mongo|ftp|proxy|registry|seed|recovery|secret"
)
_OF_TEXT = re.compile(
    r"pad|eos|bos|unk|mask|sep|cls|stop|end|start|eot|eod|image|video|audio|special|per|next|last|first|max|min|new|bot"
    r"|think|fim"
)
"""the kinds of token that a tokenizer has"""
_PERHAPS = re.compile(r"(?i)pass|phrase|pw|secret|cred|auth|webhook|cookie|key|tok|otp|pin")
"""in every name of a secret"""
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_HARMLESS_VALUE = re.compile(
    r"(?i:true|false|yes|no|on|off|none|null|~|auto)?|=?[-+.\de]{1,7}|\$[A-Z_][A-Z\d_]*|\$\d|\$[{(].*|\{.*|\[\]?|!\w+"
    r"|<\|?[\w/| -]*\|?>",
    re.DOTALL,
)
"""switches, small numbers, references to what is kept elsewhere, mappings, special tokens"""
_WORD = re.compile(r"[A-Z_]{2,40}|[A-Za-z]{0,20}\d{0,3}(?:[-_.:/][A-Za-z]{0,20}\d{0,3}){0,7}")
"""a name of something, as in `prompt_key=question`"""
_SHAPES = (
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^\"'-]*",
    r"(?P<keep>(?i:\bauthorization[\"']?\s*[:=]\s*[\"']?|\bsshpass\s+-p\s*"
    r"|\b(?:docker|podman)\s+login\b[^\n|;&]{0,300}?\s-p\s*"
    r"|\bcurl\b[^\n|;&]{0,300}?\s(?:-u|--user)\s*|\bmysql(?:dump)?\b[^\n|;&]{0,300}?\s-p(?=\S)))"
    r"(?![{$])(?:(?i:bearer|basic|token|digest|negotiate)\s+)?[^\s\"'\\,}]+",
    r"\b(?i:bearer)\s+[\w+/=.~-]{8,}",
    r"\bBasic\s+(?=[\w+/-]*[\d=])[\w+/-]{8,}={0,2}",
    r"(?<=://)[^/\s@\"'\\]+(?=@)",
    r"(?i:hooks\.slack\.com/\w+|discord(?:app)?\.com/api/webhooks|\.office\.com/webhook\w*"
    r"|open\.(?:feishu|larksuite)\.\w+/open-apis/bot/v2/hook|api\.telegram\.org)/[^\s\"'\\]+",
    r"(?i:(?<=[?&;])(?:\w*token|key|sig|signature|\w*secret|password|x-amz-(?:signature|credential|security-token))"
    r"=)[^\s&\"'\\]+",
    r"(?i:\bAccountKey=)[^\s;\"'\\]+",
    r"\bhf_(?=\w*[\dA-Z])[A-Za-z0-9]{8,}",
    r"\b(?:sk|pk|rk)[-_](?=[\w-]{0,200}\d)[\w-]{12,}",
    r"\b(?:gh[opsur]_|github_pat_|glpat-|xox[a-z]-|xapp-|npm_|pypi-AgE|dckr_pat_|wandb_v1_|nvapi-|dop_v1_|hvs\.)"
    r"[\w-]{8,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}",
    r"\bAIza[\w-]{20,}",
    r"\bya29\.[\w-]{8,}",
    r"\beyJ[\w-]{8,}(?:\.[\w-]+){0,2}",
)
_SHAPED = re.compile("|".join(f"(?:{each})" for each in _SHAPES), re.DOTALL)
_KNOWN_DIGEST = re.compile(
    r"(?i)(?:commit|revision|\brev|\bref|sha|sha\d+|md5|digest|hash|checksum|uuid|fingerprint|\bid|_id|seed|tree|blob"
    r"|checkout|reset --hard|git\+\S*|snapshots?/|\.git|guid|version|build|@)[\"'\s:=@/(-]*$"
)
_LONG = re.compile(r"(?<![\w+/])[A-Za-z0-9+/]{22,}={1,2}|(?<![\w/.+-])[A-Za-z0-9+/]{40}(?![\w/.+-])|[A-Za-z0-9]{20,}")
_TRACKER = re.compile(r"(?i)wandb|comet|neptune|clearml|swanlab")
_NAME = re.compile(
    r"(?:(?P<option>(?<![\w-])--?)|(?<![\w.$-])(?<!\$\{))(?P<name>[A-Za-z_][\w.-]*)[\"']?"
    r"(?:\s*[=:]\s*[\"']?|(?(option)\s+[\"']?(?!-)|(?!)))(?![{\[])"
)
_PAIR = re.compile(
    r"\b(?:name|key|variable)[\"']?[ \t]{0,9}[:=][ \t]{0,9}[\"']?(?P<name>[A-Za-z_][\w.-]{0,99})[\"']?"
    r"[ \t]{0,40},?\n?[ \t]{0,40}[\"']?value[\"']?[ \t]{0,9}[:=][ \t]{0,9}[\"']?"
)
"""as `name: HF_TOKEN, value: ...` of a container's variables"""
_VALUE = re.compile(r"(?<=\")[^\"\n]{1,2000}|(?<=')[^'\n]{1,2000}|(?:\(not shown\)|[^\s\"',;})\]]){1,2000}")
_REST = re.compile(r"[^\s\"',;})\]]*")
_OWN_SEQUENCE = re.compile(r"(\x1b\[(?:[\d;]{0,40}m|\d{0,3}[AK]|\?25[lh])|\r)")
"""colours and bars, which rich and `watch` draw on a terminal"""
_ASKS_FOR_COLOUR = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""variables by which rich draws elsewhere too"""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def printable(text: str) -> str:
    """Without characters that a terminal obeys, or that change the order in which others are read. Escaped as in JSON,
    which stays what it is."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def names_secret(name: str, value: str, certain: bool = True) -> bool:
    """Whether what stands under this name is a secret, since the name says so. `certain`: the name is whole; a bare
    `key` in the middle of a file may be anybody's."""
    parts = [part.lower() for part in _PARTS.findall(name)]
    if parts and _OF_DIGITS.fullmatch(parts[-1]) and re.fullmatch(r"\d{4,}", value.strip()):
        return True
    if not parts or _HARMLESS_VALUE.fullmatch(value.strip()):
        return False
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    strong = any(map(_STRONG.fullmatch, parts))
    if last in ("keys", "tokens", "tok", "phrase", "pass"):
        return bool(strong or _ISSUER.fullmatch(before) or (last == "pass" and certain and not before))
    if last not in ("key", "token"):
        return strong and ("webhook" in parts or not _HARMLESS.fullmatch(last))
    if _OF_TEXT.fullmatch(before):
        return False
    sure = strong or _ISSUER.fullmatch(before) or (certain and not before)
    # `prompt_key=question` names something, and so may a bare `key` without digits
    return bool(sure or not _WORD.fullmatch(value.strip()) or (not before and re.search(r"\d", value)))


def looks_random(word: str) -> bool:
    """Whether nobody would choose this word: long, and what it is written in changes all the time."""
    if re.fullmatch(r"[0-9a-f]{32,}|[0-9A-F]{32,}", word):
        return len(set(word)) > 7
    kinds = [sum(test(c) for c in word) for test in (str.islower, str.isupper, str.isdigit)]
    return len(word) < 2.5 * len(_PARTS.findall(word)) and min(kinds[:2]) > 2 and kinds[2] > 0


def without_shapes(text: str) -> str:
    """Without what is a secret by its shape or looks random; digests behind a word that says so stay."""
    text = _SHAPED.sub(lambda match: (match["keep"] or "") + HIDDEN, text)

    def kept(match: re.Match[str]) -> str:
        known = _KNOWN_DIGEST.search(text, max(0, match.start() - 40), match.start())
        return match[0] if known or not looks_random(match[0]) else HIDDEN

    return _LONG.sub(kept, text)


def without_secrets(text: str) -> str:
    """Lines of a file for the screen."""
    return _unnamed(_NAME, _unnamed(_PAIR, without_shapes(text)))


def _unnamed(naming: re.Pattern[str], text: str) -> str:
    """Without the values whose name says that they are secrets."""
    kept, done = list[str](), 0
    for match in naming.finditer(text):
        perhaps = match.start() >= done and _PERHAPS.search(match["name"])
        value = _VALUE.match(text, match.end()) if perhaps else None
        certain = naming is _PAIR or match["option"] or _TRACKER.search(text, max(0, match.start() - 80), match.start())
        if value and names_secret(match["name"], value[0], certain=bool(certain)):
            kept += [text[done : value.start()], HIDDEN]
            done = _REST.match(text, value.end()).end()  # type: ignore[union-attr]
    return "".join([*kept, text[done:]])


def from_file(text: str) -> str:
    """A line of a stranger's file, for a screen."""
    return cut(printable(without_secrets(text)))


def on_screen(text: str) -> str:
    """Anything that is printed, shardwise's own words too."""
    return printable(without_shapes(text))


class ScreenStream:
    """Standard output or error: the last place that words pass, whoever prints them."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, words: str) -> int:
        drawn = self.stream.isatty() or any(map(os.environ.get, _ASKS_FOR_COLOUR))
        pieces = _OWN_SEQUENCE.split(words) if drawn else [words]
        pieces[::2] = map(printable, pieces[::2])
        self.stream.write("".join(pieces))
        return len(words)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
