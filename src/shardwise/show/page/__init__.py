"""The page of `serve`: every verb as a form, with its answer, in a browser.

A server for one person: questions come as the options of a verb, warm processes run the very verb with `--json`, the
browser draws the answer. Nothing here knows what a verb computes.
"""
