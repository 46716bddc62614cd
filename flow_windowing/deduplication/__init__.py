"""Deduplication: values of an id that repeat one that passed are dropped."""
