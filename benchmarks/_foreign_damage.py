"""Damage done on purpose to small checkpoints of other programs, each of which `--verify` must report.

`_foreign_damage.py NAME FOLDER` by an interpreter that has DeepSpeed, whose classes its files name.
"""

import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

Damage = Callable[[Path], None]


def of_dcp() -> Iterator[tuple[str, Damage]]:
    def edited(change: Callable[[Any], None]) -> Damage:
        def damage(folder: Path) -> None:
            with (folder / ".metadata").open("rb") as file:
                metadata = pickle.load(file)  # our own, written seconds ago
            change(metadata)
            with (folder / ".metadata").open("wb") as file:
                pickle.dump(metadata, file)

        return damage

    def tensors(metadata: Any, part: str) -> list[str]:
        return [n for n, one in metadata.state_dict_metadata.items() if part in n and getattr(one, "size", ())]

    def dropped(metadata: Any) -> None:
        metadata.state_dict_metadata[tensors(metadata, "up")[0]].chunks.pop()

    def doubled(metadata: Any) -> None:
        chunks = metadata.state_dict_metadata[tensors(metadata, "up")[0]].chunks
        chunks.append(chunks[0])

    def halved(metadata: Any) -> None:
        chunk = metadata.state_dict_metadata[tensors(metadata, "up")[0]].chunks[0]
        chunk.sizes = torch.Size((1, *chunk.sizes[1:]))

    def other_type(metadata: Any) -> None:
        one = metadata.state_dict_metadata[tensors(metadata, "up")[0]]
        one.properties.dtype = torch.int32

    def moment_gone(metadata: Any) -> None:
        name = next(n for n in tensors(metadata, "exp_avg_sq"))
        del metadata.state_dict_metadata[name]

    def weight_gone(metadata: Any) -> None:
        del metadata.state_dict_metadata[next(n for n in tensors(metadata, "down") if "exp_avg" not in n)]

    def outside(metadata: Any) -> None:
        next(iter(metadata.storage_data.values())).relative_path = "../elsewhere"

    def code(folder: Path) -> None:
        class Runs:
            def __reduce__(self) -> tuple[Any, tuple[str]]:
                import os

                return os.system, (f"touch {folder / 'ran'}",)

        (folder / ".metadata").write_bytes(pickle.dumps(Runs()))

    for change in (dropped, doubled, halved, other_type, moment_gone, weight_gone, outside):
        yield f"dcp: {change.__name__}", edited(change)
    yield "dcp: code in the pickle", code
    yield "dcp: a file is gone", lambda folder: next(folder.glob("__0*.distcp")).unlink()
    yield "dcp: a file is cut", lambda folder: _cut(next(folder.glob("__0*.distcp")))
    yield "dcp: a flipped bit", lambda folder: _flipped(next(folder.glob("__0*.distcp")), b"\x00/archive/data/0")
    yield "dcp: no metadata", lambda folder: (folder / ".metadata").write_bytes(b"")


def of_deepspeed() -> Iterator[tuple[str, Damage]]:
    def changed(change: Callable[[Any], None], part: str = "optim_states") -> Damage:
        def damage(folder: Path) -> None:
            path = next(folder.rglob(f"*{part}.pt"))
            tree = torch.load(path, weights_only=False)  # our own, written seconds ago
            change(tree)
            torch.save(tree, path)

        return damage

    def state(tree: Any) -> Any:
        return tree["optimizer_state_dict"]["base_optimizer_state"]["state"][0]

    def master(tree: Any) -> torch.Tensor:
        found: torch.Tensor = tree["optimizer_state_dict"]["single_partition_of_fp32_groups"][0]
        return found

    yield "deepspeed: not a number", changed(lambda tree: state(tree)["exp_avg"].__setitem__(0, float("nan")))
    yield "deepspeed: second moment below zero", changed(lambda tree: state(tree)["exp_avg_sq"].__setitem__(0, -1.0))
    yield "deepspeed: fp32 copies of another step", changed(lambda tree: master(tree).mul_(1.5))
    yield (
        "deepspeed: a partition half as long",
        changed(lambda tree: state(tree).__setitem__("exp_avg", state(tree)["exp_avg"][:100].clone())),
    )
    yield (
        "deepspeed: shapes of another model",
        changed(lambda tree: tree["param_shapes"][0].__setitem__("head.weight", torch.Size((170, 6))), "model_states"),
    )
    yield "deepspeed: a rank's file is gone", lambda folder: next(folder.rglob("*rank_1_*optim_states.pt")).unlink()
    yield "deepspeed: a file is cut", lambda folder: _cut(next(folder.rglob("*optim_states.pt")))


def of_safetensors() -> Iterator[tuple[str, Damage]]:
    yield "safetensors: a file is gone", lambda folder: sorted(folder.glob("*.safetensors"))[1].unlink()
    yield "safetensors: a file is cut", lambda folder: _cut(sorted(folder.glob("*.safetensors"))[0])
    yield (
        "safetensors: two files hold one tensor",
        lambda folder: shutil.copyfile(
            sorted(folder.glob("*.safetensors"))[0], sorted(folder.glob("*.safetensors"))[1]
        ),
    )

    def longer(folder: Path) -> None:
        path = sorted(folder.glob("*.safetensors"))[0]
        path.write_bytes(path.read_bytes().replace(b'"BF16"', b'"F32" ', 1))

    yield "safetensors: another type", longer


def _cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _flipped(path: Path, before: bytes) -> None:
    """In the first storage of a zip inside the file."""
    content = bytearray(path.read_bytes())
    at = content.index(b"data/0FB") if b"data/0FB" in content else content.index(before[1:])
    at += 6 + 2 + int.from_bytes(content[at + 8 : at + 10], "little") + 2
    content[at + 64] ^= 16
    path.write_bytes(bytes(content))


if __name__ == "__main__":
    with torch.no_grad():
        dict(of_deepspeed())[sys.argv[1]](Path(sys.argv[2]))
