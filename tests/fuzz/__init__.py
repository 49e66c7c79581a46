"""Inputs nobody meant to write, for every verb and every reader. `python -m fuzz --inputs 100000` runs them, here and
from `make fuzz`; what an input does wrong becomes a case with a name in `found.py`.

Verbs come from their registry and options from cyclopts, importers from their folder, readers from their signatures,
catalog kinds from the catalog: a new one is fuzzed because it is there.
"""
