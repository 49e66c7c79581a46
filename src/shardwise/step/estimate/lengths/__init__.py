"""Steps over sequences of different lengths: padding, packing, dynamic context parallelism, and who waits for whom."""

from shardwise.step.estimate.lengths.report import DataStep, DrawnSteps, LengthsReport, lengths_report

__all__ = ["DataStep", "DrawnSteps", "LengthsReport", "lengths_report"]
