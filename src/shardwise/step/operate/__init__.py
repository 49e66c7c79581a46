"""Whole runs with interruptions: failures, checkpoints, restarts, and what they cost in days, dollars and energy."""
