"""The groups in which `--help` lists options."""

from cyclopts import Group

CLUSTER = Group("Cluster", sort_key=1)
JOB = Group("Job", sort_key=2)
POLICY = Group("Policy", sort_key=3)
OVERLAP = Group("Overlap", help="Communication under compute; the stack's own unless stated.", sort_key=4)
QUESTION = Group("Question", sort_key=5)
OUTPUT = Group("Output", sort_key=6)
