"""A training step as a timeline: every forward, backward, send and collective, and the memory over time."""

from shardwise.simulate.noise import Jitter, Straggler
from shardwise.simulate.step import Simulation, simulate
from shardwise.simulate.timeline import Timeline

__all__ = ["Jitter", "Simulation", "Straggler", "Timeline", "simulate"]
