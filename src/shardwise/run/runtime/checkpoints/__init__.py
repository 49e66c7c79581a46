"""Checkpoints that cannot lie: what is in one is written down with its checksums, and read only if they hold."""
