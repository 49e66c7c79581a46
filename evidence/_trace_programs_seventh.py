"""A seventh set of training steps, drawn by `draw_programs.py` (seed 7): predicted and committed before any of them was
measured, and no constant was changed between. `_trace_programs.py` says how they are run."""

from _trace_programs_drawn import programs_of
from _trace_programs_sixth import FIFTH, PROGRAMS, SIXTH

SEVENTH = programs_of("h200_programs_seventh_drawn.json")
__all__ = ["FIFTH", "PROGRAMS", "SEVENTH", "SIXTH"]
