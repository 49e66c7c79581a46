"""Trains with a policy on torch and verifies the prediction. Nothing below this room imports torch."""
