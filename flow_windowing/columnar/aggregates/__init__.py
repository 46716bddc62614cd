"""Accumulators of many windows, as Python objects or in columns of numbers."""
