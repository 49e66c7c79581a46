"""Execution traces: every byte of the step's traffic is in them, in the schema's own encoding, and partners agree."""

import json
from collections import Counter

import pytest

from shardwise import Job, Policy, case_of, cluster_of, model_of, stack_of
from shardwise.fabric.calls import calls_of
from shardwise.programs.exporters.chakra import COLLECTIVE, COMP, MOST_NODES, RECV, SEND, ChakraTraces, chakra_files
from shardwise.programs.exporters.protobuf import varint
from shardwise.show.cli import main
from shardwise.step.simulate import simulate

STEPS = {
    "tensor and pipeline": ("llama-3-8b", "dgx-h100:16", Policy(tp=4, pp=2, dp=2), 8192),
    "context, interleaved": (
        "llama-3-8b", "dgx-h100:16", Policy(tp=2, pp=2, dp=2, cp=2, vpp=2, schedule="interleaved"), 8192,
    ),
    "experts, recomputed": ("mixtral-8x7b", "dgx-h100:16", Policy(tp=2, pp=2, dp=4, ep=4, recompute="full"), 4096),
    "zero 3": ("llama-3-8b", "8xh100", Policy(dp=8, zero=3), 4096),
    "hybrid sharding": ("llama-3-8b", "8xh100", Policy(dp=8, zero=3, shard_group=4), 4096),
    "a tied table on both ends": ("gpt2", "8xh100", Policy(dp=4, pp=2), 1024),
    "both ends": ("llama-3-8b", "8xh100", Policy(dp=2, pp=4, schedule="dualpipe"), 4096),
    "split backward": ("llama-3-8b", "8xh100", Policy(dp=2, pp=4, vpp=2, schedule="zb_v"), 4096),
}  # fmt: skip


@pytest.fixture(params=STEPS)
def step(request):
    model, on, policy, seq = STEPS[request.param]
    job = Job(seq=seq, global_batch=16)
    return simulate(case_of(model_of(model), cluster_of(on), job, stack_of("megatron-core")), policy)


def numbers(data):
    """(field, value) of a message: what any reader of the wire format sees."""
    at = 0

    def whole():
        nonlocal at
        found, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return found

    while at < len(data):
        key = whole()
        if key & 7 == 0:
            yield key >> 3, whole()
        else:
            assert key & 7 == 2
            length = whole()
            yield key >> 3, data[at : at + length]
            at += length


def messages(data):
    """A file is messages one after another, each behind its length."""
    at = 0
    while at < len(data):
        length, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield data[at : at + length]
        at += length


def nodes_of(data):
    """By the schema: id 1, name 2, type 3, data_deps 5, duration 7, attributes 10 (name 1, one value)."""
    _, *rest = messages(data)
    for message in rest:
        fields = dict(numbers(message))
        own = [dict(numbers(value)) for number, value in numbers(message) if number == 10]
        attributes = {each.pop(1).decode(): next(iter(each.values())) for each in own}
        needs = [int(n) for n in _packed(fields.get(5, b""))]
        yield fields[1], fields[3], needs, fields.get(7, 0), attributes


def _packed(data):
    value, shift = 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value, shift = 0, 0


def test_all_bytes_of_the_step_are_there(step):
    traces = ChakraTraces(step)
    for stage, nodes in enumerate(traces.stages):
        written, wanted = Counter(), Counter()
        for node in nodes:
            if node.call is not None and node.kind != RECV:
                written[node.call.axis, node.call.op] += node.buffer_bytes()
        for call in calls_of(step.closed.work):
            if call.stage == stage:
                wanted[call.axis, call.op] += call.bytes * call.count
        assert written == pytest.approx(wanted, rel=1e-9, abs=16), stage


