"""Accumulators of many windows in columns."""
