"""Joins of two streams by time: interval joins and as-of joins."""
