"""`fabric expect`: measured collectives against what the cluster should give, and the link that is slow."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from shardwise.answers.answer import Answer, Part, Table, Text, shown, table
from shardwise.measured.diagnose.expect import HELD, Expectation
from shardwise.measured.diagnose.pairs import SLOW, PairDiagnosis
from shardwise.spec.cluster import Cluster

SHOWN_PAIRS = 8
HEADS = ["size", "op", "measured", "expected", "band", "ratio", "verdict", "set by"]


class ExpectedSize(Struct, frozen=True, kw_only=True):
    op: str
    bytes: float
    measured_bus_bytes_per_s: float
    expected_bus_bytes_per_s: float
    low_bus_bytes_per_s: float
    high_bus_bytes_per_s: float
    ratio: float
    verdict: str
    level: str


class SuspectLevel(Struct, frozen=True, kw_only=True):
    level: str
    part_of_bandwidth: float
    misfit: float
    low_sizes: int


class SlowLinkRow(Struct, frozen=True, kw_only=True):
    link: Annotated[str, shown("slow link")]
    bytes_per_s: Annotated[float, shown("GB/s", "GB/s")]
    part: Annotated[float, shown("of a sound one")]
    slow_pairs: Annotated[int, shown("slow pairs")]
    or_else: Sequence[str]


class PairToMeasure(Struct, frozen=True, kw_only=True):
    a: str
    b: str
    command: str


class ExpectAnswer(Answer, frozen=True, kw_only=True):
    cluster: str
    verdict: str | UnsetType = UNSET
    """low or ok, where a run was measured"""
    sizes: Sequence[ExpectedSize] | UnsetType = UNSET
    suspects: Sequence[SuspectLevel] | UnsetType = UNSET
    explanation: str | UnsetType | None = UNSET
    reference_bytes_per_s: float | UnsetType = UNSET
    """of a sound pair, where pairs were measured"""
    slow_links: Sequence[SlowLinkRow] | UnsetType = UNSET
    slow_pairs: Sequence[tuple[str, str, float]] | UnsetType = UNSET
    unexplained_pairs: Sequence[tuple[str, str]] | UnsetType = UNSET
    rounds: Sequence[Sequence[PairToMeasure]] | UnsetType = UNSET
    """pairs to measure, those of a round at once"""

    @property
    def exit_code(self) -> int:
        return int(self.verdict == "low" or bool(self.slow_pairs or ()))

    def parts(self) -> Iterator[Part]:
        if not isinstance(self.sizes, UnsetType):
            rows = [
                (_size(row.bytes), row.op, row.measured_bus_bytes_per_s / 1e9, row.expected_bus_bytes_per_s / 1e9,
                 f"{row.low_bus_bytes_per_s / 1e9:.3g}..{row.high_bus_bytes_per_s / 1e9:.3g}", row.ratio, row.verdict,
                 row.level)
                for row in self.sizes
            ]  # fmt: skip
            title = f"bus bandwidth against {self.cluster}, GB/s"
            yield Table(title, HEADS, rows, words=2, bars=("measured", "expected"))
        if not isinstance(self.slow_links, UnsetType):
            below = (
                f"{len(self.slow_pairs or ())} below {SLOW:.0%} of {(self.reference_bytes_per_s or 0) / 1e9:.3g} GB/s"
            )
            yield table(f"pairs: {below}", self.slow_links, row=SlowLinkRow)
        if self.rounds:
            yield from _plan(self.rounds)


ANSWERS = (ExpectAnswer,)


def expect_answer(
    cluster: Cluster, found: Expectation | None, blame: PairDiagnosis | None, plan: Sequence[Sequence[tuple[str, str]]],
    notes: Sequence[str],
) -> ExpectAnswer:  # fmt: skip
    """`found`: of a run of nccl-tests; `blame`: of measured pairs; `plan`: rounds of pairs to measure."""
    return ExpectAnswer(
        cluster=cluster.name,
        verdict=UNSET if found is None else "low" if found.low else "ok",
        sizes=UNSET if found is None else [
            ExpectedSize(
                op=row.op, bytes=row.bytes, measured_bus_bytes_per_s=row.measured,
                expected_bus_bytes_per_s=row.expected, low_bus_bytes_per_s=row.low, high_bus_bytes_per_s=row.high,
                ratio=row.ratio, verdict=row.word, level=row.level,
            )
            for row in found.verdicts
        ],
        suspects=UNSET if found is None else [
            SuspectLevel(level=each.level, part_of_bandwidth=each.part, misfit=each.misfit, low_sizes=each.sizes)
            for each in found.suspects
        ],
        explanation=UNSET if found is None else found.explanation or None,
        reference_bytes_per_s=UNSET if blame is None else blame.reference,
        slow_links=UNSET if blame is None else [
            SlowLinkRow(link=link.name, bytes_per_s=link.bytes_per_s, part=link.part, slow_pairs=link.pairs,
                     or_else=link.or_else)
            for link in blame.links
        ],
        slow_pairs=UNSET if blame is None else [(pair.a, pair.b, pair.bytes_per_s) for pair in blame.slow_pairs],
        unexplained_pairs=UNSET if blame is None else [(pair.a, pair.b) for pair in blame.unexplained],
        rounds=[[PairToMeasure(a=a, b=b, command=_command(a, b, cluster)) for a, b in each] for each in plan] or UNSET,
        notes=[*_found_notes(found), *notes, *_blame_notes(blame)],
    )  # fmt: skip


def _plan(rounds: Sequence[Sequence[PairToMeasure]]) -> Iterator[Part]:
    rows = []
    for number, each in enumerate(rounds, start=1):
        names = ", ".join(f"{pair.a}-{pair.b}" for pair in each[:SHOWN_PAIRS])
        rows.append([str(number), names + (f" and {len(each) - SHOWN_PAIRS} more" if len(each) > SHOWN_PAIRS else "")])
    yield Table("to measure", ["round", "pairs"], rows, words=2)
    command = rounds[0][0].command.replace(" all_reduce_perf", " \\\n    all_reduce_perf")
    how = "round after round, the pairs of a round at once; then again with --pairs *.json:"
    yield Text(f"{how}\n  {command}")


def _size(bytes_: float) -> str:
    for unit, scale in (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if bytes_ >= scale:
            return f"{bytes_ / scale:.4g} {unit}"
    return f"{bytes_:.0f} B"


def _command(a: str, b: str, cluster: Cluster) -> str:
    local = cluster.node_size
    return f"mpirun -np {2 * local} -H {a}:{local},{b}:{local} all_reduce_perf -b 1G -e 1G -J {a}_{b}.json"


def _found_notes(found: Expectation | None) -> list[str]:
    if found is None:
        return []
    low, all_ = sum(row.word == "low" for row in found.verdicts), len(found.verdicts)
    word = f"low ({', '.join(found.low_classes)})" if found.low else "as expected"
    notes = [f"verdict: {word}, {low} of {all_} sizes below their band"]
    if found.latency:
        notes.append("only short messages are low: look at start and steps (CPU governor, launch, GPUDirect)")
    notes += [
        f"suspicious: {each.level}; with {each.part:.2g} of its bandwidth the long messages come out to "
        f"{each.misfit:.0%}" for each in found.suspects if found.low and not found.latency
    ]  # fmt: skip
    notes += [f"closest explanation: {found.explanation}"] if found.explanation else []
    return [*notes, f"closed form; the band holds {HELD:.0%} of measurements on fabrics left out of the fit"]


def _blame_notes(blame: PairDiagnosis | None) -> list[str]:
    if blame is None:
        return []
    notes = [f"{link.name}: {' or '.join(link.or_else)} would explain the same" for link in blame.links if link.or_else]
    notes += [
        f"{pair.a}-{pair.b} is slow although each of its links carried a fast pair: look at its route (hashing)"
        for pair in blame.unexplained[:SHOWN_PAIRS]
    ]
    return [*notes, *([] if blame.slow_pairs else ["no pair is slow"])]
