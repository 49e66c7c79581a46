"""Weights in and out: the safetensors format, and the names and forms Hugging Face stores them under."""
