"""How much of what people really have is read right: failures of public reports, named or not.

    python benchmarks/carry.py --json

The rules were written with the reports of `seen` and `visible` in view. Those of `later` were labelled before any rule
was changed for them: 33 of 44 kinds were named then, and four ranks blamed wrongly. Those of `set_aside` were split off
from those of `visible` by a hash of their sources before any rule was tried on either, and changed no rule.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "diagnose"))
from failure_corpus import FOLDER, corpus, named


def scored(name: str) -> dict[str, object]:
    """One set of reports: share whose kind is named first, and share that blames a rank which is not to blame."""
    failures = corpus(name)
    answers = [(failure, *named(failure)) for failure in failures]
    right = [kind in (failure.kind, *failure.also) for failure, kind, _ in answers]
    blamed = [rank is not None and rank != failure.rank for failure, _, rank in answers]
    missed = [{"source": failure.source, "kind": failure.kind, "named": kind or None}
              for (failure, kind, _), good in zip(answers, right, strict=True) if not good]  # fmt: skip
    return {
        "failures": len(failures), "kinds": len({failure.kind for failure in failures}),
        "named": round(sum(right) / len(failures), 3), "wrong_culprit": round(sum(blamed) / len(failures), 3),
        "missed": missed,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    asked = parser.parse_args()
    sets = {path.stem: scored(path.stem) for path in sorted(FOLDER.glob("*.toml"))}
    for name, answer in sets.items():
        print(f"{name:10} {answer['failures']:4} failures of {answer['kinds']:2} kinds: {answer['named']:.1%} named, "
              f"{answer['wrong_culprit']:.1%} blame a rank that is not to blame")  # fmt: skip
    if asked.json:
        print(json.dumps({"sets": sets}))


if __name__ == "__main__":
    main()
