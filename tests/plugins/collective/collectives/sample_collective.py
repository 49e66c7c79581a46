"""A collective for the tests: pairwise exchange under another name, which no library takes unasked."""

from dataclasses import replace

from shardwise.plugins.collectives.pairwise import COLLECTIVE as PAIRWISE

COLLECTIVE = replace(PAIRWISE, name="sample_collective", automatic=False)
