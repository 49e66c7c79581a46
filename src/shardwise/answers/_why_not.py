"""`plan --why` and `plan --why-not`: the first policy against another, part by part."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import UNSET, Struct, UnsetType

from shardwise.answers._planned import Planned
from shardwise.answers._that_fit import NearPolicy, near_policies
from shardwise.answers.answer import Cell, FactList, Notes, Part, Table
from shardwise.plan.that_fit import policies_that_fit
from shardwise.question.legal import legal_of
from shardwise.question.studies.why import Difference, WhyNot, refused, waterfall, why_not
from shardwise.question.words import nothing_legal, policy_from
from shardwise.report.terminal import policy_code
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy
from shardwise.units import gib, time_text

SHOWN_SHARE = 2e-4
"""parts that differ by less than this share of a step are one line together"""
BAR = 24
THUMB = "rules"
"""stands for all of these"""
RULES = (
    ("data parallelism when the model fits", "best,tp=1,pp=1,cp=1,zero=0"),
    ("a pipeline when it is deep", "best,tp=1,cp=1,pp>1"),
    ("tensor parallelism when a layer is too big", "best,tp>1,pp=1,cp=1"),
    ("ZeRO 1 when the optimizer dominates", "best,tp=1,pp=1,cp=1,zero=1"),
    ("ZeRO 2 when the optimizer dominates", "best,tp=1,pp=1,cp=1,zero=2"),
    ("FSDP when parameters do not fit", "best,tp=1,pp=1,cp=1,zero=3"),
    ("expert parallelism for experts", "best,ep>1"),
)


class WhyNotRow(Struct, frozen=True, kw_only=True):
    asked: str
    policy: Policy | None
    """None where the words name a search that found nothing legal"""
    verdict: str
    why: str
    step_s: float | UnsetType | None = UNSET
    peak_bytes: float | UnsetType | None = UNSET
    slower: float | UnsetType | None = UNSET
    over_bytes: float | UnsetType = UNSET
    waterfall: tuple[Difference, ...] | UnsetType = UNSET
    nearest: Policy | UnsetType | None = UNSET
    """where it is illegal: the legal policy that changes least"""
    that_fit: Sequence[NearPolicy] | UnsetType = UNSET

    @property
    def facts(self) -> FactList:
        title = f"why not {self.asked}"
        if self.policy is None:
            return FactList(title, [("verdict", self.verdict), ("because", self.why)])
        facts: list[tuple[str, Cell]] = [
            ("policy", policy_code(self.policy)), ("verdict", self.verdict), ("because", self.why),
        ]  # fmt: skip
        if isinstance(self.nearest, Policy):
            facts.append(("nearest", policy_code(self.nearest)))
        if isinstance(self.step_s, float) and isinstance(self.peak_bytes, float):
            facts.append(("step", f"{time_text(self.step_s)}, {gib(self.peak_bytes)} GiB"))
            facts += [("fits", near.text(self.policy)) for near in self.that_fit or ()]
        return FactList(title, facts)


def questions_of(texts: Iterable[str], model: Model) -> list[tuple[str, str]]:
    """What is asked, and the policy in words; the rules of thumb in place of their name."""
    experts = any(kind.experts for kind in model.kinds)
    rules = [(f"{rule} ({words})", words) for rule, words in RULES if experts or "ep>" not in words]
    asked: list[tuple[str, str]] = []
    for text in texts:
        asked += rules if text.strip().lower() == THUMB else [(text, text)]
    return asked


def why_not_row(text: str, words: str, planned: Planned) -> WhyNotRow:
    question, cluster = planned.question, planned.cluster
    policy = policy_from(words, question, cluster, or_smallest=True)
    if policy is None:
        why = nothing_legal(words, question, cluster)
        return WhyNotRow(asked=text, policy=None, verdict="illegal", why=why)
    verdict = legal_of(planned.case, policy)
    if not verdict.legal:
        return _row(text, refused(policy, verdict))
    found = why_not(planned.taken, question.report(cluster, policy), planned.ranked.limit_bytes)
    fitting = policies_that_fit(planned.case, policy) if found.over_bytes else []
    return _row(text, found, near_policies(fitting, found.step_s or 1.0))


def _row(text: str, found: WhyNot, near: Sequence[NearPolicy] = ()) -> WhyNotRow:
    return WhyNotRow(
        asked=text, policy=found.policy, verdict=found.verdict, why=found.why, step_s=found.step_s,
        peak_bytes=found.peak_bytes, slower=found.slower, over_bytes=found.over_bytes, waterfall=found.waterfall,
        nearest=found.nearest, that_fit=near,
    )  # fmt: skip


def differences_of(planned: Planned) -> tuple[Difference, ...] | None:
    """From the first step to the second's; None where there is no second."""
    return waterfall(planned.parts[0], planned.parts[1]) if len(planned.parts) > 1 else None


def waterfall_part(
    found: Sequence[Difference] | None, first: tuple[Policy, float], second: tuple[Policy, float]
) -> Iterator[Part]:
    """From the first step to the second's, one part a line; the last line is their sum."""
    if found is None:
        yield Notes(["there is no second policy that fits"], "why the first wins")
        return
    step_s = first[1]
    large = [item for item in found if abs(item.seconds) > SHOWN_SHARE * step_s]
    rest = sum(item.seconds for item in found if item not in large)
    tiny = abs(rest) < 1e-6 * step_s
    lines = [*large, *([] if tiny else [Difference(part="everything else", seconds=rest)])]
    most = max((abs(item.seconds) for item in lines), default=1.0) or 1.0
    rows: list[list[Cell]] = [["winner", policy_code(first[0]), "", f"{step_s * 1e3:,.2f}"]]
    at = step_s
    for item in lines:
        at += item.seconds
        bar = ("+" if item.seconds > 0 else "-") * max(round(BAR * abs(item.seconds) / most), 1)
        rows.append([item.part, bar, f"{item.seconds * 1e3:+,.2f}", f"{at * 1e3:,.2f}"])
    rows.append(["runner-up", policy_code(second[0]), "", f"{second[1] * 1e3:,.2f}"])
    heads = ["part", "", "difference ms", "step ms"]
    yield Table("why the first wins: from its step to the runner-up's", heads, rows, words=2, bars=("difference ms",))
