"""Checks that nodes are ready for a job: reads their own tools, judges item by item, compares nodes."""
