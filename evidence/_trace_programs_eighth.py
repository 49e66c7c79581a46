"""An eighth set of training steps, drawn by `draw_programs.py` (seed 8): predicted and committed before any of them was
measured, and no constant was changed between. `_trace_programs.py` says how they are run."""

from _trace_programs_drawn import programs_of
from _trace_programs_seventh import FIFTH, PROGRAMS, SEVENTH, SIXTH

EIGHTH = programs_of("h200_programs_eighth_drawn.json")
__all__ = ["EIGHTH", "FIFTH", "PROGRAMS", "SEVENTH", "SIXTH"]
