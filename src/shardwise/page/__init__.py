"""The page: what the verbs answer, asked and looked at in a browser.

A server for one person: questions come as the options of a verb, warm processes run the very verb with `--json`, the
browser draws the answer. Nothing here knows what a verb computes.
"""
