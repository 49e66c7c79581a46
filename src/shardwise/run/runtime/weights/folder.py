"""A set of safetensors files as one: a file, or a folder with `model.safetensors` or an index of several."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from torch import Tensor

from shardwise.run.runtime.weights.safetensors import SafeFile

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MOST_INDEX = 64 * 2**20
PREFIXES = ("model.", "transformer.")
"""which files of a bare model, without a head, leave away"""


class _Index(Struct):
    weight_map: dict[str, str]


class WeightsFolder:
    """Tensors by name; files are opened when one of theirs is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, SafeFile] = {}
        self.folder = path if path.is_dir() else path.parent
        if path.is_file():
            self.places = dict.fromkeys(self._file(path.name).entries, path.name)
        elif (path / INDEX).is_file():
            self.places = self._index(path / INDEX)
        else:
            single = [SINGLE] if (path / SINGLE).is_file() else sorted(p.name for p in path.glob("*.safetensors"))
            if len(single) != 1:
                raise ValueError(
                    f"init: {str(path)!r} holds no {INDEX} and no {SINGLE}; write a .safetensors file or such a folder"
                )
            self.places = dict.fromkeys(self._file(single[0]).entries, single[0])

    def _index(self, path: Path) -> dict[str, str]:
        if path.stat().st_size > MOST_INDEX:
            raise ValueError(f"init: {str(path)!r} is larger than 64 MiB; write a folder with a smaller index")
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_Index).weight_map
        except (ValueError, RecursionError) as error:
            raise ValueError(f"init: {str(path)!r} is not an index ({error}); write a folder with one") from None
        outside = [name for name in found.values() if Path(name).name != name or name in ("", ".", "..")]
        if outside:
            raise ValueError(f"init: {str(path)!r} names {outside[0]!r}, which is not in its folder; write another")
        return found

    def _file(self, name: str) -> SafeFile:
        if name not in self._files:
            self._files[name] = SafeFile(self.folder / name)
        return self._files[name]

    def find(self, name: str, shape: tuple[int, ...]) -> str:
        """The name it has here; refused where it is missing or of another shape."""
        bare = next((name.removeprefix(p) for p in PREFIXES if name.startswith(p)), name)
        stored = next((one for one in (name, bare) if one in self.places), None)
        if stored is None:
            raise ValueError(f"init: {str(self.path)!r} lacks {name}; write weights of this model")
        entry = self._file(self.places[stored]).entries.get(stored)
        if entry is None or entry.shape != shape:
            there = "missing" if entry is None else f"of shape {list(entry.shape)}"
            raise ValueError(
                f"init: {stored} is {there} in {self.places[stored]!r}, the model has {list(shape)}; "
                "write weights of this model"
            )
        if not entry.dtype.startswith(("F", "BF")):
            raise ValueError(f"init: {stored} is stored as {entry.dtype}; write weights in F32, F16 or BF16")
        return stored

    def block(self, name: str, offsets: Sequence[int], sizes: Sequence[int]) -> Tensor:
        return self._file(self.places[name]).block(name, offsets, sizes)
