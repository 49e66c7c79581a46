"""A fifth set of training steps, drawn by `draw_programs.py` (seed 5): predicted and committed before any of them was
measured, and no constant was changed between. `_trace_programs.py` says how they are run."""

from _trace_programs_drawn import PROGRAMS, programs_of

FIFTH = programs_of("h200_programs_fifth_drawn.json")
__all__ = ["FIFTH", "PROGRAMS"]
