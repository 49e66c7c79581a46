"""`plan --why` and `plan --why-not`: the winner against another policy, part by part."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from shardwise.cli._choice import nothing_legal, policy_from
from shardwise.cli._output import Cell, print_facts, print_gap, print_notes, print_table
from shardwise.cli._plan_page import PlanResult
from shardwise.cli._that_fit import that_fit_data, that_fit_line
from shardwise.plan.that_fit import PolicyThatFits, policies_that_fit
from shardwise.report.terminal import policy_code
from shardwise.spec.model import Model
from shardwise.spec.rules import verdict_of
from shardwise.studies.why import Difference, WhyNot, refused, waterfall, why_not
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


@dataclass(frozen=True)
class WhyNotAnswer:
    text: str
    found: WhyNot | None
    """None where the words ask for a search that found nothing legal"""
    why: str = ""
    """there: what stands in the way"""
    fitting: tuple[PolicyThatFits, ...] = ()
    """where it does not fit: those next to it that do"""

    @property
    def data(self) -> dict[str, Any]:
        if self.found is None:
            return {"asked": self.text, "policy": None, "verdict": "illegal", "why": self.why}
        found: dict[str, Any] = msgspec.to_builtins(self.found)
        return {"asked": self.text} | found | {"that_fit": that_fit_data(self.fitting, self.found.step_s or 1.0)}


def questions_of(texts: Iterable[str], model: Model) -> list[tuple[str, str]]:
    """What is asked, and the policy in words; the rules of thumb in place of their name."""
    experts = any(kind.experts for kind in model.kinds)
    rules = [(f"{rule} ({words})", words) for rule, words in RULES if experts or "ep>" not in words]
    asked: list[tuple[str, str]] = []
    for text in texts:
        asked += rules if text.strip().lower() == THUMB else [(text, text)]
    return asked


def why_not_of(text: str, words: str, planned: PlanResult) -> WhyNotAnswer:
    policy = policy_from(words, planned.case, planned.cluster, or_smallest=True)
    if policy is None:
        return WhyNotAnswer(text, None, nothing_legal(words, planned.case, planned.cluster))
    case, cluster = planned.case, planned.cluster
    verdict = verdict_of(case.model, cluster, case.job, policy)
    if not verdict.legal:
        return WhyNotAnswer(text, refused(policy, verdict))
    found = why_not(planned.taken, case.report(cluster, policy), planned.ranked.limit_bytes)
    fitting = policies_that_fit(planned.whole, policy) if found.over_bytes else []
    return WhyNotAnswer(text, found, fitting=tuple(fitting))


def show_why_not(asked: list[WhyNotAnswer]) -> None:
    for item in asked:
        print_gap()
        if item.found is None:
            print_facts(f"why not {item.text}", [("verdict", "illegal"), ("because", item.why)])
            continue
        found = item.found
        facts: list[tuple[str, Cell]] = [
            ("policy", policy_code(found.policy)),
            ("verdict", found.verdict),
            ("because", found.why),
        ]
        if found.nearest is not None:
            facts.append(("nearest", policy_code(found.nearest)))
        if found.step_s is not None and found.peak_bytes is not None:
            facts.append(("step", f"{time_text(found.step_s)}, {gib(found.peak_bytes)} GiB"))
            facts += [("fits", that_fit_line(found.policy, near, found.step_s)) for near in item.fitting]
        print_facts(f"why not {item.text}", facts)


def waterfall_data(planned: PlanResult) -> list[dict[str, Any]] | None:
    if len(planned.parts) < 2:
        return None
    found: list[dict[str, Any]] = msgspec.to_builtins(waterfall(planned.parts[0], planned.parts[1]))
    return found


def show_waterfall(planned: PlanResult) -> None:
    """From the winner's step to the runner-up's, one part a line; the last line is their sum."""
    if len(planned.parts) < 2:
        print_notes(["there is no second policy that fits"], title="why the first wins")
        return
    first, second = planned.parts[:2]
    found = waterfall(first, second)
    large = [item for item in found if abs(item.seconds) > SHOWN_SHARE * first.step_s]
    rest = sum(item.seconds for item in found if item not in large)
    tiny = abs(rest) < 1e-6 * first.step_s
    lines = [*large, *([] if tiny else [Difference(part="everything else", seconds=rest)])]
    most = max((abs(item.seconds) for item in lines), default=1.0) or 1.0
    rows: list[list[Cell]] = [["winner", policy_code(first.policy), "", f"{first.step_s * 1e3:,.2f}"]]
    at = first.step_s
    for item in lines:
        at += item.seconds
        bar = ("+" if item.seconds > 0 else "-") * max(round(BAR * abs(item.seconds) / most), 1)
        rows.append([item.part, bar, f"{item.seconds * 1e3:+,.2f}", f"{at * 1e3:,.2f}"])
    rows.append(["runner-up", policy_code(second.policy), "", f"{second.step_s * 1e3:,.2f}"])
    print_gap()
    heads = ["part", "", "difference ms", "step ms"]
    print_table("why the first wins: from its step to the runner-up's", heads, rows, words=2, bars=("difference ms",))
