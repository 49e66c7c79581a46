"""One file per thing that is timed; each takes a Bench and returns points."""
