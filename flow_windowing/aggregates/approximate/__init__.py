"""Approximate aggregates, in bounded memory: sketches of the values of a window."""