def test_files_decode_and_partners_agree(step):
    files = dict(chakra_files(step))
    groups = json.loads(files.pop("comm_group.json"))
    assert sorted(files) == sorted(f"shardwise.{rank}.et" for rank in range(step.policy.gpus))
    sent, received, collectives = Counter(), Counter(), {}
    for rank in range(step.policy.gpus):
        seen, order = set(), {}
        for number, kind, needs, _, attributes in nodes_of(files[f"shardwise.{rank}.et"]):
            assert set(needs) <= seen, "a node waits for earlier ones only"
            seen.add(number)
            assert attributes["is_cpu_op"] == 0
            if kind == COLLECTIVE:
                name = attributes["pg_name"].decode()
                assert rank in groups[name]
                order.setdefault(name, []).append((attributes["comm_type"], attributes["comm_size"]))
            elif kind in (SEND, RECV):
                ends = tuple(attributes[f"comm_{what}"] for what in ("src", "dst", "tag", "size"))
                (sent if kind == SEND else received)[ends] += 1
                assert ends[kind == RECV] == rank
            else:
                assert kind == COMP
        for name, calls in order.items():
            assert collectives.setdefault(name, calls) == calls, "all ranks of a group call the same, in one order"
    assert sent == received
    assert max(sent.values(), default=1) == 1


def test_compute_is_the_steps_without_its_communication(step):
    for nodes in ChakraTraces(step).stages:
        seconds = sum(node.micros for node in nodes) / 1e6
        assert 0.2 * step.step_s < seconds <= step.step_s * 1.001


def test_protobuf_reads_it(step):
    """The same with Google's own decoder, where it is installed, and the fields of the published schema."""
    protobuf = pytest.importorskip("google.protobuf", reason="protobuf is not installed")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="p", syntax="proto3")
    attribute = file.message_type.add(name="Attribute")
    for number, name, kind in ((1, "name", kinds.TYPE_STRING), (9, "int64_val", kinds.TYPE_INT64),
                               (11, "uint32_val", kinds.TYPE_UINT32), (27, "bool_val", kinds.TYPE_BOOL),
                               (29, "string_val", kinds.TYPE_STRING)):  # fmt: skip
        attribute.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    node = file.message_type.add(name="Node")
    whole, word = kinds.TYPE_UINT64, kinds.TYPE_STRING
    for number, name, kind, many in (
        (1, "id", whole, False), (2, "name", word, False), (3, "type", kinds.TYPE_INT32, False),
        (5, "data_deps", whole, True), (7, "duration_micros", whole, False),
    ):  # fmt: skip
        label = kinds.LABEL_REPEATED if many else kinds.LABEL_OPTIONAL
        node.field.add(name=name, number=number, type=kind, label=label)
    node.field.add(
        name="attr", number=10, type=kinds.TYPE_MESSAGE, type_name=".p.Attribute", label=kinds.LABEL_REPEATED
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Node"))
    assert protobuf is not None
    data = next(content for name, content in chakra_files(step) if name == "shardwise.0.et")
    own = list(nodes_of(data))
    read = [made.FromString(message) for message in list(messages(data))[1:]]
    assert [(n.id, n.type, list(n.data_deps), n.duration_micros) for n in read] == [each[:4] for each in own]


def test_varints_are_seven_bits_at_a_time():
    assert [varint(n) for n in (0, 1, 127, 128, 300)] == [b"\x00", b"\x01", b"\x7f", b"\x80\x01", b"\xac\x02"]


def test_simulate_writes_them(capsys, tmp_path):
    words = [
        "simulate",
        "llama-3-8b",
        "--on",
        "8xh100",
        "--pp",
        "2",
        "--global-batch",
        "8",
        "--chakra",
        str(tmp_path / "et"),
    ]
    assert main(words) == 0
    assert "comm_group.json" in capsys.readouterr().out
    assert len(list((tmp_path / "et").iterdir())) == 9
    assert main(words) == 2
    assert "is there already; write --overwrite" in capsys.readouterr().err
    assert main([*words, "--straggler", "stage=1,factor=2", "--overwrite"]) == 2
    assert "leave --straggler out" in capsys.readouterr().err


def test_too_many_are_refused_before_they_are_laid_out():
    case = case_of(model_of("llama-3-70b"), cluster_of("dgx-h100:4096"), Job(seq=8192, global_batch=2048),
                   stack_of("megatron-core"))  # fmt: skip
    with pytest.raises(ValueError, match=f"at most {MOST_NODES:,}"):
        ChakraTraces(simulate(case, Policy(tp=8, pp=8, dp=64)))
