"""Admission of values over columns: which values of a shard are on time, and which are rejected."""
