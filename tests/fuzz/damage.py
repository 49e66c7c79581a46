"""A file that is right, made wrong."""

import gzip
import json
import os
import re
from pathlib import Path
from random import Random
from typing import Any

from fuzz.samples import sealed
from fuzz.values import json_value, number, text

DEEP = 50_000
"""brackets inside each other"""


def damaged(sample: bytes, random: Random) -> bytes:
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        sample = random.choice(WAYS)(sample, random)
    return sample


def damage_folder(folder: Path, files: dict[str, bytes], random: Random) -> str:
    """One file of a folder made wrong, or something else in its place; says which. A manifest mostly keeps a checksum
    that is right, since a stranger can write one too."""
    name = random.choice(list(files))
    path = folder / name
    how = random.random()
    if how < 0.7:
        inside = json.loads(files[name])["manifest"] if name.endswith("manifest.json") and how < 0.5 else None
        changed = damaged(files[name] if inside is None else json.dumps(inside).encode(), random)
        path.write_bytes(changed if inside is None else sealed(changed))
        return f"{name} {changed[:200]!r}"
    path.unlink()
    made = random.choice(("nothing", "pipe", "folder", "loop", "device", "hole"))
    if made == "pipe":
        os.mkfifo(path)
    elif made == "folder":
        path.mkdir()
    elif made in ("loop", "device"):
        path.symlink_to(path.name if made == "loop" else "/dev/zero")
    elif made == "hole":
        with path.open("wb") as file:
            file.truncate(2**40)
    return f"{name} {made}"


def _json(sample: bytes, random: Random) -> bytes:
    """One value of a document replaced by another kind of value, or a field renamed, dropped or doubled."""
    try:
        document = json.loads(sample)
    except (ValueError, RecursionError):
        return _line(sample, random)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in inside:
            places.append((node, key))
            walk(value)

    walk(document)
    if not places:
        return json.dumps(json_value(random)).encode()
    node, key = random.choice(places)
    if random.random() < 0.15:
        del node[key]
    elif random.random() < 0.1 and isinstance(node, dict):
        node[text(random)] = node.pop(key)
    else:
        node[key] = json_value(random)
    return json.dumps(document).encode()


def _line(sample: bytes, random: Random) -> bytes:
    """What stands behind = or : on one line replaced, or a line dropped, doubled or moved."""
    lines = sample.split(b"\n")
    place = random.randrange(len(lines))
    how = random.random()
    if how < 0.6:
        value = random.choice((number(random), text(random), json.dumps(json_value(random)))).encode(errors="replace")
        lines[place] = re.sub(rb"([=:,]\s*)([^=:,]*)$", lambda found: found[1] + value, lines[place], count=1)
    elif how < 0.75:
        del lines[place]
    elif how < 0.9:
        lines.insert(place, random.choice(lines))
    else:
        random.shuffle(lines)
    return b"\n".join(lines)


def _number(sample: bytes, random: Random) -> bytes:
    found = list(re.finditer(rb"\d[\d.,eE+-]*", sample))
    if not found:
        return sample
    one = random.choice(found)
    return sample[: one.start()] + number(random).encode() + sample[one.end() :]


def _bytes(sample: bytes, random: Random) -> bytes:
    changed = bytearray(sample)
    for _ in range(random.choice((1, 1, 4, 40)) if changed else 0):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def _cut(sample: bytes, random: Random) -> bytes:
    a, b = sorted(random.randrange(len(sample) + 1) for _ in range(2))
    return random.choice((sample[:a], sample[b:], sample[:a] + sample[b:], sample[:b] + sample[a:]))


def _whole(sample: bytes, random: Random) -> bytes:
    return random.choice((
        b"", b"\x00" * 100, b"\xef\xbb\xbf" + sample, sample.decode("latin-1").encode("utf-16"), gzip.compress(sample),
        gzip.compress(sample)[:-9], b"\x1f\x8b" + sample, b"[" * DEEP, b'{"a":' * DEEP, b"<a>" * DEEP, sample * 20,
        sample.replace(b"\n", b"\r"), random.randbytes(200), b"{" + sample, b"a: &b [*b, *b]", b"- " * 3000,
        b"[a]\n" * 500, b"<?xml version='1.0' encoding='x-none'?>" + sample,
        b'"' + b"\\u0000" * 9 + b'"', b"Infinity", b"1e999", b"NaN",
    ))  # fmt: skip


WAYS = (_json, _json, _json, _line, _line, _number, _number, _bytes, _cut, _whole)
