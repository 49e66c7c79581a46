"""Typed answers, one file a verb: made by a pure function, rendered alike for terminal, JSON, page and notebook."""
