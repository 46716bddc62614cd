"""The streams of a windowing step: names and port numbers."""

PORTS = ("down", "late", "closed")
DOWN, LATE, CLOSED = range(len(PORTS))

DEDUP_PORTS = ("down", "late", "duplicates")
"""The streams of a deduplicating step; the first two have the numbers of a windowing step."""
DUPLICATES = 2

STATE_PORTS = ("down", "late", "expired")
"""The streams of a map with a state that expires by event time."""
EXPIRED = 2
