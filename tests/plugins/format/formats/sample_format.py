"""A target of one line: the degrees, as `key=value` words of a script."""

from shardwise.programs.formats import Format, Found, Known, Launch, Written
from shardwise.programs.formats._settings import FileSettings
from shardwise.spec.policy import Policy

AXES = ("dp", "tp", "pp", "cp")


def _write(launch: Launch) -> Written:
    words = " ".join(f"sample.{axis}={getattr(launch.policy, axis)}" for axis in AXES)
    return Written({"train.sh": f"python3 sample.py {words}\n"})


def _read(settings: FileSettings, _known: Known) -> Found:
    return Found(Policy(**{axis: settings.whole(f"sample.{axis}") for axis in AXES}))


FORMAT = Format(
    name="sample_format",
    title="a sample",
    stack="megatron-core",
    source="tests/plugins",
    only={},
    own=lambda _version: {},
    gaps=lambda _launch: [],
    write=_write,
    claims=lambda settings: settings.has("sample.dp"),
    read=_read,
)
