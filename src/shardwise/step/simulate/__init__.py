"""A training step as a timeline: every forward, backward, send and collective, and the memory over time."""

from shardwise.step.simulate.noise import Jitter, Straggler
from shardwise.step.simulate.step import Simulation, simulate
from shardwise.step.simulate.timeline import Timeline

__all__ = ["Jitter", "Simulation", "Straggler", "Timeline", "simulate"]
