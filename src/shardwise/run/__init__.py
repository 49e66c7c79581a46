"""Execution on torch: training, a user's own scripts, checks of nodes."""
