"""Closed form: memory and step time of one policy or a million, from the same Work and the same cost functions."""
