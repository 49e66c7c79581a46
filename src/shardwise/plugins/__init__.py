"""Plug-ins, one file each: optimizers, schedules, collectives, compressors, topologies, strategies, engines."""
