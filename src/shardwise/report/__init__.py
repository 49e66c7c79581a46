"""One policy's estimate as a Report: plain data, a terminal page, a notebook page, JSON."""

from shardwise.report.build import report_of
from shardwise.report.report import Report

__all__ = ["Report", "report_of"]
