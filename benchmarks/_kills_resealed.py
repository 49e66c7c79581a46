"""Checkpoints that are wrong though every checksum in them is right: somebody wrote the manifest again."""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from shardwise.run.runtime.checkpoints.manifest import NAME, Manifest, SavedBlock, read_manifest, write_manifest

Piece = tuple[SavedBlock, bytes]
Edit = Callable[[list[Piece]], list[Piece]]


def pieces_of(path: Path) -> tuple[Manifest, list[Piece]]:
    manifest, _ = read_manifest(path)
    files = {name: (path / name).read_bytes() for name in manifest.files}
    return manifest, [(block, files[block.file][block.at : block.at + block.bytes]) for block in manifest.blocks]


def seal(path: Path, manifest: Manifest, pieces: Sequence[Piece]) -> None:
    """Files and manifest of these blocks, with places, sizes and checksums that are right."""
    files: dict[str, bytes] = {}
    blocks = []
    for block, content in pieces:
        at = len(files.setdefault(block.file, b""))
        digest = hashlib.sha256(content).hexdigest()
        blocks.append(replace(block, at=at, bytes=len(content), sha256=digest))
        files[block.file] += content
    for name in manifest.files:
        (path / name).write_bytes(files.get(name, b""))
    sizes = {name: len(files.get(name, b"")) for name in manifest.files}
    write_manifest(path, replace(manifest, files=sizes, blocks=tuple(blocks)))


def _edited(edit: Edit) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        manifest, pieces = pieces_of(path)
        seal(path, manifest, edit(pieces))

    return damage


def _matrix(pieces: Sequence[Piece]) -> int:
    """The first block of a matrix that has not one length on both axes."""
    return next(
        number for number, (b, _) in enumerate(pieces)
        if b.tensor.startswith("parameter.layers") and len(b.sizes) == 2 and b.sizes[0] != b.sizes[1] and b.sizes[0] > 2
    )  # fmt: skip


def _dropped(pieces: list[Piece]) -> list[Piece]:
    at = _matrix(pieces)
    return pieces[:at] + pieces[at + 1 :]


def _doubled(pieces: list[Piece]) -> list[Piece]:
    at = _matrix(pieces)
    block, content = pieces[at]
    return [*pieces[: at + 1], (block, content[::-1]), *pieces[at + 1 :]]


def _cut(pieces: list[Piece]) -> list[Piece]:
    """The last row of a block is left out."""
    at = _matrix(pieces)
    block, content = pieces[at]
    rows, width = block.sizes
    short = replace(block, sizes=(rows - 1, width))
    return [*pieces[:at], (short, content[: len(content) // rows * (rows - 1)]), *pieces[at + 1 :]]


def _overlapping(pieces: list[Piece]) -> list[Piece]:
    """Two rows are two blocks of one row, the second of which lies on the first."""
    at = _matrix(pieces)
    block, content = pieces[at]
    (first, column), (rows, width), row = block.offsets, block.sizes, len(content) // block.sizes[0]
    kept = replace(block, sizes=(rows - 1, width)), content[: -1 * row]
    again = replace(block, offsets=(first + rows - 2, column), sizes=(1, width)), content[-1 * row :]
    return [*pieces[:at], kept, again, *pieces[at + 1 :]]


def _number(prefix: str, value: float) -> Edit:
    def edit(pieces: list[Piece]) -> list[Piece]:
        at = next(number for number, (block, _) in enumerate(pieces) if block.tensor.startswith(prefix))
        block, content = pieces[at]
        values = np.frombuffer(content, np.float32).copy()
        values[-1] = value
        return [*pieces[:at], (block, values.tobytes()), *pieces[at + 1 :]]

    return edit


def _reformed(dtype: str = "", turned: bool = False) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        manifest, pieces = pieces_of(path)
        name = pieces[_matrix(pieces)][0].tensor
        form = manifest.tensors[name]
        form = replace(form, dtype=dtype or form.dtype, shape=form.shape[::-1] if turned else form.shape)
        if turned:
            pieces = [p for p in pieces if p[0].tensor != name]
            whole = SavedBlock(
                tensor=name, offsets=(0, 0), sizes=form.shape, file=pieces[0][0].file, at=0, bytes=0, sha256=""
            )
            pieces.append((whole, bytes(4 * form.shape[0] * form.shape[1])))
        seal(path, replace(manifest, tensors={**manifest.tensors, name: form}), pieces)

    return damage


def _without(prefix: str) -> Callable[[Path], None]:
    """Tensors and their blocks."""

    def damage(path: Path) -> None:
        manifest, pieces = pieces_of(path)
        kept = {name: form for name, form in manifest.tensors.items() if not name.startswith(prefix)}
        seal(path, replace(manifest, tensors=kept), [p for p in pieces if p[0].tensor in kept])

    return damage


def _said_twice(path: Path) -> None:
    """A tensor has two forms: of the same name in a JSON object readers take one or the other."""
    content = (path / NAME).read_bytes()
    inside = content.split(b'"manifest":', 1)[1][:-1]
    first = inside.split(b'"tensors":{', 1)[1].split(b"},", 1)[0] + b"},"
    inside = inside.replace(b'"tensors":{', b'"tensors":{' + first, 1)
    digest = hashlib.sha256(inside).hexdigest().encode()
    (path / NAME).write_bytes(b'{"sha256":"' + digest + b'","manifest":' + inside + b"}")


def _linked(path: Path) -> None:
    part = sorted(path.glob("*.bin"))[0]
    elsewhere = path.with_name(f"{path.name}.elsewhere")
    part.rename(elsewhere)
    part.symlink_to(elsewhere)


def _longer(path: Path) -> None:
    part = sorted(path.glob("*.bin"))[0]
    os.truncate(part, part.stat().st_size + 4)


RESEALED: dict[str, Callable[[Path], None]] = {
    "resealed without a block": _edited(_dropped),
    "resealed with a block twice": _edited(_doubled),
    "resealed with a block short of a row": _edited(_cut),
    "resealed with a row on another": _edited(_overlapping),
    "resealed as another dtype": _reformed(dtype="int32"),
    "resealed in another shape": _reformed(turned=True),
    "resealed without a tensor": _without("parameter.layers.1.q"),
    "resealed without second moments": _without("exp_avg_sq"),
    "resealed with a tensor named twice": _said_twice,
    "resealed with NaN in a parameter": _edited(_number("parameter.layers.0", float("nan"))),
    "resealed with infinity in a moment": _edited(_number("exp_avg.layers.0", float("inf"))),
    "a part behind a link": _linked,
    "a part longer than listed": _longer,
}
