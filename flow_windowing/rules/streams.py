"""The streams of a windowing step: names and port numbers."""

PORTS = ("down", "late", "closed")
DOWN, LATE, CLOSED = range(len(PORTS))

DEDUP_PORTS = ("down", "late", "duplicates")
"""The streams of a deduplicating step; the first two have the numbers of a windowing step."""
DUPLICATES = 2
