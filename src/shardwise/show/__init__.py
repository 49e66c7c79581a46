"""Command line, page and notebook."""
