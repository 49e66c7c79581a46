"""Time and memory of a training step, in closed form and as a timeline, and of a whole run with interruptions."""
