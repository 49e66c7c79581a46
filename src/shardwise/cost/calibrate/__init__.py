"""Measured rates of this machine: benchmarks, fitted constants, and the profile that keeps them."""
