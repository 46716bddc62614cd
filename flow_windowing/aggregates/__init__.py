"""Aggregates: what `aggregate_window` computes of the values of a window."""
