"""What the model finds for one case, as the plain facts that `shardwise.report` shows.

A policy's estimate as a Report, one step on the network, a published layout among its rivals, prices, differences.
"""

from shardwise.studies.build import report_of

__all__ = ["report_of"]
