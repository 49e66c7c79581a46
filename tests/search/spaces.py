"""All policies of a space at once: what the scans under test look at piece by piece."""

from dataclasses import fields

import numpy as np

from shardwise.search import every
from shardwise.spec.policy import Policies


def policies_of(space):
    parts = list(every(space))
    return Policies(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Policies)})
