"""Several files into one folder that the user named: none is replaced unless that is said, each is there when whole."""

from collections.abc import Iterable
from os.path import lexists
from pathlib import Path

from shardwise.whole_file import OutputFile


def check_folder(path: Path, names: Iterable[str], flag: str, overwrite: bool) -> None:
    """Looked through before anything long is done for it. A link that leads nowhere yet is there too."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{flag}: {str(path)!r} is a file; write the path of a folder")
    there = [name for name in names if lexists(path / name)]
    if there and not overwrite:
        raise ValueError(
            f"{flag}: {str(path / there[0])!r} is there already; write --overwrite to replace it, or another --{flag}"
        )


def write_into(path: Path, files: Iterable[tuple[str, bytes]], flag: str, overwrite: bool) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{flag}: {str(path)!r} cannot be made ({error.strerror}); write another folder") from None
    for name, content in files:
        OutputFile(path / name, flag, mark=b"", overwrite=overwrite).write(content)
