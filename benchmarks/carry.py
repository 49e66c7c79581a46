"""How much of what people really have is read right: scripts, failures and more; of each the half no rule has seen.

    python benchmarks/carry.py --clones FOLDER --json

Public scripts are read from clones of their repositories (FOLDER/owner+name); tests/formats/scripts.jsonl records the
words that bash started their launchers with. Failures: the rules were written with the reports of `seen` and `visible`
in view. Those of `later` were labelled before any rule was changed for them: 33 of 44 kinds were named then, and four
ranks blamed wrongly; of `fresh` 22 of 25, no rank wrongly. Those of `set_aside` were split off by a hash of their
sources before any rule was tried on them. Of the logs fetched later 11 of 18 were right before a rule was changed.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "diagnose")]
import dump_corpus  # noqa: E402
from failure_corpus import FOLDER, corpus, named  # noqa: E402

from _carry_exports import exports_started  # noqa: E402
from formats import by_hand  # noqa: E402
from formats.script_corpus import recorded, verdict  # noqa: E402
from importers.real_logs import is_right, public_logs  # noqa: E402

CLONES = "SHARDWISE_CLONES"


def scripts(clones: Path) -> dict[str, object]:
    """Shares over the half set aside, whose scripts changed nothing in the reader."""
    halves = {half: Counter[str]() for half in (False, True)}
    for script in recorded():
        if (outcome := verdict(script, clones)) != "missing":
            halves[script.set_aside][outcome] += 1
    for half, counts in halves.items():
        print(f"scripts {'set aside' if half else 'in view'}: {counts.total()}, " + ", ".join(
            f"{outcome} {count}" for outcome, count in counts.most_common()))  # fmt: skip
    aside = halves[True]
    if not aside:
        print(f"scripts: no clones in {clones}; name their folder with --clones or ${CLONES}")
    right = (aside["equal"] + aside["open"]) / aside.total() if aside else None
    return {"scripts": sum(halves.values(), Counter()).total(), "argv_equal": right and round(right, 3)}


def files_by_hand() -> dict[str, object]:
    """Shares over the half whose labels were written before it was first read."""
    found: dict[str, object] = {}
    number = 0
    for half in ("in_view", "set_aside"):
        files = by_hand.labelled(half)
        answers = []
        with tempfile.TemporaryDirectory() as folder:
            for at, file in enumerate(files):
                (place := Path(folder, str(at))).mkdir()
                answers.append(by_hand.judged(file, place))
        right = sum(answer.right for answer in answers)
        fields = right + sum(len(answer.named) + len(answer.silent) for answer in answers)
        silent, refused = (sum(map(bool, each)) / len(files) for each in (
            [answer.silent for answer in answers], [answer.refused_wrongly for answer in answers]))  # fmt: skip
        print(f"files by hand {half}: {len(files)}, {right} of {fields} fields right, wrong in silence {silent:.1%}, "
              f"refused wrongly {refused:.1%}")  # fmt: skip
        number += len(files)
        found = {"fields_right": round(right / fields, 3), "wrong_silently": round(silent, 3),
                 "refused_wrongly": round(refused, 3)}  # fmt: skip
    return {"files_by_hand": number, **found}


def files_later(clones: Path) -> dict[str, object]:
    """Files of other authors, in two halves, each labelled before it was first read."""
    shown: dict[str, object] = {}
    for half in ("first", "second"):
        with tempfile.TemporaryDirectory() as folder:
            answers = list(by_hand.later(half, clones, Path(folder)))
        right = sum(answer.right for answer in answers)
        fields = right + sum(len(answer.named) + len(answer.silent) for answer in answers)
        silent, refused = (sum(map(bool, each)) for each in (
            [answer.silent for answer in answers], [answer.refused_wrongly for answer in answers]))  # fmt: skip
        print(f"files later, {half}: {len(answers)}, {right} of {fields} fields right, {silent} wrong in silence, "
              f"{refused} refused wrongly")  # fmt: skip
        shown |= {f"files_later_{half}": len(answers), f"files_later_{half}_wrong_silently": silent}
    return shown


def logs() -> dict[str, object]:
    halves = {half: [is_right(log) for log in public_logs() if log.set_aside is half] for half in (False, True)}
    fresh = [is_right(log) for log in public_logs("fresh_logs")]
    for half, right in halves.items():
        print(f"logs {'set aside' if half else 'in view'}: {sum(right)} of {len(right)} right")
    print(f"logs fetched later: {sum(fresh)} of {len(fresh)} right")
    return {
        "logs": sum(map(len, halves.values())) + len(fresh),
        "logs_right": round(sum(halves[True]) / len(halves[True]), 3),
    }


def failures() -> dict[str, object]:
    sets = {path.stem: corpus(path.stem) for path in sorted(FOLDER.glob("*.toml"))}
    shares = {}
    for name, reports in sets.items():
        answers = [(failure, *named(failure)) for failure in reports]
        right = sum(kind in (failure.kind, *failure.also) for failure, kind, _ in answers) / len(answers)
        wrong = sum(rank is not None and rank != failure.rank for failure, _, rank in answers) / len(answers)
        kinds = len({failure.kind for failure in reports})
        print(f"failures {name}: {len(reports)} of {kinds} kinds, {right:.1%} named, {wrong:.1%} blame a wrong rank")
        shares[name] = right, wrong
        for failure, kind, rank in answers:
            if name != "set_aside" and (kind not in (failure.kind, *failure.also) or rank not in (None, failure.rank)):
                print(f"    {failure.source}: {failure.kind}, named {kind or 'nothing'}")
    return {
        "failures": sum(map(len, sets.values())),
        "failures_named_set_aside": round(shares["set_aside"][0], 3), "wrong_culprit": round(shares["set_aside"][1], 3),
    }  # fmt: skip


def dumps() -> dict[str, object]:
    cases = list(dump_corpus.labelled())
    with tempfile.TemporaryDirectory() as folder:
        outcomes = []
        for number, case in enumerate(cases):
            place = Path(folder, str(number))
            place.mkdir()
            outcomes.append(dump_corpus.named(case, place) == (case.code, case.rank))
    print(f"flight recorders: {sum(outcomes)} of {len(cases)} culprits named")
    return {"dumps_right": sum(outcomes)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--clones", type=Path, default=Path(os.environ.get(CLONES, ROOT / ".carry")),
                        help="folder of git clones, owner+name each")  # fmt: skip
    parser.add_argument("--programs", type=Path, help="folder of accelerate, torchrun and python that know TRL, "
                        "DeepSpeed and transformers: exports are started there, on processors")  # fmt: skip
    given = parser.parse_args()
    found = {**scripts(given.clones), **files_by_hand(), **files_later(given.clones), **logs(), **failures(), **dumps()}
    found |= exports_started(given.programs) if given.programs else {}
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
