"""A question, made in one way from flags, Python options, plan files and tables: the same defaults, notes and rules."""

from shardwise.question.build import open_question_of, options_of, question_of, with_policy
from shardwise.question.question import ASSUMED, RECOMMENDED, SMALLEST, STATED, PolicyQuestion, Question

__all__ = [
    "ASSUMED",
    "RECOMMENDED",
    "SMALLEST",
    "STATED",
    "PolicyQuestion",
    "Question",
    "open_question_of",
    "options_of",
    "question_of",
    "with_policy",
]
