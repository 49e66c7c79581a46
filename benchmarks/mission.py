"""Every statement of four source documents as a command: how many answer as the documents say.

`--json` ends with one line: rows (statements), commands (rows that a command answers), works (they answer as expected),
partly (they answer otherwise), missing (no command answers them). `--fast` leaves out what trains or searches long.
"""

import argparse
import json
import time

from _mission_rows import Said, faults, rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--fast", action="store_true", help="without rows that train or search long")
    parser.add_argument("--times", action="store_true", help="also the seconds of each command")
    asked = parser.parse_args()
    every = rows()
    chosen = [row for row in every if row.command and not (asked.fast and row.slow)]
    said: dict[str, Said] = {}
    wrong: dict[str, str] = {}
    spent: dict[str, float] = {}
    for row in chosen:
        begun = time.process_time()
        wrong |= faults([row], said)
        spent[row.command] = spent.get(row.command, 0.0) + time.process_time() - begun
    for name, why in wrong.items():
        print(f"{name}: {why}")
    for row in every:
        if row.missing:
            print(f"{row.id}: missing: {row.missing}")
    if asked.times:
        for command, seconds in sorted(spent.items(), key=lambda item: -item[1])[:40]:
            print(f"{seconds:6.2f} s  {command}")
    told = {
        "rows": len(every), "commands": len([row for row in every if row.command]), "run": len(chosen),
        "works": len(chosen) - len(wrong), "partly": len(wrong), "missing": len([row for row in every if row.missing]),
        "processor_s": round(sum(spent.values()), 1),
    }  # fmt: skip
    print(json.dumps(told))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
