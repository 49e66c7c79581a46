"""A run as it really goes: failures, checkpoints, restarts, and what they cost in days, dollars and energy."""
