"""An eleventh set of training steps, drawn by `draw_published.py` (set eleventh, seed 11): predicted and committed
before any of them was measured, and no constant was changed between. They are made as the tenth's."""

import json

from _trace_programs import PROGRAMS
from _trace_programs_drawn import DRAWN
from _trace_programs_ninth import NINTH
from _trace_programs_tenth import TENTH, _added

TABLE = "h200_programs_eleventh_drawn.json"
ELEVENTH = [_added(given) for given in json.loads((DRAWN / TABLE).read_text(encoding="utf-8"))["programs"]]
__all__ = ["ELEVENTH", "NINTH", "PROGRAMS", "TENTH"]
