"""Interval joins: pairs of values of two streams whose timestamps are close."""
