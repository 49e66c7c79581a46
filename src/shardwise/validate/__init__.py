"""Predictions held against measured training runs."""
