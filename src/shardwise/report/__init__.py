"""Facts of a step as plain data, and the terminal, notebook and HTML pages made of them.

Nothing here runs the model: `shardwise.question.studies` fills these types.
"""

from shardwise.report.report import Report

__all__ = ["Report"]
