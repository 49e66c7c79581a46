"""All published launch files."""

from formats.public_files import FIRST
from formats.public_megatron import OF_MEGATRON
from formats.public_torch import OF_TORCH
from formats.public_trainers import OF_TRAINERS

PUBLIC = (*FIRST, *OF_MEGATRON, *OF_TORCH, *OF_TRAINERS)
