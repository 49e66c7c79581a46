"""Measured runs: recorded, compared with predictions, explained."""
