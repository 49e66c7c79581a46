"""Compares predictions with measured training runs."""
