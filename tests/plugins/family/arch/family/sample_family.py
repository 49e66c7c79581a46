"""A model family for the tests: Llama's layers under a model_type of its own."""

from shardwise.spec.arch._family import Family
from shardwise.spec.arch.family import llama

FAMILY = Family(name="sample_family", model_types=("sample_type",), read=llama.read)
