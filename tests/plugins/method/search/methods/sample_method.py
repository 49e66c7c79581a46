"""A search method for the tests: the zeroth-order one under another name."""

from msgspec.structs import replace

from shardwise.plan.search.methods.zeroth_order import METHOD as ZEROTH_ORDER

METHOD = replace(ZEROTH_ORDER, name="sample_method", summary="a sample for the tests")
