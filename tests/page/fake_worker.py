"""Stands in for the process behind the page: does what the first word of a question says."""

import json
import os
import sys
import time

for line in sys.stdin:
    words = json.loads(line)["words"]
    if words[0] == "sleep":
        time.sleep(60)
    if words[0] == "die":
        os._exit(3)
    print(json.dumps({"progress": {"what": "things", "done": 1, "of": 2}}), flush=True)
    print(json.dumps({"found": [{"step_s": 1.5}]}), flush=True)
    print(
        json.dumps({"answer": {"code": 0, "out": json.dumps({"words": words, "pid": os.getpid()}), "err": ""}}),
        flush=True,
    )
