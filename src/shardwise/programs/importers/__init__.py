"""Reads logs, benchmark tables and traces as measured points. One file per form.

The files come from elsewhere: every reader is bounded in size and says in one line what it could not read.
"""
