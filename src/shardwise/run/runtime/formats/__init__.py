"""Checkpoints of any program as named tensors in files: read without running what they contain."""
