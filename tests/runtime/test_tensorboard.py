"""Event files are what TensorBoard reads: checksums, records, tags, steps, numbers."""

import struct

import pytest

pytest.importorskip("torch")

from shardwise.event_record import crc32c, masked
from shardwise.run.runtime.train.lines import StepLine
from shardwise.run.runtime.train.tensorboard import EventFile

LINE = StepLine(
    step=3, loss=4.5, grad_norm=1.25, rate=1e-3, step_s=0.5, tokens_per_s=1234.0, tflops_per_rank=0.5, mfu=None,
    peak_bytes=2**30, eval_loss=2.0, perplexity=7.389,
)  # fmt: skip


def varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not data[at - 1] & 0x80:
            return number, at


def message(data: bytes) -> list[tuple[int, object]]:
    """Any protobuf message as (field, value) pairs."""
    found, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            length, at = varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = data[at : at + length], at + length
        found.append((key >> 3, value))
    return found


def records(data: bytes) -> list[bytes]:
    found = []
    while data:
        (length,), checks = struct.unpack("<Q", data[:8]), struct.unpack("<I", data[8:12])
        body, end = data[12 : 12 + length], struct.unpack("<I", data[12 + length : 16 + length])
        assert (checks[0], end[0]) == (masked(data[:8]), masked(body))
        found.append(body)
        data = data[16 + length :]
    return found


def test_checksum() -> None:
    """The check value of CRC-32C, and RFC 3720's of 32 zero bytes."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA


def test_what_is_written_is_read_back(tmp_path) -> None:
    file = EventFile(tmp_path / "runs")
    file.add(3, LINE.scalars())
    file.add(300, {"loss/train": 0.25})
    (path,) = (tmp_path / "runs").iterdir()
    first, second, third = map(message, records(path.read_bytes()))
    assert dict(first)[3] == b"brain.Event:2"
    assert [dict(event)[2] for event in (second, third)] == [3, 300]
    values = [dict(message(value)) for _, value in message(dict(second)[5])]
    found = {value[1].decode(): struct.unpack("<f", value[2])[0] for value in values}
    assert found == pytest.approx(LINE.scalars())
    assert {"loss/train", "loss/eval", "loss/eval_perplexity", "optimizer/rate"} <= found.keys()
    assert "speed/mfu" not in found, "what is not known is not written"


def test_tensorboard_itself_reads_it(tmp_path) -> None:
    loader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    file = EventFile(tmp_path)
    for step in (1, 2, 3):
        file.add(step, {"loss/train": 1.0 / step})
    read = loader.EventAccumulator(str(tmp_path))
    read.Reload()
    assert {e.step: e.value for e in read.Scalars("loss/train")} == pytest.approx({1: 1.0, 2: 0.5, 3: 1 / 3})


def test_a_folder_that_cannot_be(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="tensorboard: "):
        EventFile(tmp_path / "file")
