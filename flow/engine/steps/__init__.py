"""Execution of steps: reading, stateless kernels, keyed steps, levels, outputs."""
