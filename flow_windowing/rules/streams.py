"""Streams of a windowing step: their names, and their numbers as ports."""

PORTS = ("down", "late", "closed")
DOWN, LATE, CLOSED = range(len(PORTS))
